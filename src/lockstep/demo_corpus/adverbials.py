"""Prepositional phrases and adverbs: where, where to, with whom, by what means and how."""

from typing import NamedTuple

from lockstep.demo_corpus import words
from lockstep.demo_corpus.determiners import BARE, PLACING, PLACING_OWNED, THE, A, Determiner
from lockstep.demo_corpus.german import ACCUSATIVE, DATIVE
from lockstep.demo_corpus.lexicon import CLASSES, NOUN, Adjective, Noun
from lockstep.demo_corpus.phrases import NAMES, build_noun_phrase, draw_adjective
from lockstep.demo_corpus.tables import Draw, Pair, add_spaces, pick, read_pairs, read_rows


class Preposition(NamedTuple):
    """A German preposition with its case and, by slot, its form together with the definite article (im, zum)."""

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


def _preposition(german: str, case: int) -> Preposition:
    """Builds a preposition with the contractions that German requires before an unstressed article."""
    merged = (f"{german} {word.strip()}" for word, _ in THE.forms)
    return Preposition(german, case, tuple(f"{_CONTRACTIONS.get(form, form)} " for form in merged))


_BOTH_CASES = ("in", "an", "auf", "über", "vor", "hinter", "neben", "unter")
_DATIVE_ONLY = ("zu", "von", "mit", "nach")
_ACCUSATIVE_ONLY = ("ohne",)
PREPOSITIONS = {
    **{(name, DATIVE): _preposition(name, DATIVE) for name in _BOTH_CASES + _DATIVE_ONLY},
    **{(name, ACCUSATIVE): _preposition(name, ACCUSATIVE) for name in _BOTH_CASES + _ACCUSATIVE_ONLY},
}


def add_preposition(preposition: Preposition, determiner: Determiner, adjective: Adjective | None, noun: Noun) -> Pair:
    """Builds a noun phrase with its German preposition. The English one is not added: it belongs to the verb or place."""
    english, german = build_noun_phrase(determiner, adjective, noun, preposition.case)
    if determiner is THE:
        slot = noun.gender * 4 + preposition.case
        return english, preposition.with_the[slot] + german[len(THE.forms[slot][0]) :]
    return english, f"{preposition.german} {german}"


_TOWARDS = {
    "in": PREPOSITIONS["in", ACCUSATIVE],
    "auf": PREPOSITIONS["auf", ACCUSATIVE],
    "zu": PREPOSITIONS["zu", DATIVE],
}
_PLACES = {noun: noun.place for noun in CLASSES["places"] if noun.place}
_WHERE = {noun: (english, PREPOSITIONS[at, DATIVE]) for noun, (english, at, _) in _PLACES.items()}
_WHITHER = {noun: _TOWARDS[to] for noun, (_, _, to) in _PLACES.items()}

_CITIES = read_pairs(words.CITIES)
_COUNTRIES = read_rows(words.COUNTRIES_WITH_ARTICLE)
CITIES_WHERE: tuple[Pair, ...] = (
    *((f" in {english}", f" in {german}") for english, german in _CITIES),
    *((f" in {english}", f" {german}") for english, german, _ in _COUNTRIES),
)
CITIES_WHITHER: tuple[Pair, ...] = (
    *((f" to {english}", f" nach {german}") for english, german in _CITIES),
    *((f" to {english}", f" {german}") for english, _, german in _COUNTRIES),
)
HERE_AND_THERE = add_spaces(read_pairs(words.HERE_AND_THERE))
RELATIONS = tuple((english, PREPOSITIONS[german, DATIVE]) for english, german in read_pairs(words.RELATIONS))


def build_place(determiner: Determiner, adjective: Adjective | None, noun: Noun) -> Pair:
    """Builds a place with a space in front: " in the old garden", " im alten Garten"."""
    at, preposition = _WHERE[noun]
    english, german = add_preposition(preposition, determiner, adjective, noun)
    return f" {at} {english}", f" {german}"


def build_goal(determiner: Determiner, adjective: Adjective | None, noun: Noun) -> Pair:
    """Builds a goal with a space in front: " to the old station", " zum alten Bahnhof"."""
    english, german = add_preposition(_WHITHER[noun], determiner, adjective, noun)
    return f" to {english}", f" {german}"


def _choose_placing(noun: Noun) -> tuple[Determiner, ...]:
    return PLACING_OWNED if noun.owned else PLACING


def draw_place(draw: Draw) -> Pair:
    """Draws where something happens."""
    chance = draw()
    if chance < 0.2:
        return pick(draw, CITIES_WHERE)
    if chance < 0.3:
        return pick(draw, HERE_AND_THERE)
    if chance < 0.45:
        relation, preposition = pick(draw, RELATIONS)
        building = pick(draw, CLASSES["buildings"])
        english, german = add_preposition(preposition, pick(draw, PLACING), draw_adjective(draw, building), building)
        return f" {relation} {english}", f" {german}"
    noun = pick(draw, CLASSES["places"])
    return build_place(pick(draw, _choose_placing(noun)), draw_adjective(draw, noun), noun)


def draw_goal(draw: Draw, goals: str) -> Pair:
    """Draws where somebody goes: to a city, or to a place of this class."""
    if goals == "cities" or (goals == "outdoors" and draw() < 0.4):
        return pick(draw, CITIES_WHITHER)
    noun = pick(draw, CLASSES[goals])
    return build_goal(pick(draw, _choose_placing(noun)), draw_adjective(draw, noun), noun)


MEANS = tuple(
    (f" by {noun.english[0]}", f" mit {build_noun_phrase(THE, None, noun, DATIVE)[1]}")
    for noun in (NOUN["bus"], NOUN["train"], NOUN["car"], NOUN["taxi"], NOUN["bicycle"])
)
MANNERS = {name: add_spaces(read_pairs(table)) for name, table in words.MANNERS.items()}
_MIT = PREPOSITIONS["mit", DATIVE]
_OHNE = PREPOSITIONS["ohne", ACCUSATIVE]


def draw_company(draw: Draw) -> Pair:
    """Draws with whom or without whom. The two German prepositions govern different cases."""
    with_whom, preposition = (" without", _OHNE) if draw() < 0.3 else (" with", _MIT)
    if draw() < 0.2:
        name = pick(draw, NAMES)
        return f"{with_whom} {name}", f" {preposition.german} {name}"
    noun = pick(draw, CLASSES["relatives"])
    determiner = A if draw() < 0.15 else pick(draw, noun.definite)
    english, german = add_preposition(preposition, determiner, draw_adjective(draw, noun), noun)
    return f"{with_whom} {english}", f" {german}"


def draw_side_dish(draw: Draw) -> Pair:
    """Draws a side dish. Without an article the adjective shows the case: mit kaltem Bier."""
    with_what, preposition = (" without", _OHNE) if draw() < 0.3 else (" with", _MIT)
    noun = pick(draw, CLASSES["uncounted"])
    english, german = add_preposition(preposition, BARE, draw_adjective(draw, noun), noun)
    return f"{with_what} {english}", f" {german}"


def draw_adverbial(draw: Draw, kind: str) -> Pair:
    """Draws an adverbial of the given kind."""
    if kind == "place":
        return draw_place(draw)
    if kind == "company":
        return draw_company(draw)
    if kind == "dish":
        return draw_side_dish(draw)
    if kind == "city":
        return pick(draw, CITIES_WHERE)
    return pick(draw, MEANS if kind == "means" else MANNERS[kind])
