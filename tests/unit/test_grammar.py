"""The grammar gives correct German and one translation per English sentence, and held-out sentences stay held out."""

import re
from itertools import islice

import pytest

from lockstep.demo_corpus import Split, choose_split, generate_pairs
from lockstep.demo_corpus.adverbials import PREPOSITIONS, add_preposition, build_goal, build_place
from lockstep.demo_corpus.clauses import NOTHING, Clause, Complement, build_clause, place_object
from lockstep.demo_corpus.determiners import (
    ALL,
    BARE,
    BARE_PLURAL,
    EVERY,
    MANY,
    NAMES_GENITIVE,
    NOT_A,
    POSSESSIVES,
    SOME,
    THE,
    THE_PLURAL,
    THESE,
    THIS,
    A,
    Determiner,
    build_numeral,
)
from lockstep.demo_corpus.german import ACCUSATIVE, DATIVE, GENITIVE, NOMINATIVE, RELATIVE, find_slot
from lockstep.demo_corpus.lexicon import ADJECTIVES, NOUN, NOUNS, VERBS, find_verb
from lockstep.demo_corpus.numbers import MONTHS, WEEKDAYS, list_clock_times, list_dates, spell_number
from lockstep.demo_corpus.patterns import PERCENT
from lockstep.demo_corpus.phrases import (
    HE,
    NAMES,
    SHE,
    SPEAKER,
    THEY,
    WE,
    YOU,
    Subject,
    build_noun_phrase,
    build_noun_subject,
    build_owned_phrase,
)
from lockstep.demo_corpus.sentences import put_adverbial_first, put_subject_first
from lockstep.demo_corpus.tables import Pair, read_rows
from lockstep.demo_corpus.tenses import CAN, FUTURE, HAS_TO, PASSIVE_PAST, PAST, PERFECT, PRESENT, PROGRESSIVE
from lockstep.demo_corpus.words import CITIES

ADJECTIVE = {adjective.english: adjective for adjective in ADJECTIVES}
MY, _, HIS, HER, _, _ = POSSESSIVES
TWO, TWENTY_ONE = build_numeral(2, in_words=True), build_numeral(21, in_words=True)
THREE_IN_DIGITS = build_numeral(3, in_words=False)
YESTERDAY = (" yesterday", " gestern")
TODAY = (" today", " heute")
OFTEN = (" often", " oft")


@pytest.fixture(scope="module")
def corpus() -> list[Pair]:
    return list(islice(generate_pairs(7, "train"), 60_000))


@pytest.mark.parametrize(
    ("determiner", "adjective", "noun", "case", "english", "german"),
    [
        (THE, "old", "man", NOMINATIVE, "the old man", "der alte Mann"),
        (A, "old", "man", NOMINATIVE, "an old man", "ein alter Mann"),
        (A, "old", "man", ACCUSATIVE, "an old man", "einen alten Mann"),
        (A, "honest", "man", DATIVE, "an honest man", "einem ehrlichen Mann"),
        (A, None, "university", ACCUSATIVE, "a university", "eine Universität"),
        (A, "small", "child", ACCUSATIVE, "a small child", "ein kleines Kind"),
        (THE, None, "student", ACCUSATIVE, "the student", "den Studenten"),
        (THIS, "nice", "neighbour", DATIVE, "this nice neighbour", "diesem netten Nachbarn"),
        (THE, None, "bus", GENITIVE, "the bus", "des Busses"),
        (THE_PLURAL, "old", "teacher", DATIVE, "the old teachers", "den alten Lehrern"),
        (BARE_PLURAL, "red", "car", ACCUSATIVE, "red cars", "rote Autos"),
        (BARE, "cold", "beer", DATIVE, "cold beer", "kaltem Bier"),
        (BARE, "hot", "coffee", NOMINATIVE, "hot coffee", "heißer Kaffee"),
        (BARE, "fresh", "milk", DATIVE, "fresh milk", "frischer Milch"),
        (EVERY, "expensive", "dress", ACCUSATIVE, "every expensive dress", "jedes teure Kleid"),
        (MANY, "tired", "woman", NOMINATIVE, "many tired women", "viele müde Frauen"),
        (SOME, None, "child", DATIVE, "some children", "einigen Kindern"),
        (ALL, "dark", "kitchen", NOMINATIVE, "all dark kitchens", "alle dunklen Küchen"),
        (THESE, "modern", "house", DATIVE, "these modern houses", "diesen modernen Häusern"),
        (MY, "big", "dog", NOMINATIVE, "my big dog", "mein großer Hund"),
        (NOT_A, "new", "book", ACCUSATIVE, "a new book", "kein neues Buch"),
        (NAMES_GENITIVE[0], "old", "friend", DATIVE, "Anna's old friend", "Annas altem Freund"),
        (TWENTY_ONE, "green", "apple", DATIVE, "twenty-one green apples", "einundzwanzig grünen Äpfeln"),
        (THREE_IN_DIGITS, None, "cup of tea", ACCUSATIVE, "3 cups of tea", "3 Tassen Tee"),
        (TWO, "big", "glass of milk", DATIVE, "two big glasses of milk", "zwei großen Gläsern Milch"),
    ],
)
def test_determiner_adjective_and_noun_agree(
    determiner: Determiner, adjective: str | None, noun: str, case: int, english: str, german: str
) -> None:
    assert build_noun_phrase(determiner, ADJECTIVE[adjective] if adjective else None, NOUN[noun], case) == (
        english,
        german,
    )


def test_the_german_possessor_follows_its_noun() -> None:
    owner = ("my sister's", "meiner Schwester")
    phrase = build_owned_phrase(owner, False, ADJECTIVE["old"], NOUN["car"], DATIVE)
    assert phrase == ("my sister's old car", "dem alten Auto meiner Schwester")


@pytest.mark.parametrize(
    ("phrase", "english", "german"),
    [
        (build_place(THE, None, NOUN["garden"]), " in the garden", " im Garten"),
        (build_place(A, ADJECTIVE["small"], NOUN["hotel"]), " in a small hotel", " in einem kleinen Hotel"),
        (build_place(THE, None, NOUN["market"]), " at the market", " auf dem Markt"),
        (build_place(THE, ADJECTIVE["old"], NOUN["beach"]), " on the old beach", " am alten Strand"),
        (build_goal(THE, None, NOUN["museum"]), " to the museum", " ins Museum"),
        (build_goal(THE, ADJECTIVE["new"], NOUN["station"]), " to the new station", " zum neuen Bahnhof"),
        (build_goal(THE, None, NOUN["university"]), " to the university", " zur Universität"),
        (build_goal(THE, None, NOUN["island"]), " to the island", " auf die Insel"),
        (build_goal(HIS, None, NOUN["office"]), " to his office", " in sein Büro"),
        (add_preposition(PREPOSITIONS["von", DATIVE], THE, None, NOUN["boy"]), "the boy", "vom Jungen"),
        (add_preposition(PREPOSITIONS["von", DATIVE], THE_PLURAL, None, NOUN["boy"]), "the boys", "von den Jungen"),
        (add_preposition(PREPOSITIONS["ohne", ACCUSATIVE], HER, None, NOUN["uncle"]), "her uncle", "ohne ihren Onkel"),
    ],
)
def test_prepositions_govern_their_case_and_contract(phrase: Pair, english: str, german: str) -> None:
    assert phrase == (english, german)


@pytest.mark.parametrize(
    ("base", "tense", "subject", "english", "main", "dependent"),
    [
        ("call", PRESENT, SHE, "she calls", "sie ruft an", "sie anruft"),
        ("call", PAST, SHE, "she called", "sie hat angerufen", "sie angerufen hat"),
        ("call", PROGRESSIVE, THEY, "they are calling", "sie rufen an", "sie anrufen"),
        ("invite", PRESENT, HE, "he invites", "er lädt ein", "er einlädt"),
        ("go shopping", PERFECT, WE, "we have gone shopping", "wir haben eingekauft", "wir eingekauft haben"),
        ("get up", PAST, SPEAKER, "I got up", "ich bin aufgestanden", "ich aufgestanden bin"),
        ("help", PRESENT, HE, "he helps", "er hilft", "er hilft"),
        ("know", PRESENT, SPEAKER, "I know", "ich kenne", "ich kenne"),
        ("have", PAST, YOU, "you had", "Sie hatten", "Sie hatten"),
        ("like", PRESENT, SPEAKER, "I like", "ich mag", "ich mag"),
        ("feed", PRESENT, SPEAKER, "I feed", "ich füttere", "ich füttere"),
        ("smile", PRESENT, SPEAKER, "I smile", "ich lächle", "ich lächle"),
        ("repair", PAST, HE, "he repaired", "er hat repariert", "er repariert hat"),
        ("prepare", PAST, WE, "we prepared", "wir haben vorbereitet", "wir vorbereitet haben"),
        ("translate", FUTURE, HE, "he will translate", "er wird übersetzen", "er übersetzen wird"),
        ("swim", CAN, SHE, "she can swim", "sie kann schwimmen", "sie schwimmen kann"),
        ("work", HAS_TO, HE, "he has to work", "er muss arbeiten", "er arbeiten muss"),
        ("see", PASSIVE_PAST, THEY, "they were seen", "sie wurden gesehen", "sie gesehen wurden"),
    ],
)
def test_verbs_are_conjugated_and_split(
    base: str, tense: int, subject: Subject, english: str, main: str, dependent: str
) -> None:
    clause = build_clause(subject, find_verb(base).groups[tense][subject.agreement])
    assert (clause.english_statement(), clause.german_statement(), clause.german_subordinate()) == (
        english,
        main,
        dependent,
    )


def _reading(
    subject: Subject,
    base: str,
    tense: int,
    complement: Complement = NOTHING,
    time: Pair = ("", ""),
    adverb: Pair = ("", ""),
    negated: bool = False,
) -> Clause:
    group = find_verb(base).groups[tense][subject.agreement]
    return build_clause(subject, group, complement, time=time, adverb=adverb, negated=negated)


OLD_MAN = build_noun_subject(THE, ADJECTIVE["old"], NOUN["man"])
THE_BOOK = place_object("the book", "das Buch", THE)
A_BOOK = place_object("a book", "ein Buch", A)
NO_BOOK = place_object("a book", "kein Buch", NOT_A)
HIS_SISTER = place_object("his sister", "seine Schwester", HIS)


@pytest.mark.parametrize(
    ("sentence", "english", "german"),
    [
        (
            put_adverbial_first(_reading(OLD_MAN, "read", PROGRESSIVE, THE_BOOK), TODAY),
            "today, the old man is reading the book.",
            "heute liest der alte Mann das Buch.",
        ),
        (
            put_subject_first(_reading(OLD_MAN, "read", PAST, THE_BOOK, YESTERDAY)),
            "the old man read the book yesterday.",
            "der alte Mann hat das Buch gestern gelesen.",
        ),
        (
            put_subject_first(_reading(OLD_MAN, "read", PAST, A_BOOK, YESTERDAY)),
            "the old man read a book yesterday.",
            "der alte Mann hat gestern ein Buch gelesen.",
        ),
        (
            put_subject_first(_reading(OLD_MAN, "read", PRESENT, A_BOOK, adverb=OFTEN)),
            "the old man often reads a book.",
            "der alte Mann liest oft ein Buch.",
        ),
        (
            put_subject_first(_reading(HE, "call", PRESENT, HIS_SISTER, TODAY, negated=True)),
            "he does not call his sister today.",
            "er ruft seine Schwester heute nicht an.",
        ),
        (
            put_subject_first(_reading(HE, "read", CAN, NO_BOOK, negated=True)),
            "he cannot read a book.",
            "er kann kein Buch lesen.",
        ),
    ],
)
def test_main_clauses_keep_the_german_order(sentence: Pair, english: str, german: str) -> None:
    assert sentence == (english, german)


def test_question_and_subordinate_clause_move_the_verb() -> None:
    clause = _reading(HE, "call", PRESENT, HIS_SISTER)
    assert clause.english_question() == "does he call his sister"
    assert clause.german_verb_first() == "ruft er seine Schwester an"
    assert clause.german_subordinate() == "er seine Schwester anruft"
    assert find_verb("call").german.zu_infinitive == "anzurufen"


@pytest.mark.parametrize(
    ("noun", "plural", "case", "pronoun"),
    [
        ("man", False, ACCUSATIVE, "den"),
        ("woman", False, DATIVE, "der"),
        ("child", False, GENITIVE, "dessen"),
        ("book", True, NOMINATIVE, "die"),
        ("student", True, DATIVE, "denen"),
    ],
)
def test_relative_pronoun_has_gender_of_its_noun_and_own_case(noun: str, plural: bool, case: int, pronoun: str) -> None:
    assert RELATIVE[find_slot(NOUN[noun].gender, plural, case)] == pronoun


def test_numbers_dates_and_clock_times_are_spelled_as_spoken() -> None:
    assert [spell_number(number)[1] for number in (7, 16, 17, 21, 30, 66, 98)] == [
        "sieben",
        "sechzehn",
        "siebzehn",
        "einundzwanzig",
        "dreißig",
        "sechsundsechzig",
        "achtundneunzig",
    ]
    clock = dict(list_clock_times())
    assert clock["one o'clock"] == "ein Uhr"
    assert clock["half past twelve"] == "halb eins"
    assert clock["a quarter to one"] == "Viertel vor eins"
    assert dict(list_dates())["on 3 May"] == "am 3. Mai"


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_same_seed_gives_same_stream(split: Split) -> None:
    first = list(islice(generate_pairs(3, split), 15))
    assert first == list(islice(generate_pairs(3, split), 15))
    assert first != list(islice(generate_pairs(4, split), 15))


def test_splits_share_no_sentence_in_either_language(corpus: list[Pair]) -> None:
    held_out = {split: list(islice(generate_pairs(7, split), 200)) for split in ("validation", "test")}
    for language in (0, 1):
        seen = [{pair[language] for pair in part} for part in (corpus, *held_out.values())]
        assert sum(map(len, seen)) == len(set.union(*seen))


def test_held_out_streams_never_repeat() -> None:
    stream = list(islice(generate_pairs(1, "test"), 150))
    assert len(set(stream)) == len(stream)
    assert {choose_split(german) for _, german in stream} == {"test"}


def test_an_english_sentence_has_one_translation(corpus: list[Pair]) -> None:
    translations: dict[str, str] = {}
    for english, german in corpus:
        assert translations.setdefault(english, german) == german


def test_every_sentence_is_well_formed(corpus: list[Pair]) -> None:
    sides = [side for pair in corpus for side in pair]
    assert [side for side in sides if not side[0].isupper() or side[-1] not in ".!?"] == []
    text = "\n".join(sides)
    for broken in ("  ", "None", " .", " ,", " ?", " !", "..", ",,", ",.", ",?", "()", "/", "|", "*", "{", "-\n"):
        assert broken not in text


def test_every_word_of_the_lexicon_occurs(corpus: list[Pair]) -> None:
    english = " ".join(pair[0] for pair in corpus)
    german = " ".join(pair[1] for pair in corpus)
    words_en, words_de = set(re.findall(r"[\w'-]+", english)), set(re.findall(r"[\w-]+", german))
    expected_en = {spell_number(number)[0] for number in range(2, 100)} | set(NAMES)
    expected_en |= {english for english, _ in (*WEEKDAYS, *MONTHS)} | {row[0] for row in read_rows(CITIES)}
    expected_de = {one.participle for one in (verb.german for verb in VERBS)}
    expected_de |= {form for noun in NOUNS for form in " ".join((noun.german[0], noun.german[4])).split()}
    expected_de |= {form for adjective in ADJECTIVES for form in (adjective.german, *adjective.attributive[:2])}
    assert expected_en - words_en == set()
    assert expected_de - words_de == set()


def test_percentages_add_up_and_no_pattern_is_rare() -> None:
    assert sum(PERCENT.values()) == 100
    assert min(PERCENT.values()) >= 1
