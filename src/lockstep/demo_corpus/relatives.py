"""Relative clauses: the pronoun takes gender and number from its noun and the case from its own clause."""

from lockstep.demo_corpus.clauses import Clause, Complement, build_clause, draw_clause, place_object
from lockstep.demo_corpus.determiners import THE, THE_PLURAL, A, Determiner
from lockstep.demo_corpus.german import GENITIVE, MANY, NOMINATIVE, RELATIVE, THIRD, find_slot
from lockstep.demo_corpus.lexicon import ASK, CLASSES, NOUNS, TAKING, VERBS, Noun, Verb
from lockstep.demo_corpus.phrases import PLURAL_SHARE, Subject, build_noun_phrase, draw_adjective, draw_subject
from lockstep.demo_corpus.questions import draw_gap
from lockstep.demo_corpus.sentences import put_subject_first
from lockstep.demo_corpus.tables import Draw, Pair, pick
from lockstep.demo_corpus.tenses import BARE_PAST, COPULA, PAST, PERFECT, PRESENT, PROGRESSIVE
from lockstep.demo_corpus.times import NO_WORDS, PAST_TIMES, draw_setting

_HEADS = (THE, THE, THE, THE_PLURAL, THE_PLURAL, A, A)
_TENSES = (PRESENT, PRESENT, PROGRESSIVE, BARE_PAST, BARE_PAST, PERFECT)
_DOING = tuple(verb for verb in VERBS if verb.personal)
_TRANSITIVE = tuple(verb for verb in VERBS if verb.frame == "object" and verb is not ASK)
_OWNED = CLASSES["relatives"] + CLASSES["pets"] + CLASSES["vehicles"] + CLASSES["rooms"]


def _draw_description(draw: Draw, subject: Subject, noun: Noun) -> Clause:
    adjective = pick(draw, noun.adjectives)
    group = COPULA[PAST if draw() < 0.4 else PRESENT][subject.agreement]
    return build_clause(subject, group, Complement(f" {adjective.english}", "", f" {adjective.german}"))


def _subordinate(clause: Clause) -> Pair:
    return f" {clause.english_statement()}", f", {clause.german_subordinate()}"


def draw_subject_relative(draw: Draw, verb: Verb, tense: int, noun: Noun, plural: bool) -> Pair:
    """Draws a clause in which the pronoun is the subject: " who lives in Berlin", ", der in Berlin wohnt"."""
    pronoun = RELATIVE[find_slot(noun.gender, plural, NOMINATIVE)]
    subject = Subject("who", pronoun, MANY if plural else THIRD)
    return _subordinate(draw_clause(draw, verb, (tense, NO_WORDS, NO_WORDS), subject, adverbials=False))


def draw_owner_relative(draw: Draw, owned: Noun, noun: Noun, plural: bool) -> Pair:
    """Draws a clause in which the pronoun is the owner: " whose dog is sick", ", dessen Hund krank ist"."""
    pronoun = RELATIVE[find_slot(noun.gender, plural, GENITIVE)]
    many = draw() < PLURAL_SHARE
    possession = f"{pronoun} {owned.german[many * 4]}"
    subject = Subject(f"whose {owned.english[many]}", possession, MANY if many else THIRD)
    return _subordinate(_draw_description(draw, subject, owned))


def draw_object_relative(draw: Draw, verb: Verb, tense: int, noun: Noun, plural: bool) -> Pair:
    """Draws a clause in which the pronoun is the object: " that she is waiting for", ", auf den sie wartet"."""
    pronoun = RELATIVE[find_slot(noun.gender, plural, verb.case)]
    german = f"{verb.preposition} {pronoun}" if verb.preposition else pronoun
    english = "whom" if noun.kind == "people" else "that"
    clause = draw_gap(draw, verb, tense)
    return f" {english} {clause.english_statement()}", f", {german} {clause.german_subordinate()}"


def _draw_other(draw: Draw, verbs: tuple[Verb, ...], main: Verb) -> Verb:
    """Draws a verb, usually another one than in the main clause."""
    verb = pick(draw, verbs)
    return pick(draw, verbs) if verb is main else verb


def draw_relative(draw: Draw, main: Verb, noun: Noun, plural: bool) -> Pair:
    """Draws a relative clause that fits the noun."""
    chance = draw()
    tense = pick(draw, _TENSES)
    if noun.kind == "people" and chance < 0.65:
        if chance < 0.5:
            return draw_subject_relative(draw, _draw_other(draw, _DOING, main), tense, noun, plural)
        return draw_owner_relative(draw, pick(draw, _OWNED), noun, plural)
    verb = _draw_other(draw, TAKING[noun], main)
    return draw_object_relative(draw, verb, PRESENT if verb.state and tense == PERFECT else tense, noun, plural)


def _draw_head(draw: Draw, noun: Noun) -> Determiner:
    return pick(draw, _HEADS) if noun.counted else THE


def at_subject(draw: Draw) -> Pair:
    """The woman who lives in Berlin called my brother. The book that I bought is boring."""
    noun = pick(draw, CLASSES["people"] if draw() < 0.6 else NOUNS)
    determiner = _draw_head(draw, noun)
    english, german = build_noun_phrase(determiner, None, noun, NOMINATIVE)
    verb = pick(draw, _DOING)
    who, der = draw_relative(draw, verb, noun, determiner.plural)
    subject = Subject(f"{english}{who}", f"{german}{der},", MANY if determiner.plural else THIRD)
    if noun.kind == "people" and draw() < 0.8:
        return put_subject_first(draw_clause(draw, verb, draw_setting(draw, verb), subject, adverbials=False))
    return put_subject_first(_draw_description(draw, subject, noun))


def at_object(draw: Draw) -> Pair:
    """Yesterday, he sold the car that his father loved: German puts the relative clause at the end."""
    verb = pick(draw, _TRANSITIVE)
    noun = pick(draw, verb.objects)
    determiner = _draw_head(draw, noun)
    english, german = build_noun_phrase(determiner, draw_adjective(draw, noun), noun, verb.case)
    that, das = draw_relative(draw, verb, noun, determiner.plural)
    subject = draw_subject(draw, verb.subjects, verb.personal)
    past = not verb.state and draw() < 0.5
    group = verb.groups[PAST if past else PRESENT][subject.agreement]
    clause = build_clause(subject, group, place_object(english, german, determiner))
    if past:
        time, zeit = pick(draw, pick(draw, PAST_TIMES))
        return (
            f"{time[1:]}, {clause.english_statement()}{that}.",
            f"{zeit[1:]} {clause.german_verb_first()}{das}.",
        )
    return f"{clause.english_statement()}{that}.", f"{clause.german_statement()}{das}."
