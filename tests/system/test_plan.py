"""`lockstep plan` as a person uses it: without a run for a device, bad input, and the page of field reports."""

import json
from pathlib import Path

import pytest

from conftest import Tiny, lockstep
from lockstep.cli.plan_inputs import explain_field_report

DOCS = Path(__file__).parents[2] / "docs"


def plan(tiny: Tiny, *words: object) -> str:
    return lockstep("plan", tiny.config, "--device", "v100", *words).stdout


def test_a_device_is_planned_for_without_a_run(tiny: Tiny, tmp_path: Path) -> None:
    options = ("--cluster", "v100-nodes", "--workers", "1,8,16", "--links", "1gbit,100gbit", "--steps", 1000)
    made = json.loads(plan(tiny, *options, "--json"))
    assert {row["workers"] for row in made["rows"]} == {1, 8, 16}
    assert {row["link"] for row in made["rows"]} == {"1gbit", "100gbit"}
    assert all(row["low"] < row["step_seconds"] < row["high"] for row in made["rows"])
    assert all(row["dollars"] > 0 for row in made["rows"])
    assert len(made["recommendations"]) == 2
    assert any("No v100 was measured" in note for note in made["notes"])
    shown = plan(tiny, *options, "--html", tmp_path / "plan.html")
    for word in (
        "posed",
        "allreduce bf16",
        "the end is step 1,000",
        "16 workers on 1gbit",
        "list prices of 2024-06",
    ):
        assert word in shown
    assert "plotly" in (tmp_path / "plan.html").read_text()


def test_a_saved_plan_is_scored_later(tiny: Tiny, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    saved.write_text(plan(tiny, "--workers", "2", "--strategies", "allreduce,local:every=5", "--json"))
    row = json.loads(saved.read_text())["rows"][0]
    study = tmp_path / "study.json"
    line = {"workers": 2, "strategy": "allreduce", "link": "1gbit", "step_seconds": 2 * row["step_seconds"]}
    study.write_text(json.dumps([line]))
    scores = json.loads(lockstep("plan", saved, "--score", study, "--json").stdout)["scores"]
    assert [round(one["error"], 3) for one in scores] == [-0.5]
    shown = lockstep("plan", saved, "--score", study).stdout
    assert "-50.0%" in shown
    assert "0 of 1 predictions" in shown


def test_a_saved_profile_is_used_again(tiny: Tiny, tmp_path: Path) -> None:
    saved = tmp_path / "profile.json"
    first = plan(tiny, "--workers", "4", "--save-profile", saved, "--json")
    again = lockstep("plan", tiny.config, "--device", "v100", "--profile", saved, "--workers", "4", "--json").stdout
    seconds = [[row["step_seconds"] for row in json.loads(text)["rows"]] for text in (first, again)]
    assert seconds[0] == pytest.approx(seconds[1])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cluster", "moon"], "neither a file nor a preset"),
        (["--device", "abacus"], "no preset for a device abacus"),
        (["--links", "fast"], "is not a link"),
        (["--strategies", "allreduse"], "knows no strategy allreduse"),
        (["--workers", "two"], "Cannot read 'two'"),
        (["--workers", "4-1"], "Cannot read '4-1'"),
        (["--workers", "0"], "number of workers is out of range"),
        (["--contention", "much"], "how much slower"),
        (["--profile", "nowhere.json"], "does not exist"),
        (["--score", "nowhere"], "neither a run nor a study"),
        (["--explain", "field-report-9"], "no explanation of field-report-9"),
    ],
)
def test_a_mistake_is_reported_with_a_sentence(tiny: Tiny, words: list[str], message: str) -> None:
    config = [tiny.config] if "--device" in words else [tiny.config, "--device", "v100"]
    result = lockstep("plan", *config, *words, code=2)
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_config_and_damaged_files_are_reported(tiny: Tiny, tmp_path: Path) -> None:
    assert "No config file was given" in lockstep("plan", code=2).stderr
    (tmp_path / "plan.json").write_text("{}")
    assert "is not a plan" in lockstep("plan", tmp_path / "plan.json", code=2).stderr
    (tmp_path / "half.json").write_text('{"lockstep": "pro')
    refused = lockstep("plan", tiny.config, "--profile", tmp_path / "half.json", code=1)
    assert "damaged" in refused.stderr


@pytest.mark.parametrize("report", ["field-report-1", "field-report-5"])
def test_the_documentation_of_field_reports_matches_the_planner(report: str) -> None:
    explanation = explain_field_report(report)
    assert explanation.text() in (DOCS / "understand" / "field-reports-explained.md").read_text()
    assert explanation.as_dict()["sections"]


def test_a_field_report_is_explained_by_the_command() -> None:
    assert "1.71 s per step" in lockstep("plan", "--explain", "field-report-1").stdout
