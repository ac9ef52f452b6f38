"""The lexicon: what a lexeme knows about itself in both languages, and the pools that lexemes are drawn from."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lockstep.demo_corpus import determiners, english, german, nouns, verbs, words
from lockstep.demo_corpus.determiners import Determiner
from lockstep.demo_corpus.german import ACCUSATIVE, DATIVE
from lockstep.demo_corpus.tables import rows
from lockstep.demo_corpus.tenses import VerbGroup, groups_of


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
    """What it is compared with, and whether a person is meant."""
    adjectives: tuple[Adjective, ...]
    determiners: tuple[Determiner, ...]
    subject_determiners: tuple[Determiner, ...]
    definite: tuple[Determiner, ...]
    negated: tuple[Determiner, ...]
    owned: bool
    """Whether one says "my" of it."""
    counted: bool
    """Whether it has a plural."""
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
    """Whether people do it, so that pronouns and names can."""
    objects: tuple[Noun, ...] = ()
    object_people: float = 0.0
    """The share of people among its objects, and with it how often a pronoun or a name takes their place."""
    phrasal: bool = False
    """Whether English puts a pronoun before its particle ("pick him up"), so that this grammar uses none."""
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


def _adjective(row: list[str]) -> Adjective:
    word, entry, more, mehr, kinds = row
    base, _, stem = entry.partition("/")
    stem = stem or base
    comparative = None
    if more != "x":
        comparative = (english.comparative(word) if more == "-" else more, f"{stem}er" if mehr == "-" else mehr)
    attributive = tuple(stem + ending for ending in german.ENDINGS)
    return Adjective(word, english.indefinite_article(word), base, attributive, comparative, frozenset(kinds.split()))


ADJECTIVES = tuple(_adjective(row) for row in rows(words.ADJECTIVES))


def _noun(row: list[str], kinds: tuple[str, ...], owned: bool) -> Noun:
    singular, _, irregular = row[0].partition("/")
    article, head, *measured = row[1].split()
    genitive = row[2].strip("-")
    gender = german.ARTICLES[article]
    uncounted = row[3] == "-"
    forms = german.decline(head, gender, genitive, head if uncounted else row[3])
    countable = determiners.FOR_OWNED if owned else determiners.FOR_COUNTED
    pools = determiners.FOR_UNCOUNTED if uncounted else countable
    return Noun(
        english=(singular, irregular or english.plural(singular)),
        article=english.indefinite_article(singular),
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


def _nouns(table: str, *kinds: str, owned: bool = True) -> tuple[Noun, ...]:
    return tuple(_noun(row, kinds, owned) for row in rows(table))


def _classes() -> dict[str, tuple[Noun, ...]]:
    """Nouns by the names the verb tables use for them."""
    base = {
        "relatives": _nouns(nouns.RELATIVES, "people"),
        "strangers": _nouns(nouns.PEOPLE, "people", owned=False),
        "pets": _nouns(nouns.PETS, "animals"),
        "wild": _nouns(nouns.WILD_ANIMALS, "animals", owned=False),
        "texts": _nouns(nouns.TEXTS, "texts"),
        "food": _nouns(nouns.FOOD, "food"),
        "groceries": _nouns(nouns.GROCERIES, "drinks"),
        "drinks": _nouns(nouns.DRINKS, "drinks"),
        "servings": _nouns(nouns.SERVINGS, "servings", owned=False),
        "clothes": _nouns(nouns.CLOTHES, "clothes"),
        "vehicles": _nouns(nouns.VEHICLES, "vehicles", "objects"),
        "devices": _nouns(nouns.DEVICES, "objects"),
        "containers": _nouns(nouns.CONTAINERS, "objects"),
        "things": _nouns(nouns.THINGS, "objects"),
        "furniture": _nouns(nouns.FURNITURE, "objects"),
        "events": _nouns(nouns.EVENTS, "events"),
        "rooms": _nouns(nouns.ROOMS, "places"),
        "buildings": _nouns(nouns.BUILDINGS, "places", owned=False),
        "landscapes": _nouns(nouns.LANDSCAPES, "places", owned=False),
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


CLASSES = _classes()
NOUNS = tuple(dict.fromkeys(noun for members in CLASSES.values() for noun in members))
NOUN = {noun.english[0]: noun for noun in NOUNS}


def _resolve(names: str) -> tuple[Noun, ...]:
    """Nouns named one by one or by class."""
    found: list[Noun] = []
    for name in re.split(r"[ ,]+", names):
        found += CLASSES[name] if name in CLASSES else [NOUN[name]]
    return tuple(found)


_PARTICLES = (" up", " along", " on", " off", " away")


def _listed(names: str) -> frozenset[str]:
    return frozenset(re.split(r",\s+", names.strip()))


def _verb(
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
    intended = inflection.base not in _listed(verbs.UNINTENDED)
    doers = _resolve(subjects)
    things = _resolve(objects) if objects else ()
    people = sum(thing.kind == "people" for thing in things)
    return Verb(
        english=inflection,
        german=conjugation,
        frame=frame,
        state=state,
        groups=groups_of(inflection, conjugation, state, intended),
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


def _column(row: list[str], index: int) -> str:
    return row[index] if len(row) > index else ""


def _verbs() -> Iterable[Verb]:
    for row in rows(verbs.INTRANSITIVE):
        yield _verb("intransitive", row, subjects=row[2], adverbials=_column(row, 3))
    for row in rows(verbs.TRANSITIVE):
        yield _verb("object", row, objects=row[2], adverbials=_column(row, 3))
    for row in rows(verbs.DATIVE_OBJECT):
        yield _verb("object", row, objects=row[2], case=DATIVE, adverbials=_column(row, 3))
    for row in rows(verbs.RECIPIENT):
        yield _verb("recipient", row, objects=row[2])
    for row in rows(verbs.PREPOSITIONAL):
        preposition, case = row[2].split()
        governed = ACCUSATIVE if case == "acc" else DATIVE
        extra = _column(row, 4)
        yield _verb("prepositional", row, objects=row[3], case=governed, preposition=preposition, adverbials=extra)
    for row in rows(verbs.MOTION):
        yield _verb("motion", row, subjects=row[2], goals=row[3], adverbials=_column(row, 4))
    for row in rows(verbs.TRANSPORT):
        yield _verb("transport", row, objects=row[2], goals="places")
    for row in rows(verbs.POSITION):
        yield _verb("position", row)


VERBS = tuple(_verbs())
REPORTING = tuple(_verb("clause", row) for row in rows(verbs.REPORTING))
INTENDING = tuple(_verb("infinitive", row) for row in rows(verbs.INTENDING))
WEATHER = tuple(_verb("intransitive", row) for row in rows(verbs.WEATHER))
BECOME = _verb("predicate", ["become/became/become", "werden wird geworden +sein"])
ASK = next(verb for verb in VERBS if verb.english.base == "ask")
KNOW_THAT = next(verb for verb in REPORTING if verb.english.base == "know")

ACTIONS = tuple(verb for verb in VERBS if not verb.state)
STATES = tuple(verb for verb in VERBS if verb.state)
INTENDED = tuple(verb for verb in ACTIONS if verb.personal and verb.intended)
DURATIVE = tuple(verb for verb in VERBS if verb.english.base in _listed(verbs.DURATIVE))
TAKING: dict[Noun, tuple[Verb, ...]] = {
    noun: tuple(verb for verb in VERBS if verb.frame in ("object", "prepositional") and noun in verb.objects)
    for noun in NOUNS
}
"""The verbs that a noun can be the object of."""


def verb(base: str, frame: str | None = None) -> Verb:
    """The verb with this English base form (in this construction)."""
    everything = (*VERBS, *REPORTING, *INTENDING, *WEATHER, BECOME)
    return next(one for one in everything if one.english.base == base and frame in (None, one.frame))


PRONOUNS = tuple(
    Pronoun((row[0], row[3]), row[1], (row[3], row[4], row[5]), int(row[7]), row[8]) for row in rows(words.PRONOUNS)
)
OBJECT_PRONOUNS = {
    "noun": PRONOUNS,
    "other": PRONOUNS,
    "speaker": tuple(one for one in PRONOUNS if one.referent != "speaker"),
    "hearer": tuple(one for one in PRONOUNS if one.referent != "hearer"),
}
"""The pronouns that can be objects beside a subject with this referent."""
