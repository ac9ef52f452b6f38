"""Questions: yes or no, and questions about one part of the clause."""

from lockstep.demo_corpus.adverbials import PREPOSITIONS, add_preposition
from lockstep.demo_corpus.clauses import Clause, build_clause, draw_clause
from lockstep.demo_corpus.descriptions import draw_quality
from lockstep.demo_corpus.determiners import HOW_MANY, WHICH, WHICH_PLURAL
from lockstep.demo_corpus.german import FIRST
from lockstep.demo_corpus.lexicon import ACTIONS, VERBS, Verb
from lockstep.demo_corpus.phrases import WHO, YOU, build_noun_phrase, draw_adjective, draw_subject
from lockstep.demo_corpus.tables import Draw, Pair, pick
from lockstep.demo_corpus.tenses import BARE_PAST, CAN, FUTURE, HAS_TO, PAST, PRESENT, PROGRESSIVE, WANTS_TO
from lockstep.demo_corpus.times import NO_WORDS, draw_setting

_TENSES = (PRESENT, PROGRESSIVE, BARE_PAST, BARE_PAST, FUTURE, CAN, HAS_TO, WANTS_TO)
_TENSES_OF_STATES = (PRESENT, BARE_PAST)
_TENSES_OF_CHANCE = (PRESENT, BARE_PAST, BARE_PAST, FUTURE)
_PERSONAL = tuple(verb for verb in VERBS if verb.personal)
_MOVING = tuple(verb for verb in VERBS if verb.frame == "motion" and verb.english.base != "come")
_SOMEWHERE = tuple(verb for verb in ACTIONS if "place" in verb.adverbials or verb.frame == "position")
_WITH_OBJECT = tuple(verb for verb in VERBS if verb.frame in ("object", "prepositional"))
_WITH_THING = tuple(verb for verb in _WITH_OBJECT if verb.frame == "object" and verb.object_people < 0.5)
_WITH_PERSON = tuple(verb for verb in _WITH_OBJECT if verb.object_people > 0.3)
_WHOM = ("wer", "wen", "wem")


def _draw_tense(draw: Draw, verb: Verb) -> int:
    if verb.state:
        return pick(draw, _TENSES_OF_STATES)
    return pick(draw, _TENSES if verb.intended else _TENSES_OF_CHANCE)


def draw_gap(draw: Draw, verb: Verb, tense: int) -> Clause:
    """Draws a clause without its object, which the question asks for or the main clause names."""
    subject = draw_subject(draw, verb.subjects, verb.personal)
    return build_clause(subject, verb.groups[tense][subject.agreement])


def _ask(question: Pair, clause: Clause) -> Pair:
    """Puts the question words before a clause."""
    english, german = question
    return f"{english} {clause.english_question()}?", f"{german} {clause.german_verb_first()}?"


def yes_or_no(draw: Draw) -> Pair:
    """Did the doctor help your brother yesterday?"""
    if draw() < 0.15:
        clause = draw_quality(draw, (PAST if draw() < 0.4 else PRESENT, NO_WORDS, NO_WORDS))
    else:
        verb = pick(draw, VERBS)
        subject = draw_subject(draw, verb.subjects, verb.personal)
        # Nobody asks what they do themselves.
        subject = YOU if subject.agreement == FIRST else subject
        clause = draw_clause(draw, verb, draw_setting(draw, verb), subject)
    return f"{clause.english_question()}?", f"{clause.german_verb_first()}?"


def who(draw: Draw) -> Pair:
    """Who bought the red car?"""
    verb = pick(draw, _PERSONAL)
    clause = draw_clause(draw, verb, draw_setting(draw, verb), WHO)
    return f"{clause.english_statement()}?", f"{clause.german_statement()}?"


def whom(draw: Draw) -> Pair:
    """Whom did she help: the verb decides between "wen" and "wem"."""
    verb = pick(draw, _WITH_PERSON)
    german = f"{verb.preposition} {_WHOM[verb.case]}".strip()
    return _ask(("whom", german), draw_gap(draw, verb, _draw_tense(draw, verb)))


def what(draw: Draw) -> Pair:
    """What did the children forget?"""
    verb = pick(draw, _WITH_THING)
    return _ask(("what", "was"), draw_gap(draw, verb, _draw_tense(draw, verb)))


def which(draw: Draw) -> Pair:
    """Which old book is she reading? How many apples did he buy?"""
    verb = pick(draw, _WITH_OBJECT)
    noun = pick(draw, verb.objects)
    determiner = pick(draw, (WHICH, WHICH, WHICH_PLURAL, HOW_MANY)) if noun.counted else WHICH
    adjective = draw_adjective(draw, noun)
    if verb.preposition:
        question = add_preposition(PREPOSITIONS[verb.preposition, verb.case], determiner, adjective, noun)
    else:
        question = build_noun_phrase(determiner, adjective, noun, verb.case)
    return _ask(question, draw_gap(draw, verb, _draw_tense(draw, verb)))


def where(draw: Draw) -> Pair:
    """Where does Peter live? Where did they drive: German tells "wo" from "wohin"."""
    if draw() < 0.3:
        verb = pick(draw, _MOVING)
        return _ask(("where", "wohin"), draw_gap(draw, verb, _draw_tense(draw, verb)))
    verb = pick(draw, _SOMEWHERE)
    tense = _draw_tense(draw, verb)
    if verb.frame == "position":
        return _ask(("where", "wo"), draw_gap(draw, verb, tense))
    return _ask(("where", "wo"), draw_clause(draw, verb, (tense, NO_WORDS, NO_WORDS), adverbials=False))


def when_or_why(draw: Draw) -> Pair:
    """When did the train arrive? Why do you need a new coat?"""
    question, verbs = (("when", "wann"), ACTIONS) if draw() < 0.5 else (("why", "warum"), VERBS)
    verb = pick(draw, verbs)
    return _ask(question, draw_clause(draw, verb, (_draw_tense(draw, verb), NO_WORDS, NO_WORDS)))
