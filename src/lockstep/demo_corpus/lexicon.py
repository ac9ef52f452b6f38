"""The lexicon: adjectives, nouns, verbs and pronouns in both languages, and the pools that they are drawn from."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lockstep.demo_corpus import determiners, english, german, nouns, verbs, words
from lockstep.demo_corpus.determiners import Determiner
from lockstep.demo_corpus.german import ACCUSATIVE, DATIVE
from lockstep.demo_corpus.tables import read_rows
from lockstep.demo_corpus.tenses import VerbGroup, build_groups


@dataclass(frozen=True, eq=False, slots=True)
class Adjective:
    """One adjective; `attributive` holds its German forms in the order of `german.ENDINGS`."""

    english: str
    article: str
    german: str
    attributive: tuple[str, ...]
    comparative: tuple[str, str] | None
    kinds: frozenset[str]


@dataclass(frozen=True, eq=False, slots=True)
class Noun:
    """One noun with everything that can be combined with it."""

    english: tuple[str, str]
    article: str
    gender: int
    german: tuple[str, ...]
    """Four singular cases, then four plural ones."""
    kind: str
    """Nouns are compared with nouns of the same kind. The kind "people" marks persons."""
    adjectives: tuple[Adjective, ...]
    determiners: tuple[Determiner, ...]
    subject_determiners: tuple[Determiner, ...]
    definite: tuple[Determiner, ...]
    negated: tuple[Determiner, ...]
    owned: bool
    """Can "my" precede it?"""
    counted: bool
    """Does it have a plural?"""
    place: tuple[str, str, str] | None = None
    """English preposition, German preposition of place, German preposition of direction."""


@dataclass(frozen=True, eq=False, slots=True)
class Verb:
    """One verb in one construction."""

    english: english.Inflection
    german: german.Conjugation
    frame: str
    state: bool
    groups: tuple[tuple[VerbGroup, ...], ...]
    subjects: tuple[Noun, ...]
    intended: bool
    personal: bool
    """Can persons do it, and therefore pronouns and names?"""
    objects: tuple[Noun, ...] = ()
    object_people: float = 0.0
    """The share of persons among its objects, which pronouns and names can replace."""
    phrasal: bool = False
    """Does English put a pronoun before the particle ("pick him up")? Such a verb gets no pronoun as its object."""
    case: int = ACCUSATIVE
    preposition: str = ""
    goals: str = ""
    adverbials: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Pronoun:
    """One personal pronoun."""

    subject: tuple[str, str]
    english: str
    cases: tuple[str, str, str]
    """German nominative, accusative and dative."""
    agreement: int
    referent: str


def _build_adjective(row: list[str]) -> Adjective:
    word, entry, more, mehr, kinds = row
    base, _, stem = entry.partition("/")
    stem = stem or base
    comparative = None
    if more != "x":
        comparative = (english.build_comparative(word) if more == "-" else more, f"{stem}er" if mehr == "-" else mehr)
    attributive = tuple(stem + ending for ending in german.ENDINGS)
    return Adjective(word, english.choose_article(word), base, attributive, comparative, frozenset(kinds.split()))


ADJECTIVES = tuple(_build_adjective(row) for row in read_rows(words.ADJECTIVES))


def _build_noun(row: list[str], kinds: tuple[str, ...], owned: bool) -> Noun:
    singular, _, irregular = row[0].partition("/")
    article, head, *measured = row[1].split()
    genitive = row[2].strip("-")
    gender = german.ARTICLES[article]
    uncounted = row[3] == "-"
    forms = german.decline(head, gender, genitive, head if uncounted else row[3])
    countable = determiners.FOR_OWNED if owned else determiners.FOR_COUNTED
    pools = determiners.FOR_UNCOUNTED if uncounted else countable
    return Noun(
        english=(singular, irregular or english.pluralize(singular)),
        article=english.choose_article(singular),
        gender=gender,
        german=tuple(" ".join([form, *measured]) for form in forms),
        kind=kinds[0],
        adjectives=tuple(one for one in ADJECTIVES if not one.kinds.isdisjoint(kinds)),
        determiners=pools.anywhere,
        subject_determiners=pools.subject,
        definite=pools.definite,
        negated=pools.negated,
        owned=owned,
        counted=not uncounted,
        place=(row[4], row[5], row[6]) if len(row) > 4 else None,
    )


def _build_nouns(table: str, *kinds: str, owned: bool = True) -> tuple[Noun, ...]:
    return tuple(_build_noun(row, kinds, owned) for row in read_rows(table))


def _build_classes() -> dict[str, tuple[Noun, ...]]:
    """Returns nouns by the class names that the verb tables use."""
    base = {
        "relatives": _build_nouns(nouns.RELATIVES, "people"),
        "strangers": _build_nouns(nouns.PEOPLE, "people", owned=False),
        "pets": _build_nouns(nouns.PETS, "animals"),
        "wild": _build_nouns(nouns.WILD_ANIMALS, "animals", owned=False),
        "texts": _build_nouns(nouns.TEXTS, "texts"),
        "food": _build_nouns(nouns.FOOD, "food"),
        "groceries": _build_nouns(nouns.GROCERIES, "drinks"),
        "drinks": _build_nouns(nouns.DRINKS, "drinks"),
        "servings": _build_nouns(nouns.SERVINGS, "servings", owned=False),
        "clothes": _build_nouns(nouns.CLOTHES, "clothes"),
        "vehicles": _build_nouns(nouns.VEHICLES, "vehicles", "objects"),
        "devices": _build_nouns(nouns.DEVICES, "objects"),
        "containers": _build_nouns(nouns.CONTAINERS, "objects"),
        "things": _build_nouns(nouns.THINGS, "objects"),
        "furniture": _build_nouns(nouns.FURNITURE, "objects"),
        "events": _build_nouns(nouns.EVENTS, "events"),
        "rooms": _build_nouns(nouns.ROOMS, "places"),
        "buildings": _build_nouns(nouns.BUILDINGS, "places", owned=False),
        "landscapes": _build_nouns(nouns.LANDSCAPES, "places", owned=False),
    }

    def join(*names: str) -> tuple[Noun, ...]:
        return tuple(noun for name in names for noun in base[name])

    unions = {
        "people": join("relatives", "strangers"),
        "animals": join("pets", "wild"),
        "creatures": join("relatives", "strangers", "pets", "wild"),
        "objects": join("vehicles", "devices", "containers", "things", "furniture"),
        "places": join("rooms", "buildings", "landscapes"),
        "outdoors": join("buildings", "landscapes"),
        "uncounted": join("groceries", "drinks"),
        "writings": tuple(noun for noun in base["texts"] if noun.english[0] != "newspaper"),
    }
    return base | unions


CLASSES = _build_classes()
NOUNS = tuple(dict.fromkeys(noun for members in CLASSES.values() for noun in members))
NOUN = {noun.english[0]: noun for noun in NOUNS}


def _resolve(names: str) -> tuple[Noun, ...]:
    """Returns the nouns that are named one by one or by class."""
    resolved: list[Noun] = []
    for name in re.split(r"[ ,]+", names):
        resolved += CLASSES[name] if name in CLASSES else [NOUN[name]]
    return tuple(resolved)


_PARTICLES = (" up", " along", " on", " off", " away")


def _split_names(names: str) -> frozenset[str]:
    return frozenset(re.split(r",\s+", names.strip()))


def _build_verb(
    frame: str,
    row: list[str],
    *,
    subjects: str = "people",
    objects: str = "",
    case: int = ACCUSATIVE,
    preposition: str = "",
    goals: str = "",
    adverbials: str = "",
) -> Verb:
    inflection = english.inflect(row[0].rstrip("*"))
    conjugation = german.conjugate(row[1])
    state = row[0].endswith("*")
    intended = inflection.base not in _split_names(verbs.UNINTENDED)
    doers = _resolve(subjects)
    things = _resolve(objects) if objects else ()
    people = sum(thing.kind == "people" for thing in things)
    return Verb(
        english=inflection,
        german=conjugation,
        frame=frame,
        state=state,
        groups=build_groups(inflection, conjugation, state, intended),
        subjects=doers,
        intended=intended,
        personal=doers[0].kind == "people",
        objects=things,
        object_people=people / len(things) if things else 0.0,
        phrasal=inflection.base.endswith(_PARTICLES),
        case=case,
        preposition=preposition,
        goals=goals,
        adverbials=tuple(adverbials.split()),
    )


def _get_column(row: list[str], index: int) -> str:
    return row[index] if len(row) > index else ""


def _build_verbs() -> Iterable[Verb]:
    for row in read_rows(verbs.INTRANSITIVE):
        yield _build_verb("intransitive", row, subjects=row[2], adverbials=_get_column(row, 3))
    for row in read_rows(verbs.TRANSITIVE):
        yield _build_verb("object", row, objects=row[2], adverbials=_get_column(row, 3))
    for row in read_rows(verbs.DATIVE_OBJECT):
        yield _build_verb("object", row, objects=row[2], case=DATIVE, adverbials=_get_column(row, 3))
    for row in read_rows(verbs.RECIPIENT):
        yield _build_verb("recipient", row, objects=row[2])
    for row in read_rows(verbs.PREPOSITIONAL):
        preposition, case = row[2].split()
        governed = ACCUSATIVE if case == "acc" else DATIVE
        extra = _get_column(row, 4)
        yield _build_verb(
            "prepositional", row, objects=row[3], case=governed, preposition=preposition, adverbials=extra
        )
    for row in read_rows(verbs.MOTION):
        yield _build_verb("motion", row, subjects=row[2], goals=row[3], adverbials=_get_column(row, 4))
    for row in read_rows(verbs.TRANSPORT):
        yield _build_verb("transport", row, objects=row[2], goals="places")
    for row in read_rows(verbs.POSITION):
        yield _build_verb("position", row)


VERBS = tuple(_build_verbs())
REPORTING = tuple(_build_verb("clause", row) for row in read_rows(verbs.REPORTING))
INTENDING = tuple(_build_verb("infinitive", row) for row in read_rows(verbs.INTENDING))
WEATHER = tuple(_build_verb("intransitive", row) for row in read_rows(verbs.WEATHER))
BECOME = _build_verb("predicate", ["become/became/become", "werden wird geworden +sein"])
ASK = next(verb for verb in VERBS if verb.english.base == "ask")
KNOW_THAT = next(verb for verb in REPORTING if verb.english.base == "know")

ACTIONS = tuple(verb for verb in VERBS if not verb.state)
STATES = tuple(verb for verb in VERBS if verb.state)
INTENDED = tuple(verb for verb in ACTIONS if verb.personal and verb.intended)
DURATIVE = tuple(verb for verb in VERBS if verb.english.base in _split_names(verbs.DURATIVE))
TAKING: dict[Noun, tuple[Verb, ...]] = {
    noun: tuple(verb for verb in VERBS if verb.frame in ("object", "prepositional") and noun in verb.objects)
    for noun in NOUNS
}
"""For every noun, the verbs that can have it as an object."""


def find_verb(base: str, frame: str | None = None) -> Verb:
    """Returns the verb with this English base form (and in this construction)."""
    everything = (*VERBS, *REPORTING, *INTENDING, *WEATHER, BECOME)
    return next(one for one in everything if one.english.base == base and frame in (None, one.frame))


PRONOUNS = tuple(
    Pronoun((row[0], row[3]), row[1], (row[3], row[4], row[5]), int(row[7]), row[8])
    for row in read_rows(words.PRONOUNS)
)
OBJECT_PRONOUNS = {
    "noun": PRONOUNS,
    "other": PRONOUNS,
    "speaker": tuple(one for one in PRONOUNS if one.referent != "speaker"),
    "hearer": tuple(one for one in PRONOUNS if one.referent != "hearer"),
}
"""By the referent of the subject, the pronouns that can be the object."""
