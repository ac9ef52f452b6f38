"""Normalization of training text and of what a model translates."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep import demo_corpus
from lockstep.data.corpus.vocabulary import Vocabulary, train
from lockstep.data.data_settings import VocabularySettings
from lockstep.data.text.normalize import normalize_lines, normalize_text

SAMPLES = [
    ("Tom &amp; Jerry", "Tom & Jerry", "entities"),
    ("&quot;so&quot; &#39;it&#x27; is", "\"so\" 'it' is", "entities"),
    ("twice &amp;quot;escaped&amp;quot;", 'twice "escaped"', "entities"),
    ("thrice &amp;amp;lt;b&amp;#62;", "thrice <b>", "entities"),
    ("a&#10;b", "a b", "entities"),
    ("AT&T ?a=1&copy=2 &unknown; R&D; &", "AT&T ?a=1&copy=2 &unknown; R&D; &", None),
    ("soft\u00adhyphen \ufeffmark zero\u200bwidth", "softhyphen mark zerowidth", "invisible"),
    ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", None),
    ("\u0915\u094d\u200d\u0937", "\u0915\u094d\u200d\u0937", None),
    ("\U0001f468\u200d\U0001f469", "\U0001f468\u200d\U0001f469", None),
    ("Auf\u200clage a\u200db", "Auflage ab", "invisible"),
    ("cafe\u0301", "caf\u00e9", "unicode"),
    ("10\u00a0000\u202f\u20ac", "10 000 \u20ac", "spaces"),
    ("Straße, 漢字 ½ …", "Straße, 漢字 ½ …", None),
]


@pytest.mark.parametrize(("text", "expected", "change"), SAMPLES)
def test_text_is_normalized_and_the_change_counted(text: str, expected: str, change: str | None) -> None:
    assert normalize_text(text) == expected
    lines, changed = normalize_lines(f"plain\n{text}\n")
    assert lines == f"plain\n{expected}\n"
    assert changed == ({} if change is None else {change: [1]})


@settings(deadline=None)
@given(st.text(st.sampled_from("a&;#x3amplquot8é\u0301\u200b\u200d\u00ad\u00a0 \u0915"), max_size=30))
def test_lines_and_text_are_normalized_alike(text: str) -> None:
    lines, _ = normalize_lines(f"{text}\n")
    assert " ".join(lines.split()) == normalize_text(text)


def test_the_grammar_needs_no_normalization() -> None:
    for _, pair in zip(range(2000), demo_corpus.generate_pairs(1, "train"), strict=False):
        assert tuple(map(normalize_text, pair)) == pair


def test_input_is_normalized_only_for_models_that_were_trained_so(tmp_path: Path) -> None:
    model = train(VocabularySettings(size=270), ["ab ba", "a&b; ab", "abba baab"] * 5)
    (tmp_path / "v").write_bytes(model)
    new, old = Vocabulary.load(tmp_path / "v", normalizes=True), Vocabulary.load(tmp_path / "v")
    assert new.encode(["ab&nbsp;b\u200ba"]) == old.encode(["ab ba"]) != old.encode(["ab&nbsp;b\u200ba"])
