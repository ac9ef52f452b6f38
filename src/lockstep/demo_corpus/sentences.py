"""Simple sentences: one clause, its word order and its time.

A pattern draws one meaning and says it twice: it returns the English sentence and its German translation, both without
a capital at the start. Its docstring shows an example.
"""

from lockstep.demo_corpus.adverbials import PREPOSITIONS, draw_place, governed
from lockstep.demo_corpus.clauses import Clause, Complement, build_clause, draw_clause
from lockstep.demo_corpus.german import ACCUSATIVE, DATIVE
from lockstep.demo_corpus.lexicon import ACTIONS, DURATIVE, INTENDED, STATES, VERBS, Verb
from lockstep.demo_corpus.phrases import YOU, draw_adjective, draw_noun_subject
from lockstep.demo_corpus.tables import Draw, Pair, pick
from lockstep.demo_corpus.tenses import LIKES_TO, MODALS_NOW, MODALS_PAST, PASSIVE_PAST, PASSIVE_PRESENT, PRESENT, SINCE
from lockstep.demo_corpus.times import (
    DURATIONS,
    FUTURE_TIMES,
    NOW_TIMES,
    PAST_TIMES,
    UNSAID,
    Setting,
    draw_setting,
    draw_timed,
    draw_untimed,
)

_VON = PREPOSITIONS["von", DATIVE]
_PLACEABLE = tuple(verb for verb in ACTIONS if "place" in verb.adverbials)
_PASSIVE = tuple(
    verb
    for verb in ACTIONS
    if verb.frame == "object" and verb.case == ACCUSATIVE and verb.intended and " " not in verb.english.base
)


def plain(clause: Clause) -> Pair:
    """Subject first in both languages."""
    return f"{clause.english_statement()}.", f"{clause.german_statement()}."


def fronted(clause: Clause, opening: Pair) -> Pair:
    """An adverbial first, which in German moves the subject behind the verb."""
    english, german = opening
    return f"{english[1:]}, {clause.english_statement()}.", f"{german[1:]} {clause.german_verb_first()}."


def in_either_order(draw: Draw, verb: Verb, setting: Setting, negated: bool = False) -> Pair:
    """The time at the start or at the end of the English sentence, equally often."""
    tense, time, adverb = setting
    if time[0] and draw() < 0.5:
        return fronted(draw_clause(draw, verb, (tense, UNSAID, adverb), negated=negated), time)
    return plain(draw_clause(draw, verb, setting, negated=negated))


def statement(draw: Draw) -> Pair:
    """The teacher often reads the newspaper in the garden."""
    verb = pick(draw, ACTIONS)
    return plain(draw_clause(draw, verb, draw_setting(draw, verb)))


def state(draw: Draw) -> Pair:
    """My sister knows this restaurant."""
    verb = pick(draw, STATES)
    return plain(draw_clause(draw, verb, draw_untimed(draw, verb)))


def time_first(draw: Draw) -> Pair:
    """Yesterday, the old man bought a newspaper."""
    verb = pick(draw, ACTIONS)
    tense, time, adverb = draw_timed(draw, verb)
    return fronted(draw_clause(draw, verb, (tense, UNSAID, adverb)), time)


def place_first(draw: Draw) -> Pair:
    """In the garden, the children are reading a book."""
    verb = pick(draw, _PLACEABLE)
    clause = draw_clause(draw, verb, draw_setting(draw, verb), adverbials=False)
    return fronted(clause, draw_place(draw))


def negation(draw: Draw) -> Pair:
    """The doctor did not buy a car last week."""
    verb = pick(draw, VERBS)
    timed = not verb.state and draw() < 0.6
    setting = draw_timed(draw, verb, habits=False) if timed else draw_untimed(draw, verb)
    return in_either_order(draw, verb, setting, negated=True)


def modal(draw: Draw) -> Pair:
    """Tomorrow, the students have to translate this letter."""
    past = draw() < 0.35
    tense = pick(draw, MODALS_PAST if past else MODALS_NOW)
    time = UNSAID
    if draw() < 0.6:
        categories = PAST_TIMES if past else FUTURE_TIMES if draw() < 0.6 else NOW_TIMES
        time = pick(draw, pick(draw, categories))
    return in_either_order(draw, pick(draw, INTENDED), (tense, time, UNSAID), negated=draw() < 0.2)


def liking(draw: Draw) -> Pair:
    """My brother likes to cook: German says it with an adverb."""
    setting = LIKES_TO, UNSAID, ("", " gern")
    return plain(draw_clause(draw, pick(draw, INTENDED), setting, adverbials=False))


def duration(draw: Draw) -> Pair:
    """Anna has been waiting for the bus for two hours: German stays in the present."""
    return in_either_order(draw, pick(draw, DURATIVE), (SINCE, pick(draw, DURATIONS), UNSAID))


def passive(draw: Draw) -> Pair:
    """The letter was written by the old king yesterday."""
    verb = pick(draw, _PASSIVE)
    subject = draw_noun_subject(draw, pick(draw, verb.objects))
    doer = pick(draw, verb.subjects)
    by, von = governed(_VON, pick(draw, doer.definite), draw_adjective(draw, doer), doer)
    complement = Complement(f" by {by}", "", f" {von}")
    past = draw() < 0.7
    time = pick(draw, pick(draw, PAST_TIMES)) if past and draw() < 0.6 else UNSAID
    group = verb.groups[PASSIVE_PAST if past else PASSIVE_PRESENT][subject.agreement]
    if time[0] and draw() < 0.5:
        return fronted(build_clause(subject, group, complement), time)
    return plain(build_clause(subject, group, complement, time=time))


def imperative(draw: Draw) -> Pair:
    """Please open the window!"""
    verb = pick(draw, INTENDED)
    negated = draw() < 0.25
    time = pick(draw, pick(draw, FUTURE_TIMES)) if draw() < 0.5 else UNSAID
    clause = draw_clause(draw, verb, (PRESENT, time, UNSAID), YOU, negated=negated)
    do_not = "do not " if negated else ""
    return f"please {do_not}{verb.english.base}{clause.english}!", f"bitte {clause.german_verb_first()}!"
