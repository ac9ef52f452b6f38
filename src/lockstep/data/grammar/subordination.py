"""Sentences with more than one clause: the German verb goes to the end of every clause that depends on another."""

from lockstep.data.grammar import words
from lockstep.data.grammar.clauses import Clause, Complement, build_clause, draw_clause, placed
from lockstep.data.grammar.descriptions import draw_condition, draw_hour, draw_quality
from lockstep.data.grammar.determiners import THE, THE_PLURAL, A, Determiner
from lockstep.data.grammar.german import GENITIVE, MANY, NOMINATIVE, RELATIVE, THIRD, slot
from lockstep.data.grammar.lexicon import (
    ACTIONS,
    ASK,
    CLASSES,
    INTENDED,
    INTENDING,
    NOUNS,
    REPORTING,
    TAKING,
    VERBS,
    WEATHER,
    Noun,
    Verb,
    verb,
)
from lockstep.data.grammar.phrases import IT, Pair, Subject, draw_adjective, draw_subject, noun_phrase
from lockstep.data.grammar.questions import draw_gap
from lockstep.data.grammar.tables import Draw, pairs, pick
from lockstep.data.grammar.tenses import BARE_PAST, COPULA, FUTURE, MODALS_NOW, PAST, PERFECT, PRESENT, PROGRESSIVE
from lockstep.data.grammar.times import UNSAID, PAST_TIMES, Setting, draw_setting, draw_untimed

_PRESENT_TENSES = (PRESENT, PROGRESSIVE, PERFECT)
_CONNECTIVES = (("because", "weil"), ("although", "obwohl"))
_QUESTIONS = (("whether", "ob"), ("whether", "ob"), ("why", "warum"), ("when", "wann"))
_KNOW = verb("know", "clause")
_JUDGEMENTS = tuple((f" {english}", f" {german}") for english, german in pairs(words.JUDGEMENTS))
_PURPOSES = tuple(one for one in INTENDED if one.frame in ("object", "recipient", "prepositional", "intransitive"))
_MOTIONS = tuple(one for one in ACTIONS if one.frame == "motion")
_MOTIVES = ("promise", "decide")


def _at(tense: int) -> Setting:
    return tense, UNSAID, UNSAID


def draw_side_clause(draw: Draw, tense: int) -> Clause:
    """A clause fit to depend on another: an event, a quality, or the weather."""
    chance = draw()
    if chance < 0.06:
        subject_verb = pick(draw, WEATHER)
        return build_clause(IT, subject_verb.groups[tense][THIRD])
    if chance < 0.3 and tense != PERFECT:
        return draw_condition(draw, tense) if chance < 0.12 else draw_quality(draw, _at(tense))
    chosen = pick(draw, VERBS)
    return draw_clause(draw, chosen, _at(tense), negated=draw() < 0.15)


def joined(main: Clause, link: Pair, side: Clause) -> Pair:
    """The dependent clause after the main one."""
    return (
        f"{main.english_statement()} {link[0]} {side.english_statement()}.",
        f"{main.german_statement()}, {link[1]} {side.german_subordinate()}.",
    )


def joined_in_front(main: Clause, link: Pair, side: Clause) -> Pair:
    """The dependent clause first; in German it takes the first position, so the verb follows at once."""
    return (
        f"{link[0]} {side.english_statement()}, {main.english_statement()}.",
        f"{link[1]} {side.german_subordinate()}, {main.german_verb_first()}.",
    )


def reason(draw: Draw) -> Pair:
    """Anna stayed at home because it was raining."""
    past = draw() < 0.5
    tense = BARE_PAST if past else pick(draw, _PRESENT_TENSES)
    main = draw_clause(draw, pick(draw, ACTIONS), _at(BARE_PAST if past else PRESENT), adverbials=draw() < 0.5)
    order = joined if draw() < 0.6 else joined_in_front
    return order(main, pick(draw, _CONNECTIVES), draw_side_clause(draw, tense))


def condition(draw: Draw) -> Pair:
    """If the weather is cold, the children will stay in the house."""
    tense = FUTURE if draw() < 0.5 else pick(draw, MODALS_NOW)
    main = draw_clause(draw, pick(draw, INTENDED), _at(tense), adverbials=False)
    order = joined if draw() < 0.4 else joined_in_front
    return order(main, ("if", "wenn"), draw_side_clause(draw, PRESENT))


def report(draw: Draw) -> Pair:
    """The farmer says that his horse is sick."""
    subject = draw_subject(draw, CLASSES["people"], personal=True)
    group = pick(draw, REPORTING).groups[PAST if draw() < 0.5 else PRESENT][subject.agreement]
    tense = pick(draw, (PRESENT, PRESENT, BARE_PAST, BARE_PAST, PERFECT, FUTURE))
    return joined(build_clause(subject, group), ("that", "dass"), draw_side_clause(draw, tense))


def indirect_question(draw: Draw) -> Pair:
    """We do not know whether the train has arrived."""
    subject = draw_subject(draw, CLASSES["people"], personal=True)
    tense = PAST if draw() < 0.4 else PRESENT
    knows = draw() < 0.5
    group = (_KNOW if knows else ASK).groups[tense][subject.agreement]
    main = build_clause(subject, group, negated=knows)
    side = draw_clause(draw, pick(draw, VERBS), _at(pick(draw, (PRESENT, BARE_PAST, FUTURE))))
    return joined(main, pick(draw, _QUESTIONS), side)


def coordination(draw: Draw) -> Pair:
    """Paul is reading a letter, and his sister is working in the garden."""
    chance = draw()
    if chance < 0.2:
        first, second = draw_hour(draw), draw_clause(draw, pick(draw, ACTIONS), _at(PROGRESSIVE))
    else:
        tense = pick(draw, (PRESENT, BARE_PAST, FUTURE))
        first = draw_clause(draw, pick(draw, ACTIONS), _at(tense), adverbials=False)
        second = draw_clause(draw, pick(draw, ACTIONS), _at(tense), negated=chance > 0.7)
    english, german = (", but", ", aber") if chance > 0.6 else (", and", " und")
    return (
        f"{first.english_statement()}{english} {second.english_statement()}.",
        f"{first.german_statement()}{german} {second.german_statement()}.",
    )


def infinitive(draw: Draw, subject: Subject, verb: Verb, negated: bool = False) -> Pair:
    """ " to call his sister" / " seine Schwester anzurufen"."""
    clause = draw_clause(draw, verb, _at(PRESENT), subject, negated=negated)
    english_not = " not" if negated else ""
    return (
        f"{english_not} to {verb.english.base}{clause.english}",
        f"{clause.middle} {verb.german.zu_infinitive}",
    )


def intention(draw: Draw) -> Pair:
    """The girl tried to open the window."""
    subject = draw_subject(draw, CLASSES["people"], personal=True)
    governing = pick(draw, INTENDING)
    negated = governing.english.base in _MOTIVES and draw() < 0.3
    english, german = infinitive(draw, subject, pick(draw, INTENDED), negated)
    time = pick(draw, pick(draw, PAST_TIMES)) if draw() < 0.3 else UNSAID
    group = governing.groups[PAST if time[0] or draw() < 0.5 else PRESENT][subject.agreement]
    main = build_clause(subject, group)
    if time[0]:
        return (
            f"{time[0][1:]}, {main.english_statement()}{english}.",
            f"{time[1][1:]} {main.german_verb_first()},{german}.",
        )
    return f"{main.english_statement()}{english}.", f"{main.german_statement()},{german}."


def purpose(draw: Draw) -> Pair:
    """Martin drove to the station to pick up his aunt."""
    moving = pick(draw, _MOTIONS)
    subject = draw_subject(draw, CLASSES["people"], personal=True)
    main = draw_clause(draw, moving, draw_setting(draw), subject, adverbials=False)
    english, german = infinitive(draw, subject, pick(draw, _PURPOSES))
    return f"{main.english_statement()}{english}.", f"{main.german_statement()}, um{german}."


def judgement(draw: Draw) -> Pair:
    """It is difficult to translate this poem."""
    english, german = pick(draw, _JUDGEMENTS)
    group = COPULA[PAST if draw() < 0.4 else PRESENT][THIRD]
    main = build_clause(IT, group, Complement(english, "", german), negated=draw() < 0.25)
    to_do, zu_tun = infinitive(draw, IT, pick(draw, INTENDED))
    return f"{main.english_statement()}{to_do}.", f"{main.german_statement()},{zu_tun}."


_HEADS = (THE, THE, THE, THE_PLURAL, THE_PLURAL, A, A)
_RELATIVE_TENSES = (PRESENT, PRESENT, PROGRESSIVE, BARE_PAST, BARE_PAST, PERFECT)
_DOING = tuple(one for one in VERBS if one.personal)
_OWNED = CLASSES["relatives"] + CLASSES["pets"] + CLASSES["vehicles"] + CLASSES["rooms"]


def _relative_subject(draw: Draw, noun: Noun, plural: bool) -> Pair:
    """ " who lives in Berlin" / ", der in Berlin wohnt"."""
    pronoun = RELATIVE[slot(noun.gender, plural, NOMINATIVE)]
    subject = Subject("who", pronoun, MANY if plural else THIRD)
    clause = draw_clause(draw, pick(draw, _DOING), _at(pick(draw, _RELATIVE_TENSES)), subject, adverbials=False)
    return f" {clause.english_statement()}", f", {clause.german_subordinate()}"


def _relative_owner(draw: Draw, noun: Noun, plural: bool) -> Pair:
    """ " whose dog is sick" / ", dessen Hund krank ist"."""
    owned = pick(draw, _OWNED)
    pronoun = RELATIVE[slot(noun.gender, plural, GENITIVE)]
    adjective = pick(draw, owned.adjectives)
    many = draw() < 0.3
    subject = Subject(f"whose {owned.english[many]}", f"{pronoun} {owned.german[many * 4]}", MANY if many else THIRD)
    group = COPULA[PAST if draw() < 0.4 else PRESENT][subject.agreement]
    clause = build_clause(subject, group, Complement(f" {adjective.english}", "", f" {adjective.german}"))
    return f" {clause.english_statement()}", f", {clause.german_subordinate()}"


def _relative_object(draw: Draw, noun: Noun, plural: bool, tense: int | None = None) -> Pair:
    """ " that she is waiting for" / ", auf den sie wartet"."""
    verb = pick(draw, TAKING[noun])
    pronoun = RELATIVE[slot(noun.gender, plural, verb.case)]
    clause = draw_gap(draw, verb, pick(draw, _RELATIVE_TENSES) if tense is None else tense)
    link = "whom" if noun.kind == "people" else "that"
    german = f"{verb.preposition} {pronoun}" if verb.preposition else pronoun
    return f" {link} {clause.english_statement()}", f", {german} {clause.german_subordinate()}"


def draw_relative(draw: Draw, noun: Noun, plural: bool) -> Pair:
    """A relative clause that fits the noun."""
    if noun.kind == "people":
        chance = draw()
        if chance < 0.5:
            return _relative_subject(draw, noun, plural)
        if chance < 0.65:
            return _relative_owner(draw, noun, plural)
    return _relative_object(draw, noun, plural)


def _head(draw: Draw, noun: Noun) -> Determiner:
    return pick(draw, _HEADS) if noun.counted else THE


def relative_at_subject(draw: Draw) -> Pair:
    """The woman who lives in Berlin called my brother. The book that I bought is boring."""
    noun = pick(draw, CLASSES["people"]) if draw() < 0.6 else pick(draw, NOUNS)
    determiner = _head(draw, noun)
    english, german = noun_phrase(determiner, None, noun, NOMINATIVE)
    who, der = draw_relative(draw, noun, determiner.plural)
    subject = Subject(f"{english}{who}", f"{german}{der},", MANY if determiner.plural else THIRD)
    if noun.kind == "people" and draw() < 0.8:
        setting = draw_untimed(draw) if draw() < 0.6 else draw_setting(draw)
        clause = draw_clause(draw, pick(draw, _DOING), setting, subject, adverbials=False)
    else:
        adjective = pick(draw, noun.adjectives)
        group = COPULA[PAST if draw() < 0.4 else PRESENT][subject.agreement]
        clause = build_clause(subject, group, Complement(f" {adjective.english}", "", f" {adjective.german}"))
    return f"{clause.english_statement()}.", f"{clause.german_statement()}."


def relative_at_object(draw: Draw) -> Pair:
    """Yesterday, he sold the car that his father loved: German lets the clause wait for the end of the sentence."""
    verb = pick(draw, _TRANSITIVE)
    noun = pick(draw, verb.objects)
    determiner = _head(draw, noun)
    english, german = noun_phrase(determiner, draw_adjective(draw, noun), noun, verb.case)
    complement = placed(english, german, determiner)
    that, das = draw_relative(draw, noun, determiner.plural)
    subject = draw_subject(draw, verb.subjects, verb.personal)
    past = draw() < 0.5
    group = verb.groups[PAST if past else PRESENT][subject.agreement]
    clause = build_clause(subject, group, complement)
    if past:
        time, zeit = pick(draw, pick(draw, PAST_TIMES))
        return (
            f"{time[1:]}, {clause.english_statement()}{that}.",
            f"{zeit[1:]} {clause.german_verb_first()}{das}.",
        )
    return f"{clause.english_statement()}{that}.", f"{clause.german_statement()}{das}."


_TRANSITIVE = tuple(one for one in VERBS if one.frame == "object")
