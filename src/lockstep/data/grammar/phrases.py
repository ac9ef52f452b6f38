"""Noun phrases, prepositional phrases and adverbials: both languages built together from the same lexemes."""

from typing import NamedTuple

from lockstep.data.grammar import words
from lockstep.data.grammar.determiners import (
    PLACING,
    PLACING_OWNED,
    POSSESSIVES,
    THE,
    THE_PLURAL,
    A,
    Determiner,
)
from lockstep.data.grammar.english import possessive
from lockstep.data.grammar.german import ACCUSATIVE, DATIVE, GENITIVE, MANY, NOMINATIVE, PLURAL, THIRD
from lockstep.data.grammar.lexicon import CLASSES, NOUN, OBJECT_PRONOUNS, PRONOUNS, Adjective, Noun, Pronoun
from lockstep.data.grammar.tables import Draw, pairs, pick, rows

Pair = tuple[str, str]
"""The same thing in English and in German."""

ADJECTIVE_SHARE = 0.4
GENITIVE_SHARE = 0.06


def noun_phrase(determiner: Determiner, adjective: Adjective | None, noun: Noun, case: int) -> Pair:
    """ "an old man" / "einen alten Mann"."""
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
        choices = [THE, THE, THE_PLURAL, *(POSSESSIVES if noun.owned else ())]
        for determiner in choices:
            english, german = noun_phrase(determiner, None, noun, GENITIVE)
            owners.append((possessive(english, determiner.plural), german))
    return tuple(owners)


OWNERS = _owners()


def owned_phrase(owner: Pair, plural: bool, adjective: Adjective | None, noun: Noun, case: int) -> Pair:
    """ "my sister's old car" / "das alte Auto meiner Schwester"."""
    article = THE_PLURAL if plural else THE
    english, german = noun_phrase(article, adjective, noun, case)
    return f"{owner[0]} {english[4:]}", f"{german} {owner[1]}"


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
    referent: str = "other"


def _pronoun_subject(pronoun: Pronoun) -> Subject:
    return Subject(*pronoun.subject, pronoun.agreement, pronoun.referent)


PRONOUN_SUBJECTS = tuple(_pronoun_subject(pronoun) for pronoun in PRONOUNS)
YOU = PRONOUN_SUBJECTS[1]
IT = Subject("it", "es", THIRD)
WHO = Subject("who", "wer", THIRD)
NAMES = tuple(words.WOMEN + words.MEN)


def draw_noun_subject(draw: Draw, noun: Noun) -> Subject:
    """A noun phrase in the nominative, at times with a possessor."""
    adjective = draw_adjective(draw, noun)
    if noun.owned and draw() < GENITIVE_SHARE:
        plural = draw() < 0.3
        return Subject(
            *owned_phrase(pick(draw, OWNERS), plural, adjective, noun, NOMINATIVE), MANY if plural else THIRD
        )
    determiner = pick(draw, noun.determiners)
    english, german = noun_phrase(determiner, adjective, noun, NOMINATIVE)
    return Subject(english, german, MANY if determiner.plural else THIRD)


def draw_subject(draw: Draw, nouns: tuple[Noun, ...], personal: bool) -> Subject:
    """A pronoun, a name or a noun phrase."""
    if personal:
        chance = draw()
        if chance < 0.3:
            return pick(draw, PRONOUN_SUBJECTS)
        if chance < 0.42:
            name = pick(draw, NAMES)
            return Subject(name, name, THIRD)
    return draw_noun_subject(draw, pick(draw, nouns))


class Preposition(NamedTuple):
    """A German preposition with its case and what it makes of the definite article, by slot."""

    german: str
    case: int
    with_the: tuple[str, ...]


_CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
}


def preposition(german: str, case: int) -> Preposition:
    """Knows the contractions (im, ins, zum) that German requires before an unstressed article."""
    merged = [f"{german} {word.strip()}" for word, _ in THE.forms]
    plurals_keep = len(merged) - 4
    forms = (f"{_CONTRACTIONS.get(form, form) if index < plurals_keep else form} " for index, form in enumerate(merged))
    return Preposition(german, case, tuple(forms))


def governed(prep: Preposition, determiner: Determiner, adjective: Adjective | None, noun: Noun) -> Pair:
    """A noun phrase with its German preposition; the English one belongs to the verb or the place and is not added."""
    english, german = noun_phrase(determiner, adjective, noun, prep.case)
    if determiner is THE:
        index = noun.gender * 4 + prep.case
        return english, prep.with_the[index] + german[len(THE.forms[index][0]) :]
    return english, f"{prep.german} {german}"


GOVERNORS = {
    (name, case): preposition(name, case)
    for name in ["in", "an", "auf", "zu", "von", "mit", "über", "nach", "vor", "hinter", "neben", "unter", "ohne"]
    for case in (ACCUSATIVE, DATIVE)
}
VON = GOVERNORS["von", DATIVE]
_DIRECTION_CASE = {"in": ACCUSATIVE, "auf": ACCUSATIVE, "zu": DATIVE}
_WHERE = {noun: GOVERNORS[noun.place[1], DATIVE] for noun in CLASSES["places"] if noun.place}
_WHITHER = {noun: GOVERNORS[noun.place[2], _DIRECTION_CASE[noun.place[2]]] for noun in CLASSES["places"] if noun.place}

CITIES_WHERE: tuple[Pair, ...] = tuple(
    (f" in {english}", f" in {german}") for english, german in pairs(words.CITIES)
) + tuple((f" in {row[0]}", f" {row[1]}") for row in rows(words.COUNTRIES_WITH_ARTICLE))
CITIES_WHITHER: tuple[Pair, ...] = tuple(
    (f" to {english}", f" nach {german}") for english, german in pairs(words.CITIES)
) + tuple((f" to {row[0]}", f" {row[2]}") for row in rows(words.COUNTRIES_WITH_ARTICLE))
HERE_AND_THERE = tuple((f" {english}", f" {german}") for english, german in pairs(words.HERE_AND_THERE))
RELATIONS = tuple((english, GOVERNORS[german, DATIVE]) for english, german in pairs(words.RELATIONS))


def place_phrase(determiner: Determiner, adjective: Adjective | None, noun: Noun) -> Pair:
    """ " in the old garden" / " im alten Garten"."""
    english, german = governed(_WHERE[noun], determiner, adjective, noun)
    return f" {noun.place[0] if noun.place else ''} {english}", f" {german}"


def goal_phrase(determiner: Determiner, adjective: Adjective | None, noun: Noun) -> Pair:
    """ " to the old station" / " zum alten Bahnhof"."""
    english, german = governed(_WHITHER[noun], determiner, adjective, noun)
    return f" to {english}", f" {german}"


def _placing(noun: Noun) -> tuple[Determiner, ...]:
    return PLACING_OWNED if noun.owned else PLACING


def draw_place(draw: Draw) -> Pair:
    """Where something happens."""
    chance = draw()
    if chance < 0.2:
        return pick(draw, CITIES_WHERE)
    if chance < 0.3:
        return pick(draw, HERE_AND_THERE)
    if chance < 0.45:
        english, relation = pick(draw, RELATIONS)
        building = pick(draw, CLASSES["buildings"])
        phrase = governed(relation, pick(draw, PLACING), draw_adjective(draw, building), building)
        return f" {english} {phrase[0]}", f" {phrase[1]}"
    noun = pick(draw, CLASSES["places"])
    return place_phrase(pick(draw, _placing(noun)), draw_adjective(draw, noun), noun)


def draw_goal(draw: Draw, goals: str) -> Pair:
    """Where somebody goes: a place, a city, or either of them."""
    if goals == "cities" or (goals == "anywhere" and draw() < 0.4):
        return pick(draw, CITIES_WHITHER)
    noun = pick(draw, CLASSES["places"])
    return goal_phrase(pick(draw, _placing(noun)), draw_adjective(draw, noun), noun)


MEANS = tuple(
    (f" by {noun.english[0]}", f" mit {noun_phrase(THE, None, noun, DATIVE)[1]}")
    for noun in (NOUN[name] for name in ["bus", "train", "car", "taxi", "bicycle"])
)
MANNERS = {
    name: tuple((f" {english}", f" {german}") for english, german in pairs(table))
    for name, table in words.MANNERS.items()
}
_COMPANY_NOUNS = CLASSES["relatives"]
_MIT = GOVERNORS["mit", DATIVE]
_OHNE = GOVERNORS["ohne", ACCUSATIVE]


def draw_company(draw: Draw) -> Pair:
    """With whom or without whom: a case contrast that English does not show."""
    english, prep = (" without", _OHNE) if draw() < 0.3 else (" with", _MIT)
    if draw() < 0.2:
        name = pick(draw, NAMES)
        return f"{english} {name}", f" {prep.german} {name}"
    noun = pick(draw, _COMPANY_NOUNS)
    determiner = A if draw() < 0.15 else pick(draw, noun.definite)
    phrase = governed(prep, determiner, draw_adjective(draw, noun), noun)
    return f"{english} {phrase[0]}", f" {phrase[1]}"


def draw_adverbial(draw: Draw, kind: str) -> Pair:
    """One adverbial of a kind that a verb allows."""
    if kind == "place":
        return draw_place(draw)
    if kind == "company":
        return draw_company(draw)
    if kind == "city":
        return pick(draw, CITIES_WHERE)
    return pick(draw, MEANS if kind == "means" else MANNERS[kind])


def draw_person(draw: Draw, case: int, subject: Subject) -> Pair:
    """A name, or a pronoun that does not mean the subject."""
    if draw() < 0.4:
        name = pick(draw, NAMES)
        return name, name
    pronoun = pick(draw, OBJECT_PRONOUNS[subject.referent])
    return pronoun.english, pronoun.cases[case]
