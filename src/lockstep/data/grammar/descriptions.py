"""Sentences that say what something is: how old, where, how much, and compared with what."""

from lockstep.data.grammar import words
from lockstep.data.grammar.clauses import Clause, Complement, build_clause
from lockstep.data.grammar.determiners import EXISTING, A
from lockstep.data.grammar.german import ACCUSATIVE, DATIVE, FEMININE, MANY, MASCULINE, NOMINATIVE, THIRD
from lockstep.data.grammar.lexicon import BECOME, CLASSES, NOUNS, Adjective
from lockstep.data.grammar.numbers import clock_times, number_words
from lockstep.data.grammar.phrases import (
    GOVERNORS,
    IT,
    PRONOUN_SUBJECTS,
    Pair,
    Subject,
    draw_adjective,
    draw_place,
    draw_subject,
    governed,
    noun_phrase,
    place_phrase,
)
from lockstep.data.grammar.sentences import fronted, plain
from lockstep.data.grammar.tables import Draw, pairs, pick
from lockstep.data.grammar.tenses import COPULA, FUTURE, PAST, PERFECT, PRESENT
from lockstep.data.grammar.times import FREQUENCIES, FUTURE_TIMES, UNSAID, PAST_TIMES, Setting

_DESCRIBED = tuple(noun for noun in NOUNS if noun.adjectives)
_PEOPLE_ADJECTIVES = CLASSES["people"][0].adjectives
_DEGREES = (("", ""), ("", ""), (" very", " sehr"), (" too", " zu"))
_CONDITIONS = tuple((f" {english}", f" {german}") for english, german in pairs(words.CONDITIONS))
_WOMEN = (PRONOUN_SUBJECTS[3], *(Subject(name, name, THIRD) for name in words.WOMEN))
_MEN = (PRONOUN_SUBJECTS[2], *(Subject(name, name, THIRD) for name in words.MEN))


def draw_described(draw: Draw) -> tuple[Subject, tuple[Adjective, ...]]:
    """Somebody or something, and the adjectives that can be said of it."""
    if draw() < 0.3:
        return draw_subject(draw, CLASSES["people"], personal=True), _PEOPLE_ADJECTIVES
    noun = pick(draw, _DESCRIBED)
    determiner = pick(draw, noun.determiners)
    phrase = noun_phrase(determiner, None, noun, NOMINATIVE)
    return Subject(*phrase, MANY if determiner.plural else THIRD), noun.adjectives


def _predicate(draw: Draw, adjective: Adjective) -> Complement:
    english, german = pick(draw, _DEGREES) if adjective.comparative else UNSAID
    return Complement(f"{english} {adjective.english}", "", f"{german} {adjective.german}")


def draw_quality(draw: Draw, setting: Setting, negated: bool = False) -> Clause:
    """A clause with "be" and an adjective."""
    subject, adjectives = draw_described(draw)
    tense, time, adverb = setting
    complement = _predicate(draw, pick(draw, adjectives))
    return build_clause(
        subject, COPULA[tense][subject.agreement], complement, time=time, adverb=adverb, negated=negated
    )


def draw_condition(draw: Draw, tense: int) -> Clause:
    """It is cold."""
    english, german = pick(draw, _CONDITIONS)
    return build_clause(IT, COPULA[tense][THIRD], Complement(english, "", german))


def quality(draw: Draw) -> Pair:
    """The new car was very expensive last year."""
    chance = draw()
    if chance < 0.3:
        time = pick(draw, pick(draw, PAST_TIMES))
        if draw() < 0.5:
            return fronted(draw_quality(draw, (PAST, UNSAID, UNSAID)), time)
        return plain(draw_quality(draw, (PAST, time, UNSAID)))
    if chance < 0.45:
        return plain(draw_quality(draw, (PRESENT, UNSAID, pick(draw, FREQUENCIES))))
    return plain(draw_quality(draw, (PRESENT, UNSAID, UNSAID), negated=draw() < 0.35))


def becoming(draw: Draw) -> Pair:
    """My uncle became very rich in 1987."""
    subject = draw_subject(draw, CLASSES["people"], personal=True)
    complement = _predicate(draw, pick(draw, _PEOPLE_ADJECTIVES))
    tense = pick(draw, (PAST, PAST, FUTURE, PERFECT))
    group = BECOME.groups[tense][subject.agreement]
    if tense == PERFECT:
        return plain(build_clause(subject, group, complement))
    time = pick(draw, pick(draw, PAST_TIMES if tense == PAST else FUTURE_TIMES))
    if draw() < 0.5:
        return fronted(build_clause(subject, group, complement), time)
    return plain(build_clause(subject, group, complement, time=time))


def comparison(draw: Draw) -> Pair:
    """This horse is faster than the old dog."""
    noun = pick(draw, _DESCRIBED)
    peers = _PEERS[noun.kind]
    adjective = pick(draw, _GRADABLE[noun.kind])
    determiner = pick(draw, noun.definite)
    subject = Subject(*noun_phrase(determiner, None, noun, NOMINATIVE), MANY if determiner.plural else THIRD)
    if noun.kind == "people" and draw() < 0.3:
        subject = pick(draw, PRONOUN_SUBJECTS)
    other = pick(draw, peers)
    than, als = noun_phrase(pick(draw, other.definite), draw_adjective(draw, other), other, NOMINATIVE)
    group = COPULA[PAST if draw() < 0.3 else PRESENT][subject.agreement]
    chance = draw()
    if chance < 0.6 and adjective.comparative:
        more, mehr = adjective.comparative
        return plain(build_clause(subject, group, Complement(f" {more} than {than}", "", f" {mehr} als {als}")))
    complement = Complement(f" as {adjective.english} as {than}", "", f" so {adjective.german} wie {als}")
    return plain(build_clause(subject, group, complement, negated=chance < 0.8))


_PEERS = {noun.kind: tuple(other for other in _DESCRIBED if other.kind == noun.kind) for noun in _DESCRIBED}
_GRADABLE = {kind: tuple(one for one in nouns[0].adjectives if one.comparative) for kind, nouns in _PEERS.items()}


def profession(draw: Draw) -> Pair:
    """Peter was a famous musician: the predicate stands in the nominative, and fits the person."""
    noun = pick(draw, _PROFESSIONS)
    subject = pick(draw, _MEN if noun.gender == MASCULINE else _WOMEN)
    adjective = pick(draw, noun.adjectives)
    english, german = noun_phrase(A, adjective, noun, NOMINATIVE)
    tense = pick(draw, (PRESENT, PAST, FUTURE))
    complement = Complement(f" {english}", "", f" {german}")
    return plain(build_clause(subject, COPULA[tense][THIRD], complement))


_PROFESSIONS = tuple(noun for noun in CLASSES["people"] if noun.gender in (MASCULINE, FEMININE))


def age(draw: Draw) -> Pair:
    """My grandmother is ninety-one years old."""
    subject = draw_subject(draw, CLASSES["people"], personal=True)
    number = 2 + int(draw() * 98)
    years, jahre = number_words(number) if draw() < 0.7 else (str(number), str(number))
    group = COPULA[PRESENT if draw() < 0.7 else PAST][subject.agreement]
    return plain(build_clause(subject, group, Complement(f" {years} years old", "", f" {jahre} Jahre alt")))


def price(draw: Draw) -> Pair:
    """These shoes cost 45 euros."""
    noun = pick(draw, _PRICED)
    determiner = pick(draw, noun.definite)
    english, german = noun_phrase(determiner, draw_adjective(draw, noun), noun, NOMINATIVE)
    number = 2 + int(draw() * 98)
    euros, euro = number_words(number) if draw() < 0.6 else (str(number), str(number))
    costs, kostet = ("cost", "kosten") if determiner.plural else ("costs", "kostet")
    return f"{english} {costs} {euros} euros.", f"{german} {kostet} {euro} Euro."


_PRICED = CLASSES["clothes"] + CLASSES["objects"] + CLASSES["food"] + CLASSES["texts"]
_CLOCK = tuple((f" {english}", f" {german}") for english, german in clock_times())


def draw_hour(draw: Draw) -> Clause:
    """It is half past three."""
    english, german = pick(draw, _CLOCK)
    adverb = pick(draw, ((" already", " schon"), (" now", " jetzt"), UNSAID))
    return build_clause(IT, COPULA[PRESENT][THIRD], Complement(english, "", german), adverb=adverb)


_ON_FURNITURE = tuple(
    (english, GOVERNORS[german, DATIVE])
    for english, german in (("on", "auf"), ("under", "unter"), ("next to", "neben"), ("behind", "hinter"))
)
_SMALL = CLASSES["things"] + CLASSES["texts"] + CLASSES["clothes"] + CLASSES["pets"]


def whereabouts(draw: Draw) -> Pair:
    """The key is under the old sofa."""
    if draw() < 0.4:
        subject = draw_subject(draw, CLASSES["people"], personal=True)
        english, german = draw_place(draw)
    else:
        noun = pick(draw, _SMALL)
        determiner = pick(draw, noun.definite)
        phrase = noun_phrase(determiner, draw_adjective(draw, noun), noun, NOMINATIVE)
        subject = Subject(*phrase, MANY if determiner.plural else THIRD)
        where, relation = pick(draw, _ON_FURNITURE)
        support = pick(draw, CLASSES["furniture"])
        spot = governed(relation, pick(draw, support.definite), draw_adjective(draw, support), support)
        english, german = f" {where} {spot[0]}", f" {spot[1]}"
    group = COPULA[PRESENT if draw() < 0.6 else PAST][subject.agreement]
    return plain(build_clause(subject, group, Complement(english, "", german), negated=draw() < 0.2))


def existence(draw: Draw) -> Pair:
    """There is no bakery in the village: the German "es gibt" governs the accusative."""
    if draw() < 0.5:
        where, nouns = pick(draw, CLASSES["rooms"]), _FURNISHING
    else:
        where, nouns = pick(draw, _SETTLEMENTS), CLASSES["buildings"]
    noun = pick(draw, nouns)
    determiner = pick(draw, EXISTING)
    english, german = noun_phrase(determiner, draw_adjective(draw, noun), noun, ACCUSATIVE)
    place, ort = place_phrase(pick(draw, where.definite), draw_adjective(draw, where), where)
    past = draw() < 0.3
    verb = ("was", "were") if past else ("is", "are")
    there_is = f"there {verb[determiner.plural]} {english}"
    order = f"{place[1:]}, {there_is}." if draw() < 0.5 else f"{there_is}{place}."
    return order, f"{ort[1:]} {'gab' if past else 'gibt'} es {german}."


_FURNISHING = CLASSES["furniture"] + CLASSES["devices"] + CLASSES["containers"]
_SETTLEMENTS = tuple(noun for noun in CLASSES["landscapes"] if noun.english[0] in ("city", "village", "island"))
