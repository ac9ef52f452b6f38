"""Determiners and the pools they are drawn from.

A pool is a tuple that contains a frequent determiner many times, so that one uniform draw chooses by weight. Numbers and
names in the genitive ("Anna's") are determiners too, because they determine the endings of the following words.
"""

from dataclasses import dataclass
from typing import NamedTuple

from lockstep.demo_corpus import words
from lockstep.demo_corpus.german import Forms, decline_der, decline_dieser, decline_ein, decline_strong
from lockstep.demo_corpus.numbers import spell_number
from lockstep.demo_corpus.tables import read_cells, read_rows


@dataclass(frozen=True, eq=False, slots=True)
class Determiner:
    """One English determiner in one number, with its German forms."""

    english: str
    """With a space after it. Empty for the indefinite article, whose form depends on the next word."""
    forms: Forms
    plural: bool = False
    definite: bool = False
    """Does an object with it come before the adverbs (das Buch heute), not after them (heute ein Buch)?"""
    indefinite_article: bool = False
    negative: bool = False
    """Does it negate its clause (kein)?"""


THE = Determiner("the ", decline_der(), definite=True)
THE_PLURAL = Determiner("the ", decline_der(), plural=True, definite=True)
A = Determiner("", decline_ein("ein"), indefinite_article=True)
BARE = Determiner("", decline_strong())
BARE_PLURAL = Determiner("", decline_strong(), plural=True)
THIS = Determiner("this ", decline_dieser("dies"), definite=True)
THESE = Determiner("these ", decline_dieser("dies"), plural=True, definite=True)
EVERY = Determiner("every ", decline_dieser("jed"))
ALL = Determiner("all ", decline_dieser("all"), plural=True)
SOME = Determiner("some ", decline_strong("einig", inflected=True), plural=True)
MANY = Determiner("many ", decline_strong("viel", inflected=True), plural=True)
WHICH = Determiner("which ", decline_dieser("welch"), definite=True)
WHICH_PLURAL = Determiner("which ", decline_dieser("welch"), plural=True, definite=True)
HOW_MANY = Determiner("how many ", decline_strong("wie viel", inflected=True), plural=True)
NO = Determiner("no ", decline_ein("kein"), negative=True)
NO_PLURAL = Determiner("no ", decline_ein("kein"), plural=True, negative=True)
NOT_A = Determiner("", decline_ein("kein"), indefinite_article=True, negative=True)
NOT_ANY = Determiner("any ", decline_ein("kein"), negative=True)
NOT_ANY_PLURAL = Determiner("any ", decline_ein("kein"), plural=True, negative=True)

POSSESSIVES = tuple(Determiner(f"{row[2]} ", decline_ein(row[6]), definite=True) for row in read_rows(words.PRONOUNS))
POSSESSIVES_PLURAL = tuple(Determiner(one.english, one.forms, plural=True, definite=True) for one in POSSESSIVES)
NAMES_GENITIVE = tuple(
    Determiner(f"{name}'s ", decline_strong(f"{name}s"), plural=plural, definite=True)
    for name in read_cells(words.WOMEN + "  " + words.MEN)
    for plural in (False, True)
)


def build_numeral(number: int, in_words: bool) -> Determiner:
    """Returns a number above one as a determiner, in words or in digits."""
    english, german = spell_number(number) if in_words else (str(number), str(number))
    return Determiner(f"{english} ", decline_strong(german), plural=True)


SMALL_NUMBERS = tuple(build_numeral(number, in_words=True) for number in range(2, 13))
NUMBERS = (
    *SMALL_NUMBERS * 3,
    *(build_numeral(number, in_words=True) for number in range(13, 100)),
    *(build_numeral(number, in_words=False) for number in range(2, 100)),
)

_REPEAT = 40
"""Copies per unit of weight. Numerals have one copy each, so this sets how frequent the others are."""


def _build_pool(*weighted: tuple[Determiner, int]) -> tuple[Determiner, ...]:
    return tuple(determiner for determiner, weight in weighted for _ in range(weight * _REPEAT))


def _spread(determiners: tuple[Determiner, ...], weight: int) -> tuple[Determiner, ...]:
    return determiners * (weight * _REPEAT // len(determiners))


class Pools(NamedTuple):
    """The determiners of one group of nouns."""

    anywhere: tuple[Determiner, ...]
    subject: tuple[Determiner, ...]
    """For the start of a sentence: no digits, no bare plural."""
    definite: tuple[Determiner, ...]
    negated: tuple[Determiner, ...]


_COMMON = _build_pool(
    (THE, 12), (THE_PLURAL, 8), (A, 12), (THIS, 3), (THESE, 3), (EVERY, 2), (ALL, 2), (SOME, 2), (MANY, 2)
)
_OWNERS = _spread(POSSESSIVES, 9) + _spread(POSSESSIVES_PLURAL, 6) + _spread(NAMES_GENITIVE, 4)
_DEFINITE = _build_pool((THE, 6), (THE_PLURAL, 3), (THIS, 2), (THESE, 1))
_DEFINITE_OWNED = _DEFINITE + _spread(POSSESSIVES, 7) + _spread(POSSESSIVES_PLURAL, 3) + _spread(NAMES_GENITIVE, 4)
_KEIN = _build_pool((NOT_A, 8), (NOT_ANY_PLURAL, 4))
_UNCOUNTED = _build_pool((BARE, 12), (THE, 6), (THIS, 3)) + _spread(POSSESSIVES, 4)

FOR_COUNTED = Pools(
    anywhere=_COMMON + _build_pool((BARE_PLURAL, 6)) + NUMBERS,
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
    negated=_build_pool((NOT_ANY, 8), (THE, 3), (THIS, 1)),
)

PLACING = _build_pool((THE, 8), (A, 4), (THIS, 2))
PLACING_OWNED = PLACING + _spread(POSSESSIVES, 6) + _spread(NAMES_GENITIVE, 2)
EXISTING = _build_pool((A, 8), (BARE_PLURAL, 3), (MANY, 3), (SOME, 2), (NO, 3), (NO_PLURAL, 2)) + NUMBERS
