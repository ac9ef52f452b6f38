"""Noun phrases and subjects: both languages built together from the same lexemes."""

from typing import NamedTuple

from lockstep.demo_corpus import words
from lockstep.demo_corpus.determiners import POSSESSIVES, THE, THE_PLURAL, Determiner
from lockstep.demo_corpus.english import possessive
from lockstep.demo_corpus.german import GENITIVE, MANY, NOMINATIVE, PLURAL, THIRD
from lockstep.demo_corpus.lexicon import CLASSES, OBJECT_PRONOUNS, PRONOUNS, Adjective, Noun
from lockstep.demo_corpus.tables import Draw, Pair, cells, pick

ADJECTIVE_SHARE = 0.4
GENITIVE_SHARE = 0.06
PLURAL_SHARE = 0.3


def noun_phrase(determiner: Determiner, adjective: Adjective | None, noun: Noun, case: int) -> Pair:
    """The same phrase twice, the German one in the given case: "an old man", "einen alten Mann"."""
    plural = determiner.plural
    word, ending = determiner.forms[(PLURAL if plural else noun.gender) * 4 + case]
    english = determiner.english
    if adjective is None:
        if determiner.indefinite_article:
            english = noun.article
        return english + noun.english[plural], word + noun.german[plural * 4 + case]
    if determiner.indefinite_article:
        english = adjective.article
    return (
        f"{english}{adjective.english} {noun.english[plural]}",
        f"{word}{adjective.attributive[ending]} {noun.german[plural * 4 + case]}",
    )


def _owners() -> tuple[Pair, ...]:
    """Possessors in the genitive: the teacher's, my sister's, the students'."""
    owners: list[Pair] = []
    for noun in CLASSES["people"]:
        for determiner in (THE, THE, THE_PLURAL, *(POSSESSIVES if noun.owned else ())):
            english, german = noun_phrase(determiner, None, noun, GENITIVE)
            owners.append((possessive(english, determiner.plural), german))
    return tuple(owners)


OWNERS = _owners()


def owned_phrase(owner: Pair, plural: bool, adjective: Adjective | None, noun: Noun, case: int) -> Pair:
    """A phrase with a possessor, who changes sides: "my sister's old car", "das alte Auto meiner Schwester"."""
    english, german = noun_phrase(THE_PLURAL if plural else THE, adjective, noun, case)
    return f"{owner[0]} {english[len(THE.english) :]}", f"{german} {owner[1]}"


def draw_adjective(draw: Draw, noun: Noun) -> Adjective | None:
    """An adjective that fits the noun, or none."""
    if draw() < ADJECTIVE_SHARE and noun.adjectives:
        return pick(draw, noun.adjectives)
    return None


class Subject(NamedTuple):
    """Who a clause is about."""

    english: str
    german: str
    agreement: int
    referent: str = "noun"
    """Whom a pronoun means; nouns and names count as one."""


PRONOUN_SUBJECTS = tuple(Subject(*one.subject, one.agreement, one.referent) for one in PRONOUNS)
SPEAKER, YOU, HE, SHE, WE, THEY = PRONOUN_SUBJECTS
_SPOKEN_PRONOUNS = (SPEAKER, *PRONOUN_SUBJECTS)
"""The first person more often, because its verb forms belong to it alone."""
IT = Subject("it", "es", THIRD, "other")
WHO = Subject("who", "wer", THIRD, "other")
WOMEN = tuple(Subject(name, name, THIRD) for name in cells(words.WOMEN))
MEN = tuple(Subject(name, name, THIRD) for name in cells(words.MEN))
NAMES = cells(words.WOMEN) + cells(words.MEN)


def noun_subject(determiner: Determiner, adjective: Adjective | None, noun: Noun) -> Subject:
    """A noun phrase in the nominative."""
    english, german = noun_phrase(determiner, adjective, noun, NOMINATIVE)
    return Subject(english, german, MANY if determiner.plural else THIRD)


def draw_noun_subject(draw: Draw, noun: Noun) -> Subject:
    """A subject with or without an adjective, at times with a possessor."""
    adjective = draw_adjective(draw, noun)
    if noun.owned and noun.counted and draw() < GENITIVE_SHARE:
        plural = draw() < PLURAL_SHARE
        english, german = owned_phrase(pick(draw, OWNERS), plural, adjective, noun, NOMINATIVE)
        return Subject(english, german, MANY if plural else THIRD)
    return noun_subject(pick(draw, noun.subject_determiners), adjective, noun)


def draw_subject(draw: Draw, nouns: tuple[Noun, ...], personal: bool, negated: bool = False) -> Subject:
    """A noun phrase, or for somebody who can be named also a pronoun or a name.

    In a negated clause the noun is definite: "all men do not sleep" could mean two things.
    """
    if personal:
        chance = draw()
        if chance < 0.3:
            return pick(draw, _SPOKEN_PRONOUNS)
        if chance < 0.42:
            return pick(draw, WOMEN if chance < 0.36 else MEN)
    noun = pick(draw, nouns)
    if negated:
        return noun_subject(pick(draw, noun.definite), draw_adjective(draw, noun), noun)
    return draw_noun_subject(draw, noun)


def draw_person(draw: Draw, case: int, subject: Subject, marked: bool = False) -> Pair:
    """A pronoun that does not mean the subject, or a name.

    A name shows no case, so beside a noun one could not tell who does what; it needs a pronoun for a subject, or to be
    `marked` by a preposition.
    """
    if draw() < 0.4 and (marked or subject.referent != "noun"):
        name = pick(draw, NAMES)
        return name, name
    pronoun = pick(draw, OBJECT_PRONOUNS[subject.referent])
    return pronoun.english, pronoun.cases[case]
