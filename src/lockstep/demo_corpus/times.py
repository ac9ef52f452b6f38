"""Time expressions, grouped by the tense they go with, so that the tense of a clause follows from its English words."""

from collections.abc import Iterable

from lockstep.demo_corpus import words
from lockstep.demo_corpus.adverbials import PREPOSITIONS, governed
from lockstep.demo_corpus.determiners import POSSESSIVES, THE, THIS
from lockstep.demo_corpus.german import DATIVE, GENITIVE
from lockstep.demo_corpus.lexicon import CLASSES, Verb
from lockstep.demo_corpus.numbers import MONTHS, WEEKDAYS, clock_times, dates, number_words
from lockstep.demo_corpus.phrases import noun_phrase
from lockstep.demo_corpus.tables import Draw, Pair, pairs, pick, spaced
from lockstep.demo_corpus.tenses import BARE_PAST, FUTURE, PAST, PERFECT, PRESENT, PROGRESSIVE

UNSAID: Pair = ("", "")
"""No expression at all."""

Times = tuple[Pair, ...]


def _amounts(english: str, german: str) -> Times:
    """Number and unit in the place of `{}`: three days ago, vor drei Tagen."""
    return spaced(
        (english.format(f"{number} {unit}"), german.format(f"{zahl} {einheit}"))
        for unit, einheit in pairs(words.UNITS)
        for number, zahl in map(number_words, range(2, 21))
    )


def _around_events() -> Iterable[Pair]:
    """Before, during and after an event; "während" governs the genitive."""
    for noun in CLASSES["events"]:
        for determiner in (THE, THIS, *POSSESSIVES):
            english, genitive = noun_phrase(determiner, None, noun, GENITIVE)
            yield f"during {english}", f"während {genitive}"
            yield f"before {english}", governed(PREPOSITIONS["vor", DATIVE], determiner, None, noun)[1]
            yield f"after {english}", governed(PREPOSITIONS["nach", DATIVE], determiner, None, noun)[1]


_WEEKDAY = spaced((f"on {day}", f"am {tag}") for day, tag in WEEKDAYS)
_DATE = spaced(dates())
_MONTH = spaced((f"in {month}", f"im {monat}") for month, monat in MONTHS)
_YEAR = spaced((f"in {year}", f"im Jahr {year}") for year in range(1960, 2020))
_CLOCK = spaced((f"at {time}", f"um {zeit}") for time, zeit in clock_times())
_EVENT = spaced(_around_events())
_AGO = _amounts("{} ago", "vor {}")
_AHEAD = _amounts("in {}", "in {}")
_LAST = spaced((f"last {day}", f"letzten {tag}") for day, tag in WEEKDAYS)
_NEXT = spaced((f"next {day}", f"nächsten {tag}") for day, tag in WEEKDAYS)
_ON_DAYS = spaced((f"on {day}s", f"{tag.lower()}s") for day, tag in WEEKDAYS)
_PAST = spaced(pairs(words.PAST))
_FUTURE = spaced(pairs(words.FUTURE))

NOW_TIMES = (spaced(pairs(words.NOW)),)
HABIT_TIMES = (spaced(pairs(words.HABITS)), _ON_DAYS)
PAST_TIMES = (_PAST, _PAST, _PAST, _WEEKDAY, _DATE, _MONTH, _YEAR, _CLOCK, _EVENT, _AGO, _LAST)
FUTURE_TIMES = (_FUTURE, _FUTURE, _FUTURE, _WEEKDAY, _DATE, _MONTH, _CLOCK, _EVENT, _AHEAD, _NEXT)
DURATIONS = _amounts("for {}", "seit {}")

FREQUENCIES = spaced(pairs(words.FREQUENCIES))
ALREADY: Times = ((" already", " schon"), (" just", " gerade"), UNSAID)

Setting = tuple[int, Pair, Pair]
"""Tense, time expression, and an adverb that stands before the English verb."""

_ONCE = (*((PAST, PAST_TIMES),) * 6, *((FUTURE, FUTURE_TIMES),) * 4)
_ONCE_OR_NOW = (*_ONCE, *((PROGRESSIVE, NOW_TIMES),) * 3)
_HABIT = ((PRESENT, HABIT_TIMES),) * 3
_OCCASIONS = {True: _ONCE_OR_NOW, False: _ONCE}
_OCCASIONS_AND_HABITS = {True: _ONCE_OR_NOW + _HABIT, False: _ONCE + _HABIT}
_UNTIMED = (PRESENT, PRESENT, PROGRESSIVE, BARE_PAST, BARE_PAST, PERFECT, FUTURE)
_UNTIMED_STATES = (PRESENT, PRESENT, BARE_PAST)


def draw_timed(draw: Draw, verb: Verb, habits: bool = True) -> Setting:
    """A tense with an expression that shows it. What happens unintended is never said to happen now."""
    choices = _OCCASIONS_AND_HABITS if habits else _OCCASIONS
    tense, categories = pick(draw, choices[verb.intended])
    return tense, pick(draw, pick(draw, categories)), UNSAID


def draw_untimed(draw: Draw, verb: Verb) -> Setting:
    """A tense that shows in the verb alone."""
    return pick(draw, _UNTIMED_STATES if verb.state else _UNTIMED), UNSAID, UNSAID


def draw_setting(draw: Draw, verb: Verb) -> Setting:
    """Any tense a statement with this verb can have, for an action mostly with a time expression."""
    chance = draw()
    if verb.state or chance < 0.12:
        return draw_untimed(draw, verb)
    if chance < 0.26:
        return PRESENT, UNSAID, pick(draw, FREQUENCIES)
    if chance < 0.40:
        return PERFECT, UNSAID, pick(draw, ALREADY)
    return draw_timed(draw, verb)
