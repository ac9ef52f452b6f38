"""The section about fine-tuning, from a made-up journal and scores."""

import json
from pathlib import Path

import pytest

from lockstep.explain.report import make, render_text
from madeup import MadeUp

START = {"from": "runs/general", "model": "/gone/model", "step": 1750, "sha256": "0" * 64}


def write_run(folder: Path, old_after: float, pieces: float = 1.0, **more: object) -> Path:
    run = MadeUp(folder)
    run.launch(range(1, 31))
    journal = run.folder / "journal" / "worker-0000.jsonl"
    first, *rest = journal.read_text().splitlines()
    journal.write_text("\n".join([json.dumps(json.loads(first) | {"start": START}), *rest]) + "\n")
    scores = [
        {"text": text, "model": model, "sentences": 10, "sacrebleu": bleu, "chrf": 2 * bleu, "signatures": ["a", "b"]}
        for text, model, bleu in (
            ("new", "result", 20.0),
            ("new", "start", 5.0),
            ("old", "result", old_after),
            ("old", "start", 36.0),
        )
    ]
    facts = {"start": "runs/general", "scores": scores, "missing": [], "known": 0} | more
    facts |= {"pieces_per_word": {"new": 1.2 * pieces, "old": 1.2}}
    (run.folder / "tests.json").write_text(json.dumps(facts))
    return run.folder


@pytest.mark.parametrize(
    ("old_after", "sentence"),
    [
        (40.0, "On the old test text sacreBLEU rose from 36.0 to 40.0 (chrF from 72.0 to 80.0)."),
        (30.0, "fell from 36.0 to 30.0 (chrF from 72.0 to 60.0): the model has forgotten some of what it knew."),
        (2.0, "fell from 36.0 to 2.0 (chrF from 72.0 to 4.0): the model has forgotten most of what it knew."),
    ],
)
def test_says_what_was_gained_and_forgotten(tmp_path: Path, old_after: float, sentence: str) -> None:
    report = make(write_run(tmp_path / "run", old_after))
    assert report.fine_tuning is not None
    assert report.verdict[-1] == report.fine_tuning.text
    assert "On the new test text sacreBLEU rose from 5.0 to 20.0" in report.fine_tuning.text
    assert sentence in report.fine_tuning.text
    assert report.fine_tuning.text.count("It has only 10 sentences: a difference of a few points may be chance.") == 2
    assert "fits the new text badly" not in report.fine_tuning.text
    assert [figure.value for figure in report.fine_tuning.figures][:2] == [20.0, 40.0]
    assert report.fine_tuning.text in render_text(report)


def test_says_when_the_vocabulary_fits_badly(tmp_path: Path) -> None:
    report = make(write_run(tmp_path / "run", 30.0, pieces=1.8))
    assert report.fine_tuning is not None
    assert "it cuts a word into 2.2 pieces, of the old text into 1.2" in report.fine_tuning.text


def test_names_what_is_missing(tmp_path: Path) -> None:
    missing = ["Forgetting was not measured: the corpus is gone."]
    report = make(write_run(tmp_path / "run", 30.0, missing=missing))
    assert report.fine_tuning is not None
    assert missing[0] in report.fine_tuning.text


def test_other_runs_have_no_such_section(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 31))
    assert make(run.folder).fine_tuning is None
