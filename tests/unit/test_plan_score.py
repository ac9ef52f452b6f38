"""Predictions beside measurements: of runs, of studies, of plain lists."""

import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.errors import LockstepError
from lockstep.lab.plan.cluster import load_cluster, parse_link
from lockstep.lab.plan.planned_job import Choice, PlannedJob
from lockstep.lab.plan.predict import make_plan
from lockstep.lab.plan.score import (
    MeasuredSetting,
    average_step,
    measure_contention,
    read_measurements,
    score,
    summarise_scores,
)
from lockstep.lab.study.results import analyse
from planning import make_profile
from studies import make_study

CHOICES = [Choice(), Choice("allreduce", "bf16"), Choice("local", every=10), Choice("replicas")]
ROWS = make_plan(
    PlannedJob(make_profile(), 1000, True),
    load_cluster("office"),
    [1, 2, 4],
    CHOICES,
    [parse_link("1gbit"), parse_link("100mbit")],
).rows


def make_step(number: int, seconds: float) -> dict[str, Any]:
    return {"step": number, "seconds": seconds}


def find_prediction(name: str, workers: int, link: str) -> float:
    return next(row.step_seconds for row in ROWS if (row.name, row.workers, row.link) == (name, workers, link))


def test_a_plain_list_of_settings_is_scored(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    seconds = find_prediction("allreduce bf16", 4, "100mbit")
    line = {
        "workers": 4,
        "strategy": "allreduce",
        "gradients": "bf16",
        "link": "100mbit",
        "step_seconds": seconds / 1.25,
    }
    path.write_text(json.dumps([line, {"nonsense": 1}, 7]))
    (result,), missed = score(ROWS, read_measurements(path))
    assert (result.name, result.workers, result.link) == ("allreduce bf16", 4, "100mbit")
    assert result.error == pytest.approx(0.25)
    assert not result.is_inside
    assert missed == []
    assert summarise_scores([result]).startswith("0 of 1 predictions are within 15 %")


def make_file(rows: list[tuple[int, str, str, str, float]]) -> dict[str, Any]:
    names = ("workers", "strategy", "link", "without")
    entries = [{"cell": dict(zip(names, row[:4], strict=True)), "workers": row[0], "step": row[4]} for row in rows]
    return {"format": 1, "settings": {}, "results": {"rows": entries}, "trials": []}


def test_a_study_is_scored_and_provides_the_contention(tmp_path: Path) -> None:
    rows = [
        (1, "alone", "none", "nothing", 0.3),
        (1, "alone", "none", "input", 0.2),
        (4, "replicas", "none", "nothing", 0.66),
        (4, "local:every=10", "1gbit", "nothing", 0.7),
        (4, "sharded", "1gbit", "nothing", 1.0),
    ]
    (tmp_path / "study.json").write_text(json.dumps(make_file(rows)))
    settings = read_measurements(tmp_path)
    assert len(settings) == 4
    assert measure_contention(settings) == {1: 1.0, 4: pytest.approx(2.2)}
    scores, missed = score(ROWS, settings)
    assert [(one.name, one.workers) for one in scores] == [("replicas", 1), ("local every 10 fp32", 4)]
    assert [one.strategy for one in missed] == ["replicas", "sharded"]


def test_a_stored_study_is_read_while_unfinished_and_when_finished(tmp_path: Path) -> None:
    """Also with a strategy that is not predicted."""
    study = make_study(tmp_path, strategies=("allreduce", "resilient"))
    for results in (None, analyse(study).as_dict()):  # while it is being measured, and at its end
        study.save(results)
        settings = read_measurements(tmp_path)
        assert {(one.workers, one.strategy) for one in settings} >= {
            (1, "replicas"),
            (2, "allreduce"),
            (4, "resilient"),
        }
        four = next(one for one in settings if (one.workers, one.strategy) == (4, "allreduce"))
        assert four.step_seconds == pytest.approx(0.153, rel=0.02)
        assert measure_contention(settings) == {1: 1.0, 2: pytest.approx(1.0), 4: pytest.approx(1.0)}


def test_a_run_whose_link_has_no_name_is_compared_with_the_nearest_rate() -> None:
    one = MeasuredSetting(2, "allreduce", 2.0, link_bytes_per_second=11e6)
    assert score(ROWS, [one])[0][0].link == "100mbit"


def test_a_local_step_is_the_mean_of_complete_rounds() -> None:
    steps = [make_step(number, 2.0 if number % 10 == 0 else 1.0) for number in range(6, 34)]
    assert average_step(steps, every=10) == pytest.approx(1.1)
    assert average_step(steps) == 1.0


@pytest.mark.parametrize("text", ["{}", "[]", '[{"workers": 2}]', '{"results": {"rows": null}}', "3"])
def test_a_file_without_measurements_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(LockstepError, match="neither a run nor a study"):
        read_measurements(tmp_path / "x.json")


def test_contention_needs_replicas() -> None:
    with pytest.raises(LockstepError, match="no replicas"):
        measure_contention([MeasuredSetting(2, "replicas", 1.0)])
