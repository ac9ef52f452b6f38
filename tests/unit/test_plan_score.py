"""Predictions beside measurements: of runs, of studies, of plain lists."""

import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.errors import LockstepError
from lockstep.lab.plan.cluster import load, pipe
from lockstep.lab.plan.job import Choice, PlannedJob
from lockstep.lab.plan.predict import make
from lockstep.lab.plan.score import MeasuredSetting, contention, measured, score, step_seconds, summary
from lockstep.lab.study.results import find
from planning import profile
from studies import made_up

CHOICES = [Choice(), Choice("allreduce", "bf16"), Choice("local", every=10), Choice("replicas")]
ROWS = make(
    PlannedJob(profile(), 1000, True), load("office"), [1, 2, 4], CHOICES, [pipe("1gbit"), pipe("100mbit")]
).rows


def step(number: int, seconds: float) -> dict[str, Any]:
    return {"step": number, "seconds": seconds}


def predicted(name: str, workers: int, link: str) -> float:
    return next(row.step_seconds for row in ROWS if (row.name, row.workers, row.link) == (name, workers, link))


def test_a_plain_list_of_settings_is_scored(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    seconds = predicted("allreduce bf16", 4, "100mbit")
    line = {
        "workers": 4,
        "strategy": "allreduce",
        "gradients": "bf16",
        "link": "100mbit",
        "step_seconds": seconds / 1.25,
    }
    path.write_text(json.dumps([line, {"nonsense": 1}, 7]))
    (found,), missed = score(ROWS, measured(path))
    assert (found.name, found.workers, found.link) == ("allreduce bf16", 4, "100mbit")
    assert found.error == pytest.approx(0.25)
    assert not found.inside
    assert missed == []
    assert summary([found]).startswith("0 of 1 predictions are within 15 %")


def study(rows: list[tuple[int, str, str, str, float]]) -> dict[str, Any]:
    names = ("workers", "strategy", "link", "without")
    found = [{"cell": dict(zip(names, row[:4], strict=True)), "workers": row[0], "step": row[4]} for row in rows]
    return {"format": 1, "settings": {}, "results": {"rows": found}, "trials": []}


def test_a_study_is_scored_and_tells_the_contention(tmp_path: Path) -> None:
    rows = [
        (1, "alone", "none", "nothing", 0.3),
        (1, "alone", "none", "input", 0.2),
        (4, "replicas", "none", "nothing", 0.66),
        (4, "local:every=10", "1gbit", "nothing", 0.7),
        (4, "sharded", "1gbit", "nothing", 1.0),
    ]
    (tmp_path / "study.json").write_text(json.dumps(study(rows)))
    found = measured(tmp_path)
    assert len(found) == 4
    assert contention(found) == {1: 1.0, 4: pytest.approx(2.2)}
    scores, missed = score(ROWS, found)
    assert [(one.name, one.workers) for one in scores] == [("replicas", 1), ("local every 10 fp32", 4)]
    assert [one.strategy for one in missed] == ["replicas", "sharded"]


def test_a_study_is_read_as_it_is_stored(tmp_path: Path) -> None:
    """Also with a strategy that is not predicted."""
    made = made_up(tmp_path, strategies=("allreduce", "resilient"))
    for results in (None, find(made).facts()):  # while it is being measured, and at its end
        made.save(results)
        found = measured(tmp_path)
        assert {(one.workers, one.strategy) for one in found} >= {(1, "replicas"), (2, "allreduce"), (4, "resilient")}
        four = next(one for one in found if (one.workers, one.strategy) == (4, "allreduce"))
        assert four.step_seconds == pytest.approx(0.153, rel=0.02)
        assert contention(found) == {1: 1.0, 2: pytest.approx(1.0), 4: pytest.approx(1.0)}


def test_a_run_whose_link_has_no_name_is_held_against_the_nearest_rate() -> None:
    one = MeasuredSetting(2, "allreduce", 2.0, link_bytes_per_second=11e6)
    assert score(ROWS, [one])[0][0].link == "100mbit"


def test_a_step_of_workers_that_meet_now_and_then_is_the_mean_of_whole_rounds() -> None:
    steps = [step(number, 2.0 if number % 10 == 0 else 1.0) for number in range(6, 34)]
    assert step_seconds(steps, every=10) == pytest.approx(1.1)
    assert step_seconds(steps) == 1.0


@pytest.mark.parametrize("text", ["{}", "[]", '[{"workers": 2}]', '{"results": {"rows": null}}', "3"])
def test_a_file_that_measured_nothing_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(LockstepError, match="neither a run nor a study"):
        measured(tmp_path / "x.json")


def test_contention_needs_replicas() -> None:
    with pytest.raises(LockstepError, match="no replicas"):
        contention([MeasuredSetting(2, "replicas", 1.0)])
