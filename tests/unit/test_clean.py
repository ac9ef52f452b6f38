import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.data.data_settings import DataSettings
from lockstep.data.text import lines as lines_module
from lockstep.data.text.clean import Reason, check_pieces, clean, count_reasons
from lockstep.data.text.lines import WHITESPACE, Lines, hash_pairs, mark_first
from lockstep.data.text.text_block import DecodedBlock

LIMITS: dict[str, Any] = {"max_words": 10, "max_ratio": 2.0, "max_pieces": 8}


def make(**more: Any) -> DataSettings:
    return DataSettings.model_validate({"folder": Path(), "train": ["t"], "validation": ["v"]} | LIMITS | more)


def fault(source: str, target: str, **more: Any) -> Reason | None:
    cleaned = clean(make(**more), DecodedBlock(f"{source}\n", f"{target}\n", {}))
    assert len(cleaned.source.sentences) == len(cleaned.target.sentences) == 1 - len(cleaned.removed)
    return next((pair.reason for pair in cleaned.removed), None)


def words(count: int, word: str = "w") -> str:
    return " ".join([word] * count)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (1, 1, None),
        (0, 3, "empty"),
        (3, 0, "empty"),
        (10, 10, None),
        (11, 10, "long"),
        (10, 11, "long"),
        (2, 7, None),
        (2, 8, "ratio"),
        (8, 2, "ratio"),
    ],
)
def test_pairs_are_judged_by_words_on_both_sides(source: int, target: int, expected: Reason | None) -> None:
    assert fault(words(source), words(target, "x")) == expected


def test_each_limit_can_be_switched_off() -> None:
    assert fault(words(50), words(50, "x"), max_words=None) is None
    assert fault(words(1), words(9, "x"), max_ratio=None) is None
    assert fault(words(9), words(9), max_identical=None) is None
    assert fault("привет", "hallo", max_foreign=1) is None
    assert fault("a\x07", "b", drop_control=False) is None


@pytest.mark.parametrize("character", ["\x00", "\x07", "\x1b", "\x7f", "\x80", "\x9f", "\ufffd", "\uffff", "\ue000"])
def test_control_private_use_and_replacement_characters_are_dropped(character: str) -> None:
    assert fault(f"a{character}b", "b") == "control"
    assert fault("b", f"a{character}") == "control"


@pytest.mark.parametrize(
    "text", ["soft\u00adhyphen", "zero\u200cwidth", "\u200fdirection", "tab\tand\u2028line", "e\u0301 😀"]
)
def test_unprintable_characters_that_belong_to_text_are_kept(text: str) -> None:
    assert fault(text, "x") is None


@pytest.mark.parametrize(("count", "expected"), [(1, None), (3, None), (4, "identical")])
def test_the_same_text_on_both_sides_is_dropped_if_it_is_longer_than_the_limit(
    count: int, expected: Reason | None
) -> None:
    assert fault(words(count), words(count)) == expected
    assert fault(words(count), words(count), max_identical=0) == "identical"


@pytest.mark.parametrize(
    ("languages", "source", "target", "expected"),
    [
        ("en de", "Hello there", "Привет всем", "script"),
        ("en de", "Привет всем", "Hallo zusammen", "script"),
        ("en de", "The word привет means hello", "Das Wort привет bedeutet hallo", None),
        ("en de", "Ærøskøbing, naïve, Łódź", "Größe „mit“ – Müll…", None),
        ("en de", "5² = 25", "½", None),
        ("en ru", "Hello there", "Hello there you", "script"),
        ("en ru", "Windows 11 is here", "Windows 11 уже вышла", None),
        ("en zh", "Use an Intel chip", "用 Intel 芯片", None),
        ("en zh", "A test", "A test of it", "script"),
        ("en ja", "Good morning", "おはようございます", None),
        ("en sr", "Good morning", "Добро јутро", None),
        ("en sr-Latn", "Good morning", "Добро јутро", "script"),
        ("en-GB vi", "Good morning", "Chào buổi sáng", None),
        ("en xx", "Good morning", "何でも", None),
    ],
)
def test_text_in_the_wrong_script_is_dropped(languages: str, source: str, target: str, expected: Reason | None) -> None:
    assert fault(source, target, languages=languages.split()) == expected


@pytest.mark.parametrize(
    ("languages", "source", "target", "expected"),
    [
        ("en uk", "GIF", "GIF", None),
        ("en uk", "%d x %d", "%d x %d", None),
        ("en uk", "Script-Fu Console", "Консоль Script-Fu", None),
        ("en uk", "Microsoft WMF file", "Файл Microsoft WMF", None),
        ("en uk", "OpenDocument Presentation file", "Файл OpenDocument Presentation", None),
        ("en uk", "Open Document Presentation file", "Open Document Presentation file", "identical"),
        ("en uk", "open a Microsoft Windows file", "öffne и Microsoft Windows Datei", "script"),
        ("en uk", "Save it", "Speichern", "script"),
        ("uk en", "Консоль Script-Fu", "Консоль Script-Fu Console", None),
        ("uk en", "Консоль", "Консоль", None),
        ("uk en", "Консоль", "Консоль тут", "script"),
        ("el en", "Αρχείο Adobe Photoshop Lightroom", "Adobe Photoshop Lightroom file", None),
        ("en ja", "AudioStop", "AudioStop", None),
        ("en ja", "Forward", "Forward", None),
        ("en ja", "CMYK value", "CMYK値", None),
        ("en ja", "please save all of your files", "please save all of your files", "identical"),
        ("ja en", "Please save your files", "ファイルを保存してください", "script"),
        ("en ja", "ファイルを保存してください、お願いします、本当に", "Please save your files", "script"),
    ],
)
def test_names_stay_between_scripts(languages: str, source: str, target: str, expected: Reason | None) -> None:
    assert fault(source, target, languages=languages.split()) == expected


def test_the_cleaning_of_earlier_versions_judges_scripts_as_before() -> None:
    old: dict[str, Any] = {"cleaning": 1, "languages": ["en", "uk"]}
    assert fault("GIF", "GIF", **old) == "script"
    assert fault("Script-Fu Console", "Консоль Script-Fu", **old) == "script"
    assert fault("Forward", "Forward", cleaning=1, languages=["en", "ja"]) == "identical"
    assert fault("no", "Good morning to you", cleaning=1, languages=["en", "ja"]) == "ratio"


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("Forward", 1), ("用 Intel 芯片", 3), ("用Intel Core芯片。", 4), ("%s: を開く", 3), ("a", 1)],
)
def test_latin_words_count_as_words_in_a_language_without_spaces(text: str, count: int) -> None:
    assert Lines.normalize(f"x\n{text}\n我\n").count_words("zh").tolist() == [1, count, 1]
    assert len(Lines("").count_words("zh")) == 0


def test_words_of_a_language_without_spaces_are_counted_by_characters() -> None:
    assert fault("I would like to drink a cup of tea", "我想喝一杯热的红茶。", languages=["en", "zh"]) is None
    assert fault("tea", "我" * 11, languages=["en", "zh"]) == "ratio"
    assert fault("no", "我" * 21, languages=["en", "zh"]) == "long"


def test_removed_pairs_are_counted_by_reason_and_the_rest_keep_their_order() -> None:
    pairs = [("a", "A"), ("", "A"), (words(11), "A"), (words(9), "A"), ("b", " "), ("  c\t d ", "C\r")]
    sides = ["".join(f"{pair[side]}\n" for pair in pairs) for side in (0, 1)]
    cleaned = clean(make(), DecodedBlock(sides[0], sides[1], {}))
    assert (cleaned.source.sentences, cleaned.target.sentences) == (["a", "c d"], ["A", "C"])
    assert cleaned.lines.tolist() == [0, 5]
    assert [(pair.line, pair.reason) for pair in cleaned.removed] == [
        (1, "empty"),
        (2, "long"),
        (3, "ratio"),
        (4, "empty"),
    ]


def test_all_whitespace_characters_are_known() -> None:
    assert set(WHITESPACE) == {chr(n) for n in range(sys.maxunicode + 1) if chr(n).isspace()} - {" ", "\n"}


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("ab  \t\r\u2028\xa0\u3000ä"), max_size=8), max_size=5))
def test_runs_of_whitespace_become_one_space(lines: list[str]) -> None:
    assert Lines.normalize("".join(f"{line}\n" for line in lines)).sentences == [
        " ".join(line.split()) for line in lines
    ]


def hash_texts(source: str, target: str) -> list[int]:
    return hash_pairs(Lines(source).hashes, Lines(target).hashes).tolist()


def test_the_hash_of_a_pair_depends_on_where_its_sides_meet() -> None:
    hashes = hash_texts("a\na b\na\nä\n", "b\nc\nb\n€\n")
    assert len(set(hashes)) == 3
    assert hashes[0] == hashes[2]
    assert hash_texts("a b\n", "c\n")[0] == hashes[1] != hash_texts("a\n", "b c\n")[0]
    assert hash_texts("", "") == []


@settings(deadline=None)
@given(st.lists(st.integers(0, 12).map(lambda n: n * (2**64 // 13)), max_size=40), st.sampled_from([1, 3, 100]))
def test_only_the_first_of_equal_hashes_is_marked(values: list[int], at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "HASHES_AT_ONCE", at_once)
        first = mark_first(np.array(values, np.uint64))
    assert first.tolist() == [value not in values[:place] for place, value in enumerate(values)]


def test_encoded_pairs_are_judged_and_counted_by_reason() -> None:
    lengths = np.array([[1, 9, 1, 1, 8], [1, 1, 0, 9, 8]])
    verdict = check_pieces(make(), *lengths)
    assert (verdict == 0).tolist() == [True, False, False, False, True]
    assert count_reasons(verdict) == Counter({"pieces": 2, "empty": 1})
    assert count_reasons(check_pieces(make(max_pieces=None), *lengths)) == Counter({"empty": 1})
