"""Sentences that say what something is: how old, where, how much, and compared with what."""

from lockstep.demo_corpus import words
from lockstep.demo_corpus.adverbials import PREPOSITIONS, add_preposition, build_place, draw_place
from lockstep.demo_corpus.clauses import Clause, Complement, build_clause
from lockstep.demo_corpus.determiners import EXISTING, A
from lockstep.demo_corpus.german import ACCUSATIVE, DATIVE, MASCULINE, NEUTER, NOMINATIVE, THIRD
from lockstep.demo_corpus.lexicon import BECOME, CLASSES, NOUN, NOUNS, Adjective
from lockstep.demo_corpus.numbers import list_clock_times, spell_number
from lockstep.demo_corpus.phrases import (
    HE,
    IT,
    MEN,
    PRONOUN_SUBJECTS,
    SHE,
    WOMEN,
    build_noun_phrase,
    build_noun_subject,
    draw_adjective,
    draw_subject,
)
from lockstep.demo_corpus.sentences import put_adverbial_first, put_subject_first
from lockstep.demo_corpus.tables import Draw, Pair, add_spaces, pick, read_pairs
from lockstep.demo_corpus.tenses import COPULA, FUTURE, PAST, PERFECT, PRESENT
from lockstep.demo_corpus.times import FREQUENCIES, FUTURE_TIMES, NO_WORDS, PAST_TIMES, Setting

_PEOPLE = CLASSES["people"]
_PEOPLE_ADJECTIVES = _PEOPLE[0].adjectives
_DESCRIBED = tuple(noun for noun in NOUNS if noun.adjectives)
_PEERS = {noun.kind: tuple(other for other in _DESCRIBED if other.kind == noun.kind) for noun in _DESCRIBED}
_PROFESSIONS = tuple(noun for noun in _PEOPLE if noun.gender != NEUTER)
_PRICED = CLASSES["clothes"] + CLASSES["objects"] + CLASSES["food"] + CLASSES["texts"]
_SMALL = CLASSES["things"] + CLASSES["texts"] + CLASSES["clothes"] + CLASSES["pets"]
_FURNISHING = CLASSES["furniture"] + CLASSES["devices"] + CLASSES["containers"]
_SETTLEMENTS = (NOUN["city"], NOUN["village"], NOUN["island"])
_DEGREES = (NO_WORDS, NO_WORDS, (" very", " sehr"), (" too", " zu"))
_CONDITIONS = add_spaces(read_pairs(words.CONDITIONS))
_CLOCK = add_spaces(list_clock_times())
_ALREADY_OR_NOW = ((" already", " schon"), (" now", " jetzt"), NO_WORDS)
_ON_FURNITURE = (
    ("on", PREPOSITIONS["auf", DATIVE]),
    ("under", PREPOSITIONS["unter", DATIVE]),
    ("next to", PREPOSITIONS["neben", DATIVE]),
    ("behind", PREPOSITIONS["hinter", DATIVE]),
)


def _draw_predicate(draw: Draw, adjective: Adjective) -> Complement:
    """Draws a degree for the adjective, if it has degrees."""
    english, german = pick(draw, _DEGREES) if adjective.comparative else NO_WORDS
    return Complement(f"{english} {adjective.english}", "", f"{german} {adjective.german}")


def draw_quality(draw: Draw, setting: Setting, negated: bool = False) -> Clause:
    """Draws a clause with "be" and an adjective that fits its subject."""
    if draw() < 0.3:
        subject, adjectives = draw_subject(draw, _PEOPLE, True, negated), _PEOPLE_ADJECTIVES
    else:
        noun = pick(draw, _DESCRIBED)
        determiner = pick(draw, noun.definite if negated else noun.subject_determiners)
        subject, adjectives = build_noun_subject(determiner, None, noun), noun.adjectives
    tense, time, adverb = setting
    group = COPULA[tense][subject.agreement]
    complement = _draw_predicate(draw, pick(draw, adjectives))
    return build_clause(subject, group, complement, time=time, adverb=adverb, negated=negated)


def draw_condition(draw: Draw, tense: int) -> Clause:
    """It is cold."""
    english, german = pick(draw, _CONDITIONS)
    return build_clause(IT, COPULA[tense][THIRD], Complement(english, "", german))


def draw_hour(draw: Draw) -> Clause:
    """It is already half past three."""
    english, german = pick(draw, _CLOCK)
    complement = Complement(english, "", german)
    return build_clause(IT, COPULA[PRESENT][THIRD], complement, adverb=pick(draw, _ALREADY_OR_NOW))


def quality(draw: Draw) -> Pair:
    """The new car was very expensive last year."""
    chance = draw()
    if chance < 0.3:
        time = pick(draw, pick(draw, PAST_TIMES))
        if chance < 0.15:
            return put_adverbial_first(draw_quality(draw, (PAST, NO_WORDS, NO_WORDS)), time)
        return put_subject_first(draw_quality(draw, (PAST, time, NO_WORDS)))
    if chance < 0.45:
        return put_subject_first(draw_quality(draw, (PRESENT, NO_WORDS, pick(draw, FREQUENCIES))))
    return put_subject_first(draw_quality(draw, (PRESENT, NO_WORDS, NO_WORDS), negated=chance < 0.65))


def becoming(draw: Draw) -> Pair:
    """My uncle became very rich in 1987."""
    subject = draw_subject(draw, _PEOPLE, personal=True)
    complement = _draw_predicate(draw, pick(draw, _PEOPLE_ADJECTIVES))
    tense = pick(draw, (PAST, PAST, FUTURE, PERFECT))
    group = BECOME.groups[tense][subject.agreement]
    if tense == PERFECT:
        return put_subject_first(build_clause(subject, group, complement))
    time = pick(draw, pick(draw, PAST_TIMES if tense == PAST else FUTURE_TIMES))
    if draw() < 0.5:
        return put_adverbial_first(build_clause(subject, group, complement), time)
    return put_subject_first(build_clause(subject, group, complement, time=time))


def comparison(draw: Draw) -> Pair:
    """This horse is stronger than the old dog. The soup is not as good as the salad."""
    noun = pick(draw, _DESCRIBED)
    other = pick(draw, _PEERS[noun.kind])
    adjective = pick(draw, noun.adjectives)
    if noun.kind == "people" and draw() < 0.3:
        subject = pick(draw, PRONOUN_SUBJECTS)
    else:
        subject = build_noun_subject(pick(draw, noun.definite), None, noun)
    than, als = build_noun_phrase(pick(draw, other.definite), draw_adjective(draw, other), other, NOMINATIVE)
    group = COPULA[PAST if draw() < 0.3 else PRESENT][subject.agreement]
    chance = draw()
    if chance < 0.7 and adjective.comparative:
        more, mehr = adjective.comparative
        return put_subject_first(
            build_clause(subject, group, Complement(f" {more} than {than}", "", f" {mehr} als {als}"))
        )
    complement = Complement(f" as {adjective.english} as {than}", "", f" so {adjective.german} wie {als}")
    return put_subject_first(build_clause(subject, group, complement, negated=chance < 0.85))


def profession(draw: Draw) -> Pair:
    """Peter was a famous musician: the predicate stands in the nominative, and fits the person."""
    noun = pick(draw, _PROFESSIONS)
    somebody, named = (HE, MEN) if noun.gender == MASCULINE else (SHE, WOMEN)
    subject = somebody if draw() < 0.2 else pick(draw, named)
    english, german = build_noun_phrase(A, pick(draw, noun.adjectives), noun, NOMINATIVE)
    group = COPULA[pick(draw, (PRESENT, PAST, FUTURE))][THIRD]
    return put_subject_first(build_clause(subject, group, Complement(f" {english}", "", f" {german}")))


def _draw_number(draw: Draw) -> Pair:
    number = 2 + int(draw() * 98)
    return spell_number(number) if draw() < 0.6 else (str(number), str(number))


def age(draw: Draw) -> Pair:
    """My grandmother is ninety-one years old."""
    subject = draw_subject(draw, _PEOPLE, personal=True)
    years, jahre = _draw_number(draw)
    group = COPULA[PRESENT if draw() < 0.7 else PAST][subject.agreement]
    return put_subject_first(build_clause(subject, group, Complement(f" {years} years old", "", f" {jahre} Jahre alt")))


def price(draw: Draw) -> Pair:
    """These shoes cost 45 euros."""
    noun = pick(draw, _PRICED)
    determiner = pick(draw, noun.definite)
    english, german = build_noun_phrase(determiner, draw_adjective(draw, noun), noun, NOMINATIVE)
    euros, euro = _draw_number(draw)
    costs, kostet = ("cost", "kosten") if determiner.plural else ("costs", "kostet")
    return f"{english} {costs} {euros} euros.", f"{german} {kostet} {euro} Euro."


def whereabouts(draw: Draw) -> Pair:
    """My uncle is in Berlin. The key is under the old sofa."""
    negated = draw() < 0.2
    if draw() < 0.4:
        subject = draw_subject(draw, _PEOPLE, True, negated)
        english, german = draw_place(draw)
    else:
        noun = pick(draw, _SMALL)
        subject = build_noun_subject(pick(draw, noun.definite), draw_adjective(draw, noun), noun)
        where, preposition = pick(draw, _ON_FURNITURE)
        spot = pick(draw, CLASSES["furniture"])
        phrase = add_preposition(preposition, pick(draw, spot.definite), draw_adjective(draw, spot), spot)
        english, german = f" {where} {phrase[0]}", f" {phrase[1]}"
    group = COPULA[PRESENT if draw() < 0.6 else PAST][subject.agreement]
    return put_subject_first(build_clause(subject, group, Complement(english, "", german), negated=negated))


def existence(draw: Draw) -> Pair:
    """There is no bakery in the village: "es gibt" governs the accusative, and German begins with the place."""
    inside = draw() < 0.5
    where = pick(draw, CLASSES["rooms"] if inside else _SETTLEMENTS)
    noun = pick(draw, _FURNISHING if inside else CLASSES["buildings"])
    determiner = pick(draw, EXISTING)
    english, german = build_noun_phrase(determiner, draw_adjective(draw, noun), noun, ACCUSATIVE)
    place, ort = build_place(pick(draw, where.definite), draw_adjective(draw, where), where)
    is_one, are_many, gibt = ("was", "were", "gab") if draw() < 0.3 else ("is", "are", "gibt")
    there_is = f"there {are_many if determiner.plural else is_one} {english}"
    order = f"{place[1:]}, {there_is}." if draw() < 0.5 else f"{there_is}{place}."
    return order, f"{ort[1:]} {gibt} es {german}."
