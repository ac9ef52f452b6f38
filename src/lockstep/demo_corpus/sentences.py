"""Simple sentences: one clause, its word order and its time.

A pattern is a function named after the kind of sentence that it draws. It returns the English sentence and its German
translation, both without a capital at the start. Its docstring shows an example.
"""

from lockstep.demo_corpus.adverbials import PREPOSITIONS, add_preposition, draw_place
from lockstep.demo_corpus.clauses import Clause, Complement, build_clause, draw_clause
from lockstep.demo_corpus.german import ACCUSATIVE, DATIVE
from lockstep.demo_corpus.lexicon import ACTIONS, DURATIVE, INTENDED, STATES, VERBS, Verb
from lockstep.demo_corpus.phrases import YOU, draw_adjective, draw_noun_subject
from lockstep.demo_corpus.tables import Draw, Pair, pick
from lockstep.demo_corpus.tenses import LIKES_TO, MODALS_NOW, MODALS_PAST, PASSIVE_PAST, PASSIVE_PRESENT, PRESENT, SINCE
from lockstep.demo_corpus.times import (
    DURATIONS,
    FUTURE_TIMES,
    NO_WORDS,
    NOW_TIMES,
    PAST_TIMES,
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


def put_subject_first(clause: Clause) -> Pair:
    """Puts the subject first in both languages."""
    return f"{clause.english_statement()}.", f"{clause.german_statement()}."


def put_adverbial_first(clause: Clause, opening: Pair) -> Pair:
    """Puts an adverbial first, which in German moves the subject behind the verb."""
    english, german = opening
    return f"{english[1:]}, {clause.english_statement()}.", f"{german[1:]} {clause.german_verb_first()}."


def choose_order(draw: Draw, verb: Verb, setting: Setting, negated: bool = False) -> Pair:
    """Puts the time at the start or at the end of the English sentence, with equal probability."""
    tense, time, adverb = setting
    if time[0] and draw() < 0.5:
        return put_adverbial_first(draw_clause(draw, verb, (tense, NO_WORDS, adverb), negated=negated), time)
    return put_subject_first(draw_clause(draw, verb, setting, negated=negated))


def statement(draw: Draw) -> Pair:
    """The teacher often reads the newspaper in the garden."""
    verb = pick(draw, ACTIONS)
    return put_subject_first(draw_clause(draw, verb, draw_setting(draw, verb)))


def state(draw: Draw) -> Pair:
    """My sister knows this restaurant."""
    verb = pick(draw, STATES)
    return put_subject_first(draw_clause(draw, verb, draw_untimed(draw, verb)))


def time_first(draw: Draw) -> Pair:
    """Yesterday, the old man bought a newspaper."""
    verb = pick(draw, ACTIONS)
    tense, time, adverb = draw_timed(draw, verb)
    return put_adverbial_first(draw_clause(draw, verb, (tense, NO_WORDS, adverb)), time)


def place_first(draw: Draw) -> Pair:
    """In the garden, the children are reading a book."""
    verb = pick(draw, _PLACEABLE)
    clause = draw_clause(draw, verb, draw_setting(draw, verb), adverbials=False)
    return put_adverbial_first(clause, draw_place(draw))


def negation(draw: Draw) -> Pair:
    """The doctor did not buy a car last week."""
    verb = pick(draw, VERBS)
    timed = not verb.state and draw() < 0.6
    setting = draw_timed(draw, verb, habits=False) if timed else draw_untimed(draw, verb)
    return choose_order(draw, verb, setting, negated=True)


def modal(draw: Draw) -> Pair:
    """Tomorrow, the students have to translate this letter."""
    past = draw() < 0.35
    tense = pick(draw, MODALS_PAST if past else MODALS_NOW)
    time = NO_WORDS
    if draw() < 0.6:
        categories = PAST_TIMES if past else FUTURE_TIMES if draw() < 0.6 else NOW_TIMES
        time = pick(draw, pick(draw, categories))
    return choose_order(draw, pick(draw, INTENDED), (tense, time, NO_WORDS), negated=draw() < 0.2)


def liking(draw: Draw) -> Pair:
    """My brother likes to cook: German says it with an adverb."""
    setting = LIKES_TO, NO_WORDS, ("", " gern")
    return put_subject_first(draw_clause(draw, pick(draw, INTENDED), setting, adverbials=False))


def duration(draw: Draw) -> Pair:
    """Anna has been waiting for the bus for two hours: German stays in the present."""
    return choose_order(draw, pick(draw, DURATIVE), (SINCE, pick(draw, DURATIONS), NO_WORDS))


def passive(draw: Draw) -> Pair:
    """The letter was written by the old king yesterday."""
    verb = pick(draw, _PASSIVE)
    subject = draw_noun_subject(draw, pick(draw, verb.objects))
    doer = pick(draw, verb.subjects)
    by, von = add_preposition(_VON, pick(draw, doer.definite), draw_adjective(draw, doer), doer)
    complement = Complement(f" by {by}", "", f" {von}")
    past = draw() < 0.7
    time = pick(draw, pick(draw, PAST_TIMES)) if past and draw() < 0.6 else NO_WORDS
    group = verb.groups[PASSIVE_PAST if past else PASSIVE_PRESENT][subject.agreement]
    if time[0] and draw() < 0.5:
        return put_adverbial_first(build_clause(subject, group, complement), time)
    return put_subject_first(build_clause(subject, group, complement, time=time))


def imperative(draw: Draw) -> Pair:
    """Please open the window!"""
    verb = pick(draw, INTENDED)
    negated = draw() < 0.25
    time = pick(draw, pick(draw, FUTURE_TIMES)) if draw() < 0.5 else NO_WORDS
    clause = draw_clause(draw, verb, (PRESENT, time, NO_WORDS), YOU, negated=negated)
    do_not = "do not " if negated else ""
    return f"please {do_not}{verb.english.base}{clause.english}!", f"bitte {clause.german_verb_first()}!"
