"""Clauses: the parts that belong to a verb, and their order in both languages.

The English order is subject, verb, complements, manner, place, time. German puts its verbs around a middle field, which
has a fixed order: pronouns and definite objects, time, "nicht", manner or place, indefinite objects, and at the end a
goal, a prepositional object or a predicate.
"""

from collections.abc import Callable
from typing import NamedTuple

from lockstep.demo_corpus.adverbials import PREPOSITIONS, add_preposition, draw_adverbial, draw_goal, draw_place
from lockstep.demo_corpus.determiners import Determiner
from lockstep.demo_corpus.german import ACCUSATIVE, DATIVE
from lockstep.demo_corpus.lexicon import CLASSES, Noun, Verb
from lockstep.demo_corpus.phrases import (
    GENITIVE_SHARE,
    OWNERS,
    PLURAL_SHARE,
    Subject,
    build_noun_phrase,
    build_owned_phrase,
    draw_adjective,
    draw_person,
    draw_subject,
)
from lockstep.demo_corpus.tables import Draw, Pair, pick
from lockstep.demo_corpus.tenses import VerbGroup
from lockstep.demo_corpus.times import NO_WORDS, Setting

PERSON_SHARE = 0.35
"""Share of pronouns and names among objects that are persons."""
ADVERBIAL_SHARE = 0.4


class Complement(NamedTuple):
    """The objects and other complements of a verb. Every part starts with a space or is empty."""

    english: str = ""
    early: str = ""
    """Pronouns and definite objects, which German puts before the adverbs."""
    late: str = ""
    """Everything else."""
    negative: bool = False
    """Does "kein" negate the clause?"""


NOTHING = Complement()


class Clause(NamedTuple):
    """One clause in both languages, before its German word order is chosen."""

    subject: Subject
    group: VerbGroup
    adverb: str
    """An English adverb before the verb."""
    english: str
    """What follows the English verb."""
    middle_field: str
    """The German middle field after the subject."""
    negated: bool = False

    def english_statement(self) -> str:
        """For example: the man often reads the book."""
        group = self.group
        if self.negated:
            return f"{self.subject.english}{group.negated}{self.english}"
        return f"{self.subject.english}{group.lead}{self.adverb}{group.core}{self.english}"

    def english_question(self) -> str:
        """For example: does the man read the book."""
        group = self.group
        return f"{group.aux} {self.subject.english}{self.adverb}{group.rest}{self.english}"

    def german_statement(self) -> str:
        """For example: der Mann ruft die Frau an."""
        group = self.group
        return f"{self.subject.german} {group.finite}{self.middle_field}{group.tail}"

    def german_verb_first(self) -> str:
        """For example: ruft der Mann die Frau an; a question, or a statement after something in first position."""
        group = self.group
        return f"{group.finite} {self.subject.german}{self.middle_field}{group.tail}"

    def german_subordinate(self) -> str:
        """For example: der Mann die Frau anruft."""
        return f"{self.subject.german}{self.middle_field}{self.group.final}"


def draw_object(draw: Draw, noun: Noun, case: int, negated: bool) -> tuple[str, str, Determiner | None]:
    """Draws an object and its determiner. The determiner is None if the object has a possessor, which makes it definite."""
    adjective = draw_adjective(draw, noun)
    if negated:
        determiner = pick(draw, noun.negated)
    elif noun.owned and noun.counted and draw() < GENITIVE_SHARE:
        return *build_owned_phrase(pick(draw, OWNERS), draw() < PLURAL_SHARE, adjective, noun, case), None
    else:
        determiner = pick(draw, noun.determiners)
    return *build_noun_phrase(determiner, adjective, noun, case), determiner


def place_object(english: str, german: str, determiner: Determiner | None) -> Complement:
    """Places an object early or late in the German clause, depending on its determiner."""
    if determiner is None or determiner.definite:
        return Complement(f" {english}", f" {german}")
    return Complement(f" {english}", "", f" {german}", determiner.negative)


def _no_complement(draw: Draw, verb: Verb, subject: Subject, negated: bool) -> Complement:
    return NOTHING


def _object(draw: Draw, verb: Verb, subject: Subject, negated: bool) -> Complement:
    if not verb.phrasal and draw() < verb.object_people * PERSON_SHARE:
        english, german = draw_person(draw, verb.case, subject)
        return Complement(f" {english}", f" {german}")
    return place_object(*draw_object(draw, pick(draw, verb.objects), verb.case, negated))


def _recipient(draw: Draw, verb: Verb, subject: Subject, negated: bool) -> Complement:
    if draw() < PERSON_SHARE:
        english, german = draw_person(draw, DATIVE, subject)
    else:
        receiver = pick(draw, CLASSES["people"])
        english, german = build_noun_phrase(
            pick(draw, receiver.definite), draw_adjective(draw, receiver), receiver, DATIVE
        )
    given = place_object(*draw_object(draw, pick(draw, verb.objects), ACCUSATIVE, negated))
    return Complement(f"{given.english} to {english}", f" {german}{given.early}", given.late, given.negative)


def _prepositional(draw: Draw, verb: Verb, subject: Subject, negated: bool) -> Complement:
    if draw() < verb.object_people * PERSON_SHARE:
        english, german = draw_person(draw, verb.case, subject, marked=True)
        return Complement(f" {english}", "", f" {verb.preposition} {german}")
    noun = pick(draw, verb.objects)
    determiner = pick(draw, noun.definite if negated else noun.determiners)
    english, german = add_preposition(
        PREPOSITIONS[verb.preposition, verb.case], determiner, draw_adjective(draw, noun), noun
    )
    return Complement(f" {english}", "", f" {german}")


def _motion(draw: Draw, verb: Verb, subject: Subject, negated: bool) -> Complement:
    english, german = draw_goal(draw, verb.goals)
    return Complement(english, "", german)


def _transport(draw: Draw, verb: Verb, subject: Subject, negated: bool) -> Complement:
    moved = _object(draw, verb, subject, negated)
    english, german = draw_goal(draw, verb.goals)
    return Complement(moved.english + english, moved.early, moved.late + german, moved.negative)


def _position(draw: Draw, verb: Verb, subject: Subject, negated: bool) -> Complement:
    english, german = draw_place(draw)
    return Complement(english, "", german)


_COMPLEMENTS: dict[str, Callable[[Draw, Verb, Subject, bool], Complement]] = {
    "intransitive": _no_complement,
    "object": _object,
    "recipient": _recipient,
    "prepositional": _prepositional,
    "motion": _motion,
    "transport": _transport,
    "position": _position,
}


def build_clause(
    subject: Subject,
    group: VerbGroup,
    complement: Complement = NOTHING,
    *,
    time: Pair = NO_WORDS,
    adverb: Pair = NO_WORDS,
    adverbial: Pair = NO_WORDS,
    negated: bool = False,
) -> Clause:
    """Builds a clause from its parts."""
    english, early, late, negative = complement
    negation = " nicht" if negated and not negative else ""
    return Clause(
        subject,
        group,
        adverb[0],
        f"{english}{adverbial[0]}{time[0]}",
        f"{early}{time[1]}{adverb[1]}{negation}{adverbial[1]}{late}",
        negated,
    )


def draw_clause(
    draw: Draw,
    verb: Verb,
    setting: Setting,
    subject: Subject | None = None,
    *,
    negated: bool = False,
    adverbials: bool = True,
) -> Clause:
    """Draws a clause with this verb. A negated clause has no manner or place, because "nicht" would negate only that."""
    subject = subject or draw_subject(draw, verb.subjects, verb.personal, negated)
    tense, time, adverb = setting
    complement = _COMPLEMENTS[verb.frame](draw, verb, subject, negated)
    adverbial = NO_WORDS
    if adverbials and verb.adverbials and not negated and draw() < ADVERBIAL_SHARE:
        adverbial = draw_adverbial(draw, pick(draw, verb.adverbials))
    group = verb.groups[tense][subject.agreement]
    return build_clause(subject, group, complement, time=time, adverb=adverb, adverbial=adverbial, negated=negated)
