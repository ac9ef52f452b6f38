"""Time expressions grouped by tense, so that the English words of a clause determine its tense."""

from collections.abc import Iterable

from lockstep.demo_corpus import words
from lockstep.demo_corpus.adverbials import PREPOSITIONS, add_preposition
from lockstep.demo_corpus.determiners import POSSESSIVES, THE, THIS
from lockstep.demo_corpus.german import DATIVE, GENITIVE
from lockstep.demo_corpus.lexicon import CLASSES, Verb
from lockstep.demo_corpus.numbers import MONTHS, WEEKDAYS, list_clock_times, list_dates, spell_number
from lockstep.demo_corpus.phrases import build_noun_phrase
from lockstep.demo_corpus.tables import Draw, Pair, add_spaces, pick, read_pairs
from lockstep.demo_corpus.tenses import BARE_PAST, FUTURE, PAST, PERFECT, PRESENT, PROGRESSIVE

NO_WORDS: Pair = ("", "")
"""No time expression, adverb or adverbial."""

Times = tuple[Pair, ...]


def _list_amounts(english: str, german: str) -> Times:
    """Lists expressions with number and unit in place of `{}`: three days ago, vor drei Tagen."""
    return add_spaces(
        (english.format(f"{number} {unit}"), german.format(f"{zahl} {einheit}"))
        for unit, einheit in read_pairs(words.UNITS)
        for number, zahl in map(spell_number, range(2, 21))
    )


def _list_around_events() -> Iterable[Pair]:
    """Yields expressions for before, during and after an event. "während" governs the genitive."""
    for noun in CLASSES["events"]:
        for determiner in (THE, THIS, *POSSESSIVES):
            english, genitive = build_noun_phrase(determiner, None, noun, GENITIVE)
            yield f"during {english}", f"während {genitive}"
            yield f"before {english}", add_preposition(PREPOSITIONS["vor", DATIVE], determiner, None, noun)[1]
            yield f"after {english}", add_preposition(PREPOSITIONS["nach", DATIVE], determiner, None, noun)[1]


_WEEKDAY = add_spaces((f"on {day}", f"am {tag}") for day, tag in WEEKDAYS)
_DATE = add_spaces(list_dates())
_MONTH = add_spaces((f"in {month}", f"im {monat}") for month, monat in MONTHS)
_YEAR = add_spaces((f"in {year}", f"im Jahr {year}") for year in range(1960, 2020))
_CLOCK = add_spaces((f"at {time}", f"um {zeit}") for time, zeit in list_clock_times())
_EVENT = add_spaces(_list_around_events())
_AGO = _list_amounts("{} ago", "vor {}")
_AHEAD = _list_amounts("in {}", "in {}")
_LAST = add_spaces((f"last {day}", f"letzten {tag}") for day, tag in WEEKDAYS)
_NEXT = add_spaces((f"next {day}", f"nächsten {tag}") for day, tag in WEEKDAYS)
_ON_DAYS = add_spaces((f"on {day}s", f"{tag.lower()}s") for day, tag in WEEKDAYS)
_PAST = add_spaces(read_pairs(words.PAST))
_FUTURE = add_spaces(read_pairs(words.FUTURE))

NOW_TIMES = (add_spaces(read_pairs(words.NOW)),)
HABIT_TIMES = (add_spaces(read_pairs(words.HABITS)), _ON_DAYS)
PAST_TIMES = (_PAST, _PAST, _PAST, _WEEKDAY, _DATE, _MONTH, _YEAR, _CLOCK, _EVENT, _AGO, _LAST)
FUTURE_TIMES = (_FUTURE, _FUTURE, _FUTURE, _WEEKDAY, _DATE, _MONTH, _CLOCK, _EVENT, _AHEAD, _NEXT)
DURATIONS = _list_amounts("for {}", "seit {}")

FREQUENCIES = add_spaces(read_pairs(words.FREQUENCIES))
ALREADY: Times = ((" already", " schon"), (" just", " gerade"), NO_WORDS)

Setting = tuple[int, Pair, Pair]
"""Tense, time expression, and an adverb before the English verb."""

_ONCE = (*((PAST, PAST_TIMES),) * 6, *((FUTURE, FUTURE_TIMES),) * 4)
_ONCE_OR_NOW = (*_ONCE, *((PROGRESSIVE, NOW_TIMES),) * 3)
_HABIT = ((PRESENT, HABIT_TIMES),) * 3
_OCCASIONS = {True: _ONCE_OR_NOW, False: _ONCE}
_OCCASIONS_AND_HABITS = {True: _ONCE_OR_NOW + _HABIT, False: _ONCE + _HABIT}
_UNTIMED = (PRESENT, PRESENT, PROGRESSIVE, BARE_PAST, BARE_PAST, PERFECT, FUTURE)
_UNTIMED_STATES = (PRESENT, PRESENT, BARE_PAST)


def draw_timed(draw: Draw, verb: Verb, habits: bool = True) -> Setting:
    """Draws a tense and a time expression for it. Unintended events never happen now."""
    choices = _OCCASIONS_AND_HABITS if habits else _OCCASIONS
    tense, categories = pick(draw, choices[verb.intended])
    return tense, pick(draw, pick(draw, categories)), NO_WORDS


def draw_untimed(draw: Draw, verb: Verb) -> Setting:
    """Draws a tense without a time expression."""
    return pick(draw, _UNTIMED_STATES if verb.state else _UNTIMED), NO_WORDS, NO_WORDS


def draw_setting(draw: Draw, verb: Verb) -> Setting:
    """Draws a tense for a statement with this verb, for an action usually with a time expression."""
    chance = draw()
    if verb.state or chance < 0.12:
        return draw_untimed(draw, verb)
    if chance < 0.26:
        return PRESENT, NO_WORDS, pick(draw, FREQUENCIES)
    if chance < 0.40:
        return PERFECT, NO_WORDS, pick(draw, ALREADY)
    return draw_timed(draw, verb)
