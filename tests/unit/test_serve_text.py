"""The server's text: only sentences change, everything around them stays as it was; and the language is guessed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.serve.detect_language import guess_language
from lockstep.serve.html_parts import escape_text, split_html
from lockstep.serve.sentence_parts import split_text

WITHOUT_SPACES = "zh"
"""A target language in which no space is added between sentences."""
SNIPPETS = [
    "A dog. ",
    "He ran!",
    "<b>",
    "</b>",
    "<p a='1 > 0'>",
    "<br/>",
    "&amp; ",
    "&nbsp;",
    "é",
    "\r\n",
    "\u2028",
    "<!-- c -->",
]
SNIPPETS += [
    "<script>",
    "</script>",
    "<pre>",
    "</pre>",
    "<",
    "&",
    "<!doctype html>",
    "<![x[",
    "<a ",
    "42. ",
    "。猫。",
    "\t",
    " ",
]


def shout_html(html: str) -> str:
    parts = split_html(html, "en")
    return parts.join([sentence.upper() for sentence in parts.sentences], "de", escape_text)


@given(st.text() | st.lists(st.sampled_from(SNIPPETS)).map("".join))
def test_a_text_of_untranslated_sentences_is_the_same_text(text: str) -> None:
    parts = split_text(text, "en")
    assert parts.join(parts.sentences, WITHOUT_SPACES) == text


@given(st.text() | st.lists(st.sampled_from(SNIPPETS)).map("".join))
def test_any_html_is_split_and_keeps_its_markup(html: str) -> None:
    parts = split_html(html, "en")
    again = split_html(parts.join(parts.sentences, WITHOUT_SPACES, escape_text), "en")
    assert [gap for gap in again.gaps if "<" in gap] == [gap for gap in parts.gaps if "<" in gap]
    assert again.sentences == parts.sentences


def test_line_breaks_and_whitespace_stay() -> None:
    text = "  \n One dog.  Two dogs!\r\n\r\n\tThree\u00a0dogs \n"
    parts = split_text(text, "en")
    assert parts.sentences == ["One dog.", "Two dogs!", "Three\u00a0dogs"]
    assert parts.join(["A", "B", "C"], "de") == "  \n A  B\r\n\r\n\tC \n"


def test_text_without_letters_is_not_translated() -> None:
    parts = split_text("***\n42\nOne. 😀\n", "en")
    assert parts.sentences == ["One."]
    assert parts.gaps == ["***\n42\n", " 😀\n"]


def test_a_language_with_spaces_gets_them_between_sentences() -> None:
    parts = split_text("猫が寝る。犬が走る。", "ja")
    assert parts.sentences == ["猫が寝る。", "犬が走る。"]
    assert parts.join(["A cat sleeps.", "A dog runs."], "en") == "A cat sleeps. A dog runs."
    assert parts.join(["猫。", "狗。"], "zh") == "猫。狗。"


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>a dog</p>", "<p>A DOG</p>"),
        ("<p title='a dog'>a <b class=x>big</b> dog.</p>", "<p title='a dog'>A <b class=x>BIG</b> DOG.</p>"),
        ("a dog<br>\n  a cat ", "A DOG<br>\n  A CAT "),
        ("&nbsp;a &amp; b &lt;i&gt;&#160;", "&nbsp;A &amp; B &lt;I&gt;&#160;"),
        ("<!-- a dog -->a", "<!-- a dog -->A"),
        ("<script>let a = '<b>';</script>a", "<script>let a = '<b>';</script>A"),
        ("<style>a > b {}</style><pre>a <b>b</b></pre><code>x</code>a", None),
        ("<pre><pre>a</pre>b</pre>a", "<pre><pre>a</pre>b</pre>A"),
        ("<p translate=no>a <b>b</b> c</p><img translate=no>a", "<p translate=no>a <b>b</b> c</p><img translate=no>A"),
        ("<!DOCTYPE html><title>a</title>", "<!DOCTYPE html><title>A</title>"),
        ("<p>© 2026 — 42 %</p>", "<p>© 2026 — 42 %</p>"),
        ("1 < 2 and a", "1 &lt; 2 AND A"),
        ("<p>a</p><p class='x", "<p>A</p><p class='x"),
        ("<![CDATA[a]]>b<?php a ?>c", "<![CDATA[a]]>B<?php a ?>C"),
    ],
)
def test_only_text_nodes_of_html_change(html: str, expected: str | None) -> None:
    assert shout_html(html) == (expected or html[:-1] + "A")


def test_the_sentences_of_a_text_node_are_separate() -> None:
    parts = split_html("<p>One &quot;dog&quot;.&nbsp; Two.</p>", "en")
    assert parts.sentences == ['One "dog".', "Two."]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("A man is riding a bicycle through the park.", "en"),
        ("Ein Mann fährt mit dem Fahrrad durch den Park.", "de"),
        ("EIN MANN FÄHRT MIT DEM FAHRRAD DURCH DEN PARK", "de"),
    ],
)
def test_the_language_of_a_sentence_is_guessed(text: str, language: str) -> None:
    first, second = guess_language([text], ["en", "de"])
    assert first.language == language
    assert first.probability > 0.9 > second.probability


def test_another_language_is_no_confident_guess() -> None:
    guesses = guess_language(["Un homme traverse le parc à vélo avec son chien."], ["en", "de"])
    assert {guess.language for guess in guesses} == {"en", "de"}
    assert guesses[0].probability < 0.1


@pytest.mark.parametrize(("sentences", "languages"), [([], ["en", "de"]), ([" "], ["en"]), (["text"], ["qaa", "qab"])])
def test_a_guess_without_evidence_has_no_probability(sentences: list[str], languages: list[str]) -> None:
    guesses = guess_language(sentences, languages)
    assert [(guess.language, guess.probability) for guess in guesses] == [(code, 0.0) for code in languages]
