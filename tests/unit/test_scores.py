"""Scores of texts: they are those of sacreBLEU's own command, with intervals and tests, by length and by sentence."""

import gzip
import random
import sys
from itertools import islice
from pathlib import Path

import pytest
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from sacrebleu.tokenizers.tokenizer_re import TokenizerRegexp

from lockstep.demo_corpus import generate_pairs
from lockstep.errors import LockstepError
from lockstep.translate import scores
from lockstep.translate.compare_systems import ScoreDifference
from lockstep.translate.score_files import read_pairs
from lockstep.translate.score_sentences import pick_most_different, pick_worst, score_by_length, score_sentences
from lockstep.translate.score_texts import ParallelText, ScoringSettings, evaluate_texts, prepare_scoring
from lockstep.translate.scores import check_resamples, compute_bleu, compute_chrf, list_metrics, score_systems
from sacrebleu_command import run_paired, run_with_confidence


def spoil(sentence: str, draw: random.Random, share: float) -> str:
    """Replaces some words, and leaves out others."""
    words = [draw.choice(("", "und", "Haus")) if draw.random() < share else word for word in sentence.split()]
    return " ".join(filter(None, words))


@pytest.fixture(scope="module")
def text() -> ParallelText:
    pairs = list(islice(generate_pairs(3, "test"), 60))
    return ParallelText("demo", [english for english, _ in pairs], [german for _, german in pairs], ("en", "de"))


@pytest.fixture(scope="module")
def systems(text: ParallelText) -> list[list[str]]:
    draw = random.Random(1)
    return [[spoil(sentence, draw, share) for sentence in text.references] for share in (0.25, 0.2)]


@pytest.fixture(scope="module")
def files(text: ParallelText, systems: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The reference and the translations of both systems."""
    folder, paths = tmp_path_factory.mktemp("texts"), []
    for number, lines in enumerate([text.references, *systems]):
        paths.append(folder / f"{number}.txt")
        paths[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def test_scores_and_intervals_are_those_of_sacrebleu(
    text: ParallelText, systems: list[list[str]], files: list[Path]
) -> None:
    expected = run_with_confidence(*files[:2])
    for metric, theirs in zip(list_metrics("plain", "de"), expected, strict=True):
        (own,), p_value = score_systems(metric, systems[:1], text.references, 1000)
        assert own.value == pytest.approx(theirs["score"], abs=1e-6)
        assert own.mean == pytest.approx(theirs["confidence_mean"], abs=5e-5)  # the mean of chrF has single precision
        assert own.margin == pytest.approx(theirs["confidence_var"], abs=5e-5)
        assert own.signature == theirs["signature"]
        assert p_value is None


def test_the_comparison_of_two_systems_is_that_of_sacrebleu(
    text: ParallelText, systems: list[list[str]], files: list[Path]
) -> None:
    first, second = run_paired(files[0], files[1:])
    for metric, *expected in zip(list_metrics("plain", "de"), first, second, strict=True):
        own, p_value = score_systems(metric, systems, text.references, 1000)
        for score, theirs in zip(own, expected, strict=True):
            assert score.value == pytest.approx(theirs.score, abs=1e-6)
            assert score.mean == pytest.approx(theirs.mean, abs=2e-6)
            assert score.margin == pytest.approx(theirs.margin, abs=2e-6)
        assert p_value == pytest.approx(expected[1].p_value, abs=5.1e-5)
        assert p_value is not None
        assert 0.005 < p_value < 0.5


def test_a_score_leaves_no_sentences_in_memory(text: ParallelText) -> None:
    """Every evaluation of a training computes one."""
    for tokenizer in (Tokenizer13a, TokenizerRegexp):
        tokenizer.__call__.cache_clear()
    compute_bleu(text.references, text.references)
    assert [tokenizer.__call__.cache_info().currsize for tokenizer in (Tokenizer13a, TokenizerRegexp)] == [0, 0]


def test_scores_without_intervals_are_the_same(text: ParallelText, systems: list[list[str]]) -> None:
    bleu, chrf = list_metrics("plain", "de")
    for metric, compute in ((bleu, compute_bleu), (chrf, compute_chrf)):
        own, p_value = score_systems(metric, systems, text.references, 0)
        assert [(one.value, one.signature) for one in own] == [compute(system, text.references) for system in systems]
        assert [one.mean for one in own] == [None, None]
        assert p_value is None


@pytest.mark.parametrize("resamples", [0, 100])
def test_two_models_are_compared_in_plain_words(text: ParallelText, systems: list[list[str]], resamples: int) -> None:
    settings = ScoringSettings(resamples=resamples)
    scored = evaluate_texts(text, systems, prepare_scoring(text, settings), settings)
    bleu, chrf = scored.differences
    first, second = (own["sacrebleu"].value for own in scored.scores)
    assert bleu.value == second - first
    assert bleu.describe().startswith(f"The difference of {second - first:.2f} BLEU ")
    assert "chrF" in chrf.describe()
    assert ("was not tested" in bleu.describe()) == (resamples == 0)


@pytest.mark.parametrize(
    ("value", "p_value", "sentence"),
    [
        (0.42, 0.0129, "The difference of 0.42 BLEU is significant (p = 0.013): the second model scores higher."),
        (-0.42, 0.049, "The difference of 0.42 BLEU is significant (p = 0.049): the first model scores higher."),
        (0.42, 0.05, "The difference of 0.42 BLEU is not significant (p = 0.050)."),
        (0.42, 1e-4, "The difference of 0.42 BLEU is significant (p < 0.001): the second model scores higher."),
        (0.0, 0.001, "Both have the same BLEU."),
        (0.42, None, "The difference of 0.42 BLEU was not tested."),
    ],
)
def test_a_difference_says_whether_it_is_significant(value: float, p_value: float | None, sentence: str) -> None:
    difference = ScoreDifference("sacrebleu", "sacreBLEU", value, p_value)
    assert difference.describe() == sentence
    assert difference.is_significant == (": the" in sentence)


def test_identical_translations_do_not_differ(text: ParallelText, systems: list[list[str]]) -> None:
    settings = ScoringSettings(resamples=100)
    scored = evaluate_texts(text, [systems[0], systems[0]], list_metrics("plain", "de"), settings)
    assert [one.is_significant for one in scored.differences] == [False, False]
    assert scored.most_different == []


def test_tokenized_lowercase_bleu_is_that_of_lower_cased_moses_tokens() -> None:
    sacremoses = pytest.importorskip("sacremoses")
    reference = ["„Ein Mann“ läuft, z.B. hier; 1,000 Euro!", "Der U-Bahn-Fahrer isst."]
    system = ["„Ein mann“ läuft, z.B. hier; 1,000 Euro!", "der U-Bahn-Fahrer isst ."]
    *plain, metric = list_metrics("tokenized-lowercase", "de_DE")
    assert [one.key for one in plain] == ["sacrebleu", "chrf"]
    assert metric.key == "bleu_tokenized_lowercase"
    assert "only comparable" in metric.note
    (score,), _ = score_systems(metric, [system], reference, 0)
    assert score.value == pytest.approx(100.0)
    assert "case:lc|eff:no|tok:none" in score.signature
    assert score.signature.endswith(f"|moses:de-{sacremoses.__version__}")
    assert metric.prepare(reference) == [
        "&quot; ein mann &quot; läuft , z.b. hier ; 1,000 euro !",
        "der u-bahn-fahrer isst .",
    ]


def test_a_missing_tokenizer_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(LockstepError) as caught:
        list_metrics("tokenized-lowercase", "de")
    assert "[edge]" in caught.value.remedy


def test_too_few_resamples_and_too_little_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_resamples(100, 0)
    check_resamples(100, 1000)
    with pytest.raises(LockstepError, match="40 resamples"):
        check_resamples(100, 39)
    monkeypatch.setattr(scores, "BYTES_PER_DRAW", 1 << 40)
    with pytest.raises(LockstepError, match="GB of memory"):
        check_resamples(100, 1000)


def test_sentences_are_grouped_by_the_words_of_the_source() -> None:
    lengths = [0, 1, 10, 11, 20, 31, 50, 51, 200]
    sources = [" ".join(["word"] * length) for length in lengths]
    references = [f"Satz mit {length} Wörtern und mehr" for length in lengths]
    translations = [*references[:7], "Satz", "Satz"]
    rows = score_by_length(sources, references, translations, "en")
    assert [(row.words, row.sentences) for row in rows] == [("1-10", 3), ("11-20", 2), ("31-50", 2), ("over 50", 2)]
    assert [round(row.sacrebleu) for row in rows[:3]] == [100, 100, 100]
    assert [row.length_ratio for row in rows] == [1.0, 1.0, 1.0, pytest.approx(1 / 6)]
    assert rows[-1].chrf < 50


def test_words_of_a_language_without_spaces_are_pairs_of_characters() -> None:
    (row,) = score_by_length(["私は学生です。" * 8], ["I am a student."], ["I am a student."], "ja")
    assert row.words == "21-30"


def test_the_worst_sentences_come_first_and_right_ones_not_at_all() -> None:
    references = ["ein guter Satz", "ein anderer Satz", "ein dritter Satz"]
    translations = ["ein guter Satz", "völlig daneben", "ein dritter Platz"]
    sentences = score_sentences(["a", "b", "c"], references, [translations])
    assert [one.line for one in pick_worst(sentences, 5)] == [2, 3]
    assert [one.line for one in pick_worst(sentences, 1)] == [2]


def test_the_sentences_where_two_models_differ_most_come_first() -> None:
    references = ["ein guter Satz", "ein anderer Satz", "ein dritter Satz"]
    systems = [["ein guter Satz", "ein anderer Satz", "x"], ["ein guter Platz", "ein anderer Satz", "ein dritter Satz"]]
    sentences = score_sentences(["a", "b", "c"], references, systems)
    assert [one.line for one in pick_most_different(sentences, 5)] == [3, 1]
    assert [one.line for one in pick_worst(sentences, 5)] == [3, 1]


def test_files_may_be_compressed_and_have_windows_line_ends(tmp_path: Path) -> None:
    import zstandard

    (tmp_path / "a.gz").write_bytes(gzip.compress("\ufeffeins\r\n\r\nzwei\r\n".encode()))
    (tmp_path / "b.zst").write_bytes(zstandard.compress(b"one\n\ntwo"))
    assert read_pairs(tmp_path / "a.gz", tmp_path / "b.zst") == (["eins", "", "zwei"], ["one", "", "two"])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"eins\nzwei\n", "has 1 line, and .* has 2 lines"),
        (b"gr\xfc\xdfe\n", "not UTF-8 text: see line 1"),
    ],
)
def test_bad_files_end_in_one_sentence(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    (tmp_path / "source").write_text("one\n")
    if content is not None:
        (tmp_path / "reference").write_bytes(content)
    with pytest.raises(LockstepError, match=sentence) as caught:
        read_pairs(tmp_path / "source", tmp_path / "reference")
    assert caught.value.code == 2
