"""Numbers, clock times and dates in both languages, all as (English, German) pairs."""

from lockstep.demo_corpus.tables import Pair, read_cells

_ONES_EN = read_cells("""
    zero one two three four five six seven eight nine ten
    eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
""")
_ONES_DE = read_cells("""
    null eins zwei drei vier fünf sechs sieben acht neun zehn
    elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn
""")
_TENS_EN = read_cells("- - twenty thirty forty fifty sixty seventy eighty ninety")
_TENS_DE = read_cells("- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")

WEEKDAYS: tuple[Pair, ...] = (
    ("Monday", "Montag"),
    ("Tuesday", "Dienstag"),
    ("Wednesday", "Mittwoch"),
    ("Thursday", "Donnerstag"),
    ("Friday", "Freitag"),
    ("Saturday", "Samstag"),
    ("Sunday", "Sonntag"),
)
MONTHS: tuple[Pair, ...] = (
    ("January", "Januar"),
    ("February", "Februar"),
    ("March", "März"),
    ("April", "April"),
    ("May", "Mai"),
    ("June", "Juni"),
    ("July", "Juli"),
    ("August", "August"),
    ("September", "September"),
    ("October", "Oktober"),
    ("November", "November"),
    ("December", "Dezember"),
)


def spell_number(number: int) -> Pair:
    """Returns a number below 100 in words. German puts the ones before the tens (einundzwanzig)."""
    if number < 20:
        return _ONES_EN[number], _ONES_DE[number]
    tens, ones = divmod(number, 10)
    if not ones:
        return _TENS_EN[tens], _TENS_DE[tens]
    german_one = "ein" if ones == 1 else _ONES_DE[ones]
    return f"{_TENS_EN[tens]}-{_ONES_EN[ones]}", f"{german_one}und{_TENS_DE[tens]}"


def list_clock_times() -> tuple[Pair, ...]:
    """Lists times of day without a preposition. German names the next hour for half hours (halb vier)."""
    times: list[Pair] = []
    for hour in range(1, 13):
        following = hour % 12 + 1
        english, german = spell_number(hour)
        next_english, next_german = spell_number(following)
        times += [
            (f"{english} o'clock", f"{'ein' if hour == 1 else german} Uhr"),
            (f"half past {english}", f"halb {next_german}"),
            (f"a quarter past {english}", f"Viertel nach {german}"),
            (f"a quarter to {next_english}", f"Viertel vor {next_german}"),
        ]
    times += [
        (f"{hour}:{minute:02}", f"{hour}:{minute:02} Uhr") for hour in range(7, 23) for minute in (10, 25, 35, 50)
    ]
    return tuple(times)


def list_dates() -> tuple[Pair, ...]:
    """Lists days of the year with their preposition."""
    return tuple((f"on {day} {english}", f"am {day}. {german}") for english, german in MONTHS for day in range(1, 29))
