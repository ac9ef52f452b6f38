"""Time expressions, grouped by the tense they go with, so that the tense of a clause follows from its English words."""

from lockstep.data.grammar import words
from lockstep.data.grammar.determiners import POSSESSIVES, THE, THIS
from lockstep.data.grammar.german import DATIVE, GENITIVE
from lockstep.data.grammar.lexicon import CLASSES
from lockstep.data.grammar.numbers import MONTHS, WEEKDAYS, clock_times, dates, number_words
from lockstep.data.grammar.phrases import GOVERNORS, Pair, governed, noun_phrase
from lockstep.data.grammar.tables import Draw, pairs, pick
from lockstep.data.grammar.tenses import BARE_PAST, FUTURE, PAST, PERFECT, PRESENT, PROGRESSIVE

UNSAID: Pair = ("", "")
"""No expression at all."""

Times = tuple[Pair, ...]


def _spaced(times: tuple[Pair, ...]) -> Times:
    """With the space that separates them from what stands before."""
    return tuple((f" {english}", f" {german}") for english, german in times)


def _amounts(english: str, german: str, numbers: range) -> Times:
    """ "three days ago" / "vor drei Tagen": `{}` is replaced by number and unit."""
    return _spaced(
        tuple(
            (english.format(f"{number_words(number)[0]} {unit}"), german.format(f"{number_words(number)[1]} {einheit}"))
            for unit, einheit in pairs(words.UNITS)
            for number in numbers
        )
    )


def _around_events() -> Times:
    """Before, during and after an event; "während" is the preposition that governs the genitive."""
    found: list[Pair] = []
    for noun in CLASSES["events"]:
        for determiner in (THE, THIS, *POSSESSIVES):
            english, genitive = noun_phrase(determiner, None, noun, GENITIVE)
            found.append((f"during {english}", f"während {genitive}"))
            for before, vor in (("before", "vor"), ("after", "nach")):
                found.append((f"{before} {english}", governed(GOVERNORS[vor, DATIVE], determiner, None, noun)[1]))
    return _spaced(tuple(found))


_WEEKDAY = _spaced(tuple((f"on {english}", f"am {german}") for english, german in WEEKDAYS))
_DATE = _spaced(dates())
_MONTH = _spaced(tuple((f"in {english}", f"im {german}") for english, german in MONTHS))
_YEAR = _spaced(tuple((f"in {year}", f"im Jahr {year}") for year in range(1960, 2020)))
_CLOCK = _spaced(tuple((f"at {english}", f"um {german}") for english, german in clock_times()))
_EVENT = _around_events()
_AGO = _amounts("{} ago", "vor {}", range(2, 21))
_AHEAD = _amounts("in {}", "in {}", range(2, 21))
_LAST = _spaced(tuple((f"last {english}", f"letzten {german}") for english, german in WEEKDAYS))
_NEXT = _spaced(tuple((f"next {english}", f"nächsten {german}") for english, german in WEEKDAYS))
_HABIT = _spaced(pairs(words.HABITS) + tuple((f"on {day}s", f"{tag.lower()}s") for day, tag in WEEKDAYS))
_PAST = _spaced(pairs(words.PAST))
_FUTURE = _spaced(pairs(words.FUTURE))

NOW_TIMES = (_spaced(pairs(words.NOW)),)
HABIT_TIMES = (_HABIT,)
PAST_TIMES = (_PAST, _PAST, _PAST, _WEEKDAY, _DATE, _MONTH, _YEAR, _CLOCK, _EVENT, _AGO, _LAST)
FUTURE_TIMES = (_FUTURE, _FUTURE, _FUTURE, _WEEKDAY, _DATE, _MONTH, _CLOCK, _EVENT, _AHEAD, _NEXT)
DURATIONS = _amounts("for {}", "seit {}", range(2, 21))

FREQUENCIES = _spaced(pairs(words.FREQUENCIES))
ALREADY: Times = ((" already", " schon"), (" just", " gerade"), UNSAID)

Setting = tuple[int, Pair, Pair]
"""Tense, time expression, and an adverb that stands before the English verb."""

_TIMED = (
    *((PROGRESSIVE, NOW_TIMES),) * 3,
    *((PRESENT, HABIT_TIMES),) * 3,
    *((PAST, PAST_TIMES),) * 6,
    *((FUTURE, FUTURE_TIMES),) * 4,
)
_UNTIMED = (PRESENT, PRESENT, PROGRESSIVE, BARE_PAST, BARE_PAST, PERFECT, FUTURE)


def draw_timed(draw: Draw) -> Setting:
    """A tense with an expression that shows it."""
    tense, categories = pick(draw, _TIMED)
    return tense, pick(draw, pick(draw, categories)), UNSAID


def draw_setting(draw: Draw) -> Setting:
    """Any tense a statement can have, mostly with a time expression."""
    chance = draw()
    if chance < 0.14:
        return PRESENT, UNSAID, pick(draw, FREQUENCIES)
    if chance < 0.28:
        return PERFECT, UNSAID, pick(draw, ALREADY)
    if chance < 0.40:
        return draw_untimed(draw)
    return draw_timed(draw)


def draw_untimed(draw: Draw) -> Setting:
    """A tense that shows in the verb alone."""
    return pick(draw, _UNTIMED), UNSAID, UNSAID
