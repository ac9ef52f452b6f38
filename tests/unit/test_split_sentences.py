"""Sentences are found by rules, nothing of the text is lost, and no text takes more than linear time."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.translate.split_sentences import find_sentences, split_to_fit

ENGLISH = [
    "Dr. Smith met Mr. Jones and Mrs. Brown.|They left at 5 p.m. and came back.|It was late.",
    "The meeting is at 5 p.m. on Jan. 5 in St. Louis.|Nobody came.",
    "We like J. S. Bach, e.g. his fugues, i.e. the late ones.|Do you?|Yes!|I do.",
    "It costs 3.14 dollars.|See www.example.com/a.html for more.|Open notes.txt.|Then close it.",
    "1. First, wash it.|2. Then dry it.|Steps: 1. Open the door.|2. Close it.",
    'He said: "Go away."|Then he left.|"What?" she asked.|“Nothing.”|It was over.',
    "He came (I saw it. It was late.) and left.|(Nobody knew. Nobody cared.)|The end.",
    "Well... perhaps.|Wait…|Then it rained. it had no capital.|Really?!|No.",
    "He was 42.|John was not.|In 1990. the line went on.|World War II.|John left.",
    "He works for Acme Inc. and lives in the U.S. Army base.|He said no.|John said yes.|See No. 5 and Fig. 3.",
    "Apples, pears, etc.|The rest is vs. Smith et al. in vol. 3, pp. 5.|iPhones are popular.|eBay sells them.",
    "He loves art.|Mary loves Art. 5 of it.|Vitamin C.|It helps.|J.-P. Sartre wrote it.|Wait . . . what?",
    "It is known.[1][2]|Others disagree.[3]|Yes.",
]
GERMAN = [
    "Wir kommen am 3. Mai, d. h. bald.|Das ist z. B. Berlin, bzw. Nr. 5.|Gut.",
    "Friedrich II. von Preußen lebte im 18. Jahrhundert.|Ludwig XIV. Nachfolger kam.|Er war jung.",
    "Siehe Abb. 3, Tab. 4 usw.|Die Frau Prof. Dr. Müller kam.|„Ja.“|Er ging.|»Nein!«|Sie blieb.",
    "Die Frist endet am 25.12. um acht.|Es kostet 3.50 Euro, z.B. Der Spiegel. i. d. R. Peter.|Das war 1990.|Peter kam.",
    "Die GmbH & Co. KG zahlt ca. 5 Mio. Euro.|Vgl. Kap. 3.|Danach folgt Art. 5 Abs. 2 GG.|Ende.",
    "Er wurde 500 v. Chr. geboren.|Dipl.-Ing. Maier u. a. Leute kamen.|Sie kamen um 9.|Dann gingen sie.",
]
OTHER = [
    "我喜欢你。|你呢？|好！|他说：“好。”|然后走了。",
    "「行く。」と言った。|彼は去った。|本当？|はい",
    "هل أنت بخير؟|نعم.|شكرا",
    "यह अच्छा है।|वह गया॥|ठीक",
    "Это правда.|А. С. Пушкин писал стихи.|Да!",
    "¿Qué?|¡Hola!|Quoi ?|Non !",
]


def split(text: str, language: str = "") -> list[str]:
    return [text[begin:end] for begin, end in find_sentences(text, language)]


@pytest.mark.parametrize(
    ("marked", "language"),
    [(text, "en") for text in ENGLISH] + [(text, "de") for text in GERMAN] + [(text, "") for text in OTHER],
)
def test_sentences_end_where_they_should(marked: str, language: str) -> None:
    joint = "" if marked in OTHER[:2] else " "
    assert split(marked.replace("|", joint), language) == marked.split("|")


def test_a_blank_line_ends_a_sentence() -> None:
    assert split("A title\n \nof two lines\nand text. More") == ["A title", "of two lines\nand text.", "More"]


AWKWARD = st.sampled_from(
    [
        *".!?…。？؟।;:,–-()[]「」\"'“”»«",
        " ",
        "\n",
        "\u00a0",
        "\u3000",
        "A",
        "a",
        "z",
        "B",
        "5",
        "Dr",
        "The",
        "語",
        "é",
        "\u0301",
        "😀",
    ]
)
TEXTS = st.one_of(st.text(), st.lists(AWKWARD, max_size=60).map("".join))


@given(TEXTS, st.sampled_from(["", "en", "de"]))
def test_sentences_and_the_whitespace_between_them_are_the_text(text: str, language: str) -> None:
    rebuilt, position = "", 0
    for begin, end in find_sentences(text, language):
        assert text[position:begin].strip() == ""
        assert text[begin:end] == text[begin:end].strip() != ""
        rebuilt, position = rebuilt + text[position:end], end
    assert rebuilt + text[position:] == text
    assert text[position:].strip() == ""


def count_words(texts: list[str]) -> list[int]:
    """A stand-in for pieces: three characters of a word are one."""
    return [sum(-(-len(word) // 3) for word in text.split()) for text in texts]


@given(TEXTS, st.integers(1, 12), st.booleans())
def test_every_part_fits_and_nothing_but_whitespace_is_lost(text: str, limit: int, has_spaces: bool) -> None:
    parts = split_to_fit(text, limit, count_words, "", has_spaces)
    too_long = {i for i, size in enumerate(count_words(parts.texts)) if size > limit}
    assert too_long == parts.untranslatable
    assert not too_long or has_spaces
    assert all(len(parts.texts[i].split()) == 1 for i in too_long)
    assert all(part == part.strip() != "" for part in parts.texts)
    assert "".join("".join(parts.texts).split()) == "".join(text.split())


def test_a_sentence_that_is_too_long_is_divided_at_clauses_first() -> None:
    text = "One two three; four five six, seven eight nine. Short."
    assert split_to_fit(text, 100, count_words).texts == ["One two three; four five six, seven eight nine.", "Short."]
    parts = split_to_fit(text, 9, count_words)
    assert parts.texts == ["One two three;", "four five six,", "seven eight nine.", "Short."]
    assert (parts.cut_sentences, parts.untranslatable) == (1, set())
    parts = split_to_fit(text, 3, count_words)
    assert parts.texts[:2] == ["One two", "three;"]
    assert split_to_fit("no capital. none here. nor here.", 6, count_words).texts == [
        "no capital.",
        "none here.",
        "nor here.",
    ]


def test_a_word_that_is_too_long_stays_whole() -> None:
    parts = split_to_fit("Read " + "x" * 500 + " first. Then go.", 10, count_words)
    assert parts.texts == ["Read", "x" * 500, "first.", "Then go."]
    assert parts.untranslatable == {1}


def test_a_language_without_spaces_is_cut_between_letters() -> None:
    parts = split_to_fit("e\u0301" * 50, 10, count_words, has_spaces=False)
    assert not any(part.startswith("\u0301") for part in parts.texts)
    assert "".join(parts.texts) == "e\u0301" * 50


HUGE = 200_000
PATTERNS = [
    "x",
    ".",
    ".x",
    ". ",
    "(",
    ". (",
    ".'",
    "'",
    " ",
    "\n ",
    "a. ",
    "Z. ",
    "1. ",
    ".[1]",
    ".[",
    '…" ',
    ",",
    "- ",
    "e\u0301",
    "。",
    "語",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_text_takes_more_than_linear_time(pattern: str) -> None:
    """With a quadratic pattern this test would not end."""
    text = pattern * (HUGE // len(pattern)) + "x. A"
    parts = split_to_fit(text, 250, count_words, has_spaces=False)
    assert sum(map(len, parts.texts)) <= len(text)


def test_the_module_needs_neither_torch_nor_numpy() -> None:
    program = "import sys, lockstep.translate.split_sentences; print('torch' in sys.modules, 'numpy' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown == "False False\n"
