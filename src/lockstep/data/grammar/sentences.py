"""Simple sentences: one clause, its word order and its time.

A pattern draws one meaning and says it twice: it returns the English sentence and its German translation, both without
a capital at the start.
"""

from lockstep.data.grammar.clauses import Clause, Complement, build_clause, draw_clause
from lockstep.data.grammar.german import DATIVE
from lockstep.data.grammar.lexicon import ACTIONS, DURATIVE, INTENDED, STATES, VERBS, Verb
from lockstep.data.grammar.phrases import (
    VON,
    YOU,
    Pair,
    draw_adjective,
    draw_noun_subject,
    draw_place,
    governed,
)
from lockstep.data.grammar.tables import Draw, pick
from lockstep.data.grammar.tenses import (
    LIKES_TO,
    MODALS_NOW,
    MODALS_PAST,
    PASSIVE_PAST,
    PASSIVE_PRESENT,
    PRESENT,
    SINCE,
)
from lockstep.data.grammar.times import (
    DURATIONS,
    FUTURE_TIMES,
    UNSAID,
    NOW_TIMES,
    PAST_TIMES,
    Setting,
    draw_setting,
    draw_timed,
    draw_untimed,
)

_PASSIVE = tuple(
    verb
    for verb in ACTIONS
    if verb.frame == "object" and verb.case != DATIVE and " " not in verb.english.base and verb.objects
)
_PLACEABLE = tuple(verb for verb in ACTIONS if "place" in verb.adverbials)


def plain(clause: Clause) -> Pair:
    """Subject first in both languages."""
    return f"{clause.english_statement()}.", f"{clause.german_statement()}."


def fronted(clause: Clause, opening: Pair) -> Pair:
    """An adverbial first, which in German moves the subject behind the verb."""
    return (
        f"{opening[0][1:]}, {clause.english_statement()}.",
        f"{opening[1][1:]} {clause.german_verb_first()}.",
    )


def in_either_order(draw: Draw, verb: Verb, setting: Setting, negated: bool = False) -> Pair:
    """The time at the start or at the end of the English sentence, equally often."""
    tense, time, adverb = setting
    if time[0] and draw() < 0.5:
        return fronted(draw_clause(draw, verb, (tense, UNSAID, adverb), negated=negated), time)
    return plain(draw_clause(draw, verb, setting, negated=negated))


def statement(draw: Draw) -> Pair:
    """The teacher often reads the newspaper in the garden."""
    return plain(draw_clause(draw, pick(draw, ACTIONS), draw_setting(draw)))


def state(draw: Draw) -> Pair:
    """My sister knows this restaurant."""
    return plain(draw_clause(draw, pick(draw, STATES), draw_untimed(draw)))


def time_first(draw: Draw) -> Pair:
    """Yesterday, the old man bought a newspaper."""
    tense, time, adverb = draw_timed(draw)
    return fronted(draw_clause(draw, pick(draw, ACTIONS), (tense, UNSAID, adverb)), time)


def place_first(draw: Draw) -> Pair:
    """In the garden, the children are reading a book."""
    setting = draw_setting(draw)
    return fronted(draw_clause(draw, pick(draw, _PLACEABLE), setting, adverbials=False), draw_place(draw))


def negation(draw: Draw) -> Pair:
    """The doctor did not buy a car last week."""
    verb = pick(draw, VERBS)
    setting = draw_untimed(draw) if verb.state or draw() < 0.4 else draw_timed(draw)
    return in_either_order(draw, verb, setting, negated=True)


def _draw_modal(draw: Draw) -> Setting:
    past = draw() < 0.35
    tense = pick(draw, MODALS_PAST if past else MODALS_NOW)
    if draw() < 0.4:
        return tense, UNSAID, UNSAID
    categories = PAST_TIMES if past else FUTURE_TIMES if draw() < 0.6 else NOW_TIMES
    return tense, pick(draw, pick(draw, categories)), UNSAID


def modal(draw: Draw) -> Pair:
    """Tomorrow, the students have to translate this letter."""
    return in_either_order(draw, pick(draw, INTENDED), _draw_modal(draw), negated=draw() < 0.2)


def liking(draw: Draw) -> Pair:
    """My brother likes to cook: German says it with an adverb."""
    setting = LIKES_TO, UNSAID, ("", " gern")
    return plain(draw_clause(draw, pick(draw, INTENDED), setting, adverbials=False))


def duration(draw: Draw) -> Pair:
    """Anna has been waiting for the bus for two hours: German stays in the present."""
    setting = SINCE, pick(draw, DURATIONS), UNSAID
    return in_either_order(draw, pick(draw, DURATIVE), setting)


def passive(draw: Draw) -> Pair:
    """The letter was written by the old king yesterday."""
    verb = pick(draw, _PASSIVE)
    subject = draw_noun_subject(draw, pick(draw, verb.objects))
    doer = pick(draw, verb.subjects)
    by, von = governed(VON, pick(draw, doer.definite), draw_adjective(draw, doer), doer)
    past = draw() < 0.7
    time = pick(draw, pick(draw, PAST_TIMES)) if past and draw() < 0.6 else UNSAID
    group = verb.groups[PASSIVE_PAST if past else PASSIVE_PRESENT][subject.agreement]
    complement = Complement(f" by {by}", "", f" {von}")
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
    return (
        f"please {do_not}{verb.english.base}{clause.english}!",
        f"bitte {clause.german_verb_first()}!",
    )
