"""Builds noun phrases and subjects in both languages from the same lexemes."""

from typing import NamedTuple

from lockstep.demo_corpus import words
from lockstep.demo_corpus.determiners import POSSESSIVES, THE, THE_PLURAL, Determiner
from lockstep.demo_corpus.english import add_possessive
from lockstep.demo_corpus.german import GENITIVE, MANY, NOMINATIVE, PLURAL, THIRD
from lockstep.demo_corpus.lexicon import CLASSES, OBJECT_PRONOUNS, PRONOUNS, Adjective, Noun
from lockstep.demo_corpus.tables import Draw, Pair, pick, read_cells

ADJECTIVE_SHARE = 0.4
GENITIVE_SHARE = 0.06
PLURAL_SHARE = 0.3


def build_noun_phrase(determiner: Determiner, adjective: Adjective | None, noun: Noun, case: int) -> Pair:
    """Builds a phrase in both languages, the German one in the given case: "an old man", "einen alten Mann"."""
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


def _list_owners() -> tuple[Pair, ...]:
    """Lists possessors in the genitive: the teacher's, my sister's, the students'."""
    owners: list[Pair] = []
    for noun in CLASSES["people"]:
        for determiner in (THE, THE, THE_PLURAL, *(POSSESSIVES if noun.owned else ())):
            english, german = build_noun_phrase(determiner, None, noun, GENITIVE)
            owners.append((add_possessive(english, determiner.plural), german))
    return tuple(owners)


OWNERS = _list_owners()


def build_owned_phrase(owner: Pair, plural: bool, adjective: Adjective | None, noun: Noun, case: int) -> Pair:
    """Builds a phrase with a possessor: "my sister's old car", "das alte Auto meiner Schwester"."""
    english, german = build_noun_phrase(THE_PLURAL if plural else THE, adjective, noun, case)
    return f"{owner[0]} {english[len(THE.english) :]}", f"{german} {owner[1]}"


def draw_adjective(draw: Draw, noun: Noun) -> Adjective | None:
    """Draws an adjective that fits the noun, or None."""
    if draw() < ADJECTIVE_SHARE and noun.adjectives:
        return pick(draw, noun.adjectives)
    return None


class Subject(NamedTuple):
    """The subject of a clause."""

    english: str
    german: str
    agreement: int
    referent: str = "noun"
    """Whom a pronoun means. All nouns and names have the same value."""


PRONOUN_SUBJECTS = tuple(Subject(*one.subject, one.agreement, one.referent) for one in PRONOUNS)
SPEAKER, YOU, HE, SHE, WE, THEY = PRONOUN_SUBJECTS
_SPOKEN_PRONOUNS = (SPEAKER, *PRONOUN_SUBJECTS)
"""The first person occurs twice, because no other person shares its verb forms."""
IT = Subject("it", "es", THIRD, "other")
WHO = Subject("who", "wer", THIRD, "other")
WOMEN = tuple(Subject(name, name, THIRD) for name in read_cells(words.WOMEN))
MEN = tuple(Subject(name, name, THIRD) for name in read_cells(words.MEN))
NAMES = read_cells(words.WOMEN) + read_cells(words.MEN)


def build_noun_subject(determiner: Determiner, adjective: Adjective | None, noun: Noun) -> Subject:
    """Builds a noun phrase in the nominative."""
    english, german = build_noun_phrase(determiner, adjective, noun, NOMINATIVE)
    return Subject(english, german, MANY if determiner.plural else THIRD)


def draw_noun_subject(draw: Draw, noun: Noun) -> Subject:
    """Draws a subject with or without an adjective, sometimes with a possessor."""
    adjective = draw_adjective(draw, noun)
    if noun.owned and noun.counted and draw() < GENITIVE_SHARE:
        plural = draw() < PLURAL_SHARE
        english, german = build_owned_phrase(pick(draw, OWNERS), plural, adjective, noun, NOMINATIVE)
        return Subject(english, german, MANY if plural else THIRD)
    return build_noun_subject(pick(draw, noun.subject_determiners), adjective, noun)


def draw_subject(draw: Draw, nouns: tuple[Noun, ...], personal: bool, negated: bool = False) -> Subject:
    """Draws a noun phrase, or if the subject is a person possibly a pronoun or a name.

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
        return build_noun_subject(pick(draw, noun.definite), draw_adjective(draw, noun), noun)
    return draw_noun_subject(draw, noun)


def draw_person(draw: Draw, case: int, subject: Subject, marked: bool = False) -> Pair:
    """Draws a pronoun that does not mean the subject, or a name.

    A name shows no case: beside a noun it is not clear who does what. A name is drawn only if the subject is a pronoun,
    or if a preposition precedes the name (`marked`).
    """
    if draw() < 0.4 and (marked or subject.referent != "noun"):
        name = pick(draw, NAMES)
        return name, name
    pronoun = pick(draw, OBJECT_PRONOUNS[subject.referent])
    return pronoun.english, pronoun.cases[case]
