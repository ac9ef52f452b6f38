"""Sentences with more than one clause: the German verb goes to the end of every clause that depends on another."""

from lockstep.demo_corpus import words
from lockstep.demo_corpus.clauses import Clause, Complement, build_clause, draw_clause
from lockstep.demo_corpus.descriptions import draw_condition, draw_hour, draw_quality
from lockstep.demo_corpus.german import THIRD
from lockstep.demo_corpus.lexicon import (
    ACTIONS,
    ASK,
    CLASSES,
    INTENDED,
    INTENDING,
    KNOW_THAT,
    REPORTING,
    VERBS,
    WEATHER,
    Verb,
)
from lockstep.demo_corpus.phrases import IT, Subject, draw_subject
from lockstep.demo_corpus.tables import Draw, Pair, add_spaces, pick, read_pairs
from lockstep.demo_corpus.tenses import BARE_PAST, COPULA, FUTURE, MODALS_NOW, PAST, PERFECT, PRESENT, PROGRESSIVE
from lockstep.demo_corpus.times import NO_WORDS, PAST_TIMES, Setting, draw_setting

_PEOPLE = CLASSES["people"]
_REASONS = (("because", "weil"), ("although", "obwohl"))
_QUESTIONS = (("whether", "ob"), ("whether", "ob"), ("why", "warum"), ("when", "wann"))
_JUDGEMENTS = add_spaces(read_pairs(words.JUDGEMENTS))
_MOTIONS = tuple(one for one in ACTIONS if one.frame == "motion")
_PURPOSES = tuple(one for one in INTENDED if one.frame not in ("motion", "position"))
_PLEDGES = ("promise", "decide")
"""What one can promise or decide not to do."""


def _in_tense(tense: int) -> Setting:
    """Returns a setting without time expression and adverb."""
    return tense, NO_WORDS, NO_WORDS


def draw_side_clause(draw: Draw, tense: int) -> Clause:
    """Draws a subordinate clause: an event, a quality, or the weather."""
    chance = draw()
    if chance < 0.06:
        return build_clause(IT, pick(draw, WEATHER).groups[tense][THIRD])
    if chance < 0.3 and tense != PERFECT:
        return draw_condition(draw, tense) if chance < 0.12 else draw_quality(draw, _in_tense(tense))
    return draw_clause(draw, pick(draw, VERBS), _in_tense(tense), negated=draw() < 0.15)


def append_clause(main: Clause, link: Pair, side: Clause) -> Pair:
    """Puts the subordinate clause after the main clause."""
    return (
        f"{main.english_statement()} {link[0]} {side.english_statement()}.",
        f"{main.german_statement()}, {link[1]} {side.german_subordinate()}.",
    )


def prepend_clause(main: Clause, link: Pair, side: Clause) -> Pair:
    """Puts the subordinate clause first. In German it takes the first position, so the verb follows it."""
    return (
        f"{link[0]} {side.english_statement()}, {main.english_statement()}.",
        f"{link[1]} {side.german_subordinate()}, {main.german_verb_first()}.",
    )


def reason(draw: Draw) -> Pair:
    """Anna stayed at home because the dog was sick."""
    past = draw() < 0.5
    main = draw_clause(draw, pick(draw, ACTIONS), _in_tense(BARE_PAST if past else PRESENT), adverbials=draw() < 0.5)
    side = draw_side_clause(draw, BARE_PAST if past else pick(draw, (PRESENT, PROGRESSIVE, PERFECT)))
    order = append_clause if draw() < 0.6 else prepend_clause
    return order(main, pick(draw, _REASONS), side)


def condition(draw: Draw) -> Pair:
    """If it rains, the children will stay in the house."""
    tense = FUTURE if draw() < 0.5 else pick(draw, MODALS_NOW)
    main = draw_clause(draw, pick(draw, INTENDED), _in_tense(tense), adverbials=False)
    order = append_clause if draw() < 0.4 else prepend_clause
    return order(main, ("if", "wenn"), draw_side_clause(draw, PRESENT))


def report(draw: Draw) -> Pair:
    """The farmer says that his horse is sick."""
    subject = draw_subject(draw, _PEOPLE, personal=True)
    past = draw() < 0.4
    main = build_clause(subject, pick(draw, REPORTING).groups[PAST if past else PRESENT][subject.agreement])
    tense = BARE_PAST if past else pick(draw, (PRESENT, PRESENT, BARE_PAST, PERFECT, FUTURE))
    return append_clause(main, ("that", "dass"), draw_side_clause(draw, tense))


def indirect_question(draw: Draw) -> Pair:
    """We do not know whether the train will arrive in Berlin."""
    subject = draw_subject(draw, _PEOPLE, personal=True)
    past = draw() < 0.4
    asking = draw() < 0.5
    group = (ASK if asking else KNOW_THAT).groups[PAST if past else PRESENT][subject.agreement]
    main = build_clause(subject, group, negated=not asking)
    tense = BARE_PAST if past else pick(draw, (PRESENT, BARE_PAST, FUTURE))
    return append_clause(main, pick(draw, _QUESTIONS), draw_clause(draw, pick(draw, VERBS), _in_tense(tense)))


def coordination(draw: Draw) -> Pair:
    """Paul is reading a letter, but his sister is working in the garden."""
    chance = draw()
    if chance < 0.2:
        first, second = draw_hour(draw), draw_clause(draw, pick(draw, INTENDED), _in_tense(PROGRESSIVE))
    else:
        tense = pick(draw, (PRESENT, BARE_PAST, FUTURE))
        first = draw_clause(draw, pick(draw, ACTIONS), _in_tense(tense), adverbials=False)
        second = draw_clause(draw, pick(draw, ACTIONS), _in_tense(tense), negated=chance > 0.7)
    link, bindewort = (", but", ", aber") if chance > 0.6 else (", and", " und")
    return (
        f"{first.english_statement()}{link} {second.english_statement()}.",
        f"{first.german_statement()}{bindewort} {second.german_statement()}.",
    )


def draw_infinitive(draw: Draw, subject: Subject, verb: Verb, negated: bool = False) -> Pair:
    """Draws an infinitive with a space in front: " to call his sister", " seine Schwester anzurufen"."""
    clause = draw_clause(draw, verb, _in_tense(PRESENT), subject, negated=negated)
    to = " not to" if negated else " to"
    return f"{to} {verb.english.base}{clause.english}", f"{clause.middle_field} {verb.german.zu_infinitive}"


def intention(draw: Draw) -> Pair:
    """The girl tried to open the window."""
    subject = draw_subject(draw, _PEOPLE, personal=True)
    governing = pick(draw, INTENDING)
    negated = governing.english.base in _PLEDGES and draw() < 0.3
    to_do, zu_tun = draw_infinitive(draw, subject, pick(draw, INTENDED), negated)
    chance = draw()
    main = build_clause(subject, governing.groups[PAST if chance < 0.6 else PRESENT][subject.agreement])
    if chance < 0.3:
        time, zeit = pick(draw, pick(draw, PAST_TIMES))
        return (
            f"{time[1:]}, {main.english_statement()}{to_do}.",
            f"{zeit[1:]} {main.german_verb_first()},{zu_tun}.",
        )
    return f"{main.english_statement()}{to_do}.", f"{main.german_statement()},{zu_tun}."


def purpose(draw: Draw) -> Pair:
    """Martin drove to the station to pick up his aunt."""
    verb = pick(draw, _MOTIONS)
    subject = draw_subject(draw, _PEOPLE, personal=True)
    main = draw_clause(draw, verb, draw_setting(draw, verb), subject, adverbials=False)
    to_do, zu_tun = draw_infinitive(draw, subject, pick(draw, _PURPOSES))
    return f"{main.english_statement()}{to_do}.", f"{main.german_statement()}, um{zu_tun}."


def judgement(draw: Draw) -> Pair:
    """It is difficult to translate this poem."""
    english, german = pick(draw, _JUDGEMENTS)
    group = COPULA[PAST if draw() < 0.4 else PRESENT][THIRD]
    main = build_clause(IT, group, Complement(english, "", german), negated=draw() < 0.25)
    to_do, zu_tun = draw_infinitive(draw, IT, pick(draw, INTENDED))
    return f"{main.english_statement()}{to_do}.", f"{main.german_statement()},{zu_tun}."
