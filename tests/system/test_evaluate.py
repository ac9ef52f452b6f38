"""`lockstep evaluate` on real runs, exports and files."""

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Tiny, lockstep, write_pairs
from sacrebleu_command import run_paired


@pytest.fixture(scope="module")
def runs(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs on the same text. The second one was trained longer."""
    folder = tmp_path_factory.mktemp("evaluated")
    settings = ("train.evaluate_every=60", "train.checkpoint_every=60", "train.keep_last=2", "schedule.peak=0.01")
    lockstep("train", tiny.config, "train.steps=60", *settings, "--run", folder / "a")
    lockstep("train", tiny.config, "train.steps=120", *settings, "--run", folder / "b")
    return [folder / "a", folder / "b"]


@pytest.fixture(scope="module")
def export(runs: list[Path]) -> Path:
    to = runs[0].parent / "export"
    lockstep("export", runs[1], "--to", to)
    return to


def files(tiny: Tiny) -> tuple[object, ...]:
    return "--source", tiny.folder / "test.en", "--reference", tiny.folder / "test.de"


def evaluate(*words: object, code: int = 0, fault: str = "", **env: str) -> dict[str, Any]:
    return dict(json.loads(lockstep("evaluate", *words, "--json", code=code, fault=fault, **env).stdout))


def test_files_are_scored_like_the_same_set_of_the_run(tiny: Tiny, runs: list[Path], tmp_path: Path) -> None:
    by_set = evaluate(runs[1], "--bootstrap", 100)
    by_files = evaluate(runs[1], *files(tiny), "--bootstrap", 100, "--output", tmp_path / "out")
    assert by_files["scores"] == by_set["scores"]
    assert by_files["by_length"] == by_set["by_length"]
    assert by_files["loss"] == pytest.approx(by_set["loss"], rel=1e-5)
    assert by_set["sacrebleu"] == by_set["scores"]["sacrebleu"]["value"]
    assert by_set["words_per_second"] > 0
    assert len((tmp_path / "out").read_text().splitlines()) == by_files["sentences"] == 12


def test_two_models_are_compared_as_sacrebleu_does(tiny: Tiny, runs: list[Path], tmp_path: Path) -> None:
    outputs, page = [tmp_path / "a", tmp_path / "b"], tmp_path / "page.html"
    for run, output in zip(runs, outputs, strict=True):
        lockstep("evaluate", run, "--bootstrap", 0, "--output", output)
    facts = evaluate(*runs, "--html", page)
    expected = run_paired(tiny.folder / "test.de", outputs)
    for theirs, model in zip(expected, facts["models"], strict=True):
        for result, key in zip(theirs, ("sacrebleu", "chrf"), strict=True):
            score = model["scores"][key]
            assert (score["value"], score["mean"], score["margin"]) == pytest.approx(result[:3], abs=2e-6)
    p_values = [one["p_value"] for one in facts["differences"]]
    assert p_values == pytest.approx([result.p_value for result in expected[1]], abs=5.1e-5)
    assert "Where they differ most" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_runs_with_other_texts_are_not_compared(tiny: Tiny, runs: list[Path], tmp_path: Path) -> None:
    write_pairs(tmp_path, "test", 12, 77)
    settings = (f"data.test=[{tmp_path / 'test'}]", f"data.corpus={tmp_path / 'corpus'}", "train.steps=1")
    lockstep("train", tiny.config, *settings, "--run", tmp_path / "run")
    error = lockstep("evaluate", runs[0], tmp_path / "run", code=2).stderr
    assert "have another test text" in error
    assert "--source" in error


def test_an_export_is_scored_without_torch(tiny: Tiny, runs: list[Path], export: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch is not installed here')\n")
    facts = evaluate(export, *files(tiny), "--bootstrap", 100, PYTHONPATH=str(tmp_path))
    trained = evaluate(runs[1], *files(tiny), "--bootstrap", 100)
    assert facts["sacrebleu"] == pytest.approx(trained["sacrebleu"], abs=1.0)
    assert "loss" not in facts
    assert "without its run" in lockstep("evaluate", export, code=2).stderr


def test_tokenized_lowercase_bleu_is_beside_the_usual_one(tiny: Tiny, export: Path) -> None:
    shown = lockstep("evaluate", export, *files(tiny), "--format", "tokenized-lowercase", "--worst", 0).stdout
    assert "tokenized, lower-cased BLEU: only comparable with papers that score so" in shown
    assert "sacreBLEU" in shown
    assert "Worst" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


@pytest.mark.slow
def test_checkpoints_are_averaged(runs: list[Path]) -> None:
    facts = evaluate(runs[1], "--average", 2, "--checkpoint", "last", "--bootstrap", 0)
    assert facts["model"].count("step-") == 2
    assert "train.keep_last=5" in lockstep("evaluate", runs[1], "--average", 5, "--checkpoint", "last", code=2).stderr


def test_mistakes_end_in_one_sentence(tiny: Tiny, export: Path, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("Ba\n")
    source, given = ("--source", tiny.folder / "test.en"), ("--reference", tmp_path / "short")
    wrong = {
        (*source,): "--source without --reference",
        (*source, *given): "has 12 lines, and",
        (*files(tiny), "--set", "test"): "a --set and a --source",
        (export, *files(tiny), "--output", tmp_path / "out"): "--output is for one model",
        (*files(tiny), "--html", tmp_path / "none" / "page.html"): "There is no folder",
        (*files(tiny), "--output", tiny.folder / "test.en"): "a text to read as well",
        (*files(tiny), "--bootstrap", 10): "40 resamples or more",
        (*files(tiny), "--average", 2): "no checkpoints to average",
    }
    for words, sentence in wrong.items():
        error = lockstep("evaluate", export, *words, code=2).stderr
        assert sentence in error
        assert "Traceback" not in error


@pytest.mark.slow
def test_options_of_texts_are_refused_for_images(tiny_images: Tiny, tmp_path: Path) -> None:
    lockstep("train", tiny_images.config, "train.steps=1", "--run", tmp_path)
    error = lockstep("evaluate", tmp_path, "--html", tmp_path / "page.html", code=2).stderr
    assert "--html: only for translation" in error
