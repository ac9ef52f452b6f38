"""Determiners and the pools they are drawn from.

A pool is a tuple in which a frequent determiner stands many times, so one draw chooses by weight. Numbers and names in
the genitive ("Anna's") are determiners as well: they decide the endings of what follows just like an article.
"""

from dataclasses import dataclass
from typing import NamedTuple

from lockstep.demo_corpus import words
from lockstep.demo_corpus.german import Forms, der_forms, dieser_forms, ein_forms, strong_forms
from lockstep.demo_corpus.numbers import number_words
from lockstep.demo_corpus.tables import cells, rows


@dataclass(frozen=True, eq=False, slots=True)
class Determiner:
    """One English determiner in one number, with its German forms."""

    english: str
    """With a space behind it; empty for the indefinite article, whose form depends on the next word."""
    forms: Forms
    plural: bool = False
    definite: bool = False
    """Whether an object with it stands before the adverbs (das Buch heute) or after them (heute ein Buch)."""
    indefinite_article: bool = False
    negative: bool = False
    """Whether it carries the negation of its clause (kein)."""


THE = Determiner("the ", der_forms(), definite=True)
THE_PLURAL = Determiner("the ", der_forms(), plural=True, definite=True)
A = Determiner("", ein_forms("ein"), indefinite_article=True)
BARE = Determiner("", strong_forms())
BARE_PLURAL = Determiner("", strong_forms(), plural=True)
THIS = Determiner("this ", dieser_forms("dies"), definite=True)
THESE = Determiner("these ", dieser_forms("dies"), plural=True, definite=True)
EVERY = Determiner("every ", dieser_forms("jed"))
ALL = Determiner("all ", dieser_forms("all"), plural=True)
SOME = Determiner("some ", strong_forms("einig", inflected=True), plural=True)
MANY = Determiner("many ", strong_forms("viel", inflected=True), plural=True)
WHICH = Determiner("which ", dieser_forms("welch"), definite=True)
WHICH_PLURAL = Determiner("which ", dieser_forms("welch"), plural=True, definite=True)
HOW_MANY = Determiner("how many ", strong_forms("wie viel", inflected=True), plural=True)
NO = Determiner("no ", ein_forms("kein"), negative=True)
NO_PLURAL = Determiner("no ", ein_forms("kein"), plural=True, negative=True)
NOT_A = Determiner("", ein_forms("kein"), indefinite_article=True, negative=True)
NOT_ANY = Determiner("any ", ein_forms("kein"), negative=True)
NOT_ANY_PLURAL = Determiner("any ", ein_forms("kein"), plural=True, negative=True)

POSSESSIVES = tuple(Determiner(f"{row[2]} ", ein_forms(row[6]), definite=True) for row in rows(words.PRONOUNS))
POSSESSIVES_PLURAL = tuple(Determiner(one.english, one.forms, plural=True, definite=True) for one in POSSESSIVES)
NAMES_GENITIVE = tuple(
    Determiner(f"{name}'s ", strong_forms(f"{name}s"), plural=plural, definite=True)
    for name in cells(words.WOMEN + "  " + words.MEN)
    for plural in (False, True)
)


def numeral(number: int, in_words: bool) -> Determiner:
    """A number above one, spelled out or in digits."""
    english, german = number_words(number) if in_words else (str(number), str(number))
    return Determiner(f"{english} ", strong_forms(german), plural=True)


SMALL_NUMBERS = tuple(numeral(number, in_words=True) for number in range(2, 13))
NUMBERS = (
    *SMALL_NUMBERS * 3,
    *(numeral(number, in_words=True) for number in range(13, 100)),
    *(numeral(number, in_words=False) for number in range(2, 100)),
)

_REPEAT = 40
"""Copies per unit of weight; large enough for the numerals, which stand in the pools one by one."""


def _pool(*weighted: tuple[Determiner, int]) -> tuple[Determiner, ...]:
    return tuple(determiner for determiner, weight in weighted for _ in range(weight * _REPEAT))


def _spread(determiners: tuple[Determiner, ...], weight: int) -> tuple[Determiner, ...]:
    return determiners * (weight * _REPEAT // len(determiners))


class Pools(NamedTuple):
    """What can stand before one group of nouns."""

    anywhere: tuple[Determiner, ...]
    subject: tuple[Determiner, ...]
    """Only what reads well at the beginning of a sentence: no digits, no bare plural."""
    definite: tuple[Determiner, ...]
    negated: tuple[Determiner, ...]


_COMMON = _pool((THE, 12), (THE_PLURAL, 8), (A, 12), (THIS, 3), (THESE, 3), (EVERY, 2), (ALL, 2), (SOME, 2), (MANY, 2))
_OWNERS = _spread(POSSESSIVES, 9) + _spread(POSSESSIVES_PLURAL, 6) + _spread(NAMES_GENITIVE, 4)
_DEFINITE = _pool((THE, 6), (THE_PLURAL, 3), (THIS, 2), (THESE, 1))
_DEFINITE_OWNED = _DEFINITE + _spread(POSSESSIVES, 7) + _spread(POSSESSIVES_PLURAL, 3) + _spread(NAMES_GENITIVE, 4)
_KEIN = _pool((NOT_A, 8), (NOT_ANY_PLURAL, 4))
_UNCOUNTED = _pool((BARE, 12), (THE, 6), (THIS, 3)) + _spread(POSSESSIVES, 4)

FOR_COUNTED = Pools(
    anywhere=_COMMON + _pool((BARE_PLURAL, 6)) + NUMBERS,
    subject=_COMMON + _spread(SMALL_NUMBERS, 3),
    definite=_DEFINITE,
    negated=_DEFINITE + _KEIN,
)
FOR_OWNED = Pools(
    anywhere=FOR_COUNTED.anywhere + _OWNERS,
    subject=FOR_COUNTED.subject + _OWNERS,
    definite=_DEFINITE_OWNED,
    negated=_DEFINITE_OWNED + _KEIN,
)
FOR_UNCOUNTED = Pools(
    anywhere=_UNCOUNTED,
    subject=_UNCOUNTED,
    definite=(THE, THIS),
    negated=_pool((NOT_ANY, 8), (THE, 3), (THIS, 1)),
)

PLACING = _pool((THE, 8), (A, 4), (THIS, 2))
PLACING_OWNED = PLACING + _spread(POSSESSIVES, 6) + _spread(NAMES_GENITIVE, 2)
EXISTING = _pool((A, 8), (BARE_PLURAL, 3), (MANY, 3), (SOME, 2), (NO, 3), (NO_PLURAL, 2)) + NUMBERS
