"""Comparisons of runs, from journals written by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep.cli.compare_command import sparkline
from lockstep.explain.compare_rows import list_differences, list_figures
from lockstep.explain.compare_runs import ComparedCurve, RunComparison, compare
from lockstep.explain.pages.compare_page import render_comparison


def step(number: int, time: float, loss: float | None, **facts: Any) -> dict[str, Any]:
    phases = {"input": 0.0, "forward": 0.25, "backward": 0.5, "merge": 0.25, "update": 0.0}
    line = {"kind": "step", "step": number, "time": time, "loss": loss, "seconds": 1.0, "phases": phases}
    line |= {"attempt": 1, "warmup": False, "applied": True, "global_target_words": 100, "watching": 0.001}
    line["words"] = {"source": 90, "target": 100}
    return line | facts


def evaluation(number: int, time: float, score: float) -> dict[str, Any]:
    scores = {"loss": 5.0 - number, "sacrebleu": score}
    line = {"kind": "evaluation", "step": number, "time": time, "scores": scores, "seconds": 1.0}
    return line | {"signature": "", "examples": [["a", "b", "c"]]}


def launch(time: float, attempt: int = 1, workers: int = 1) -> dict[str, Any]:
    line = {"kind": "run", "time": time, "attempt": attempt, "workers": workers, "strategy": "single", "threads": 1}
    return line | {"precision": "fp32", "metric": "sacrebleu", "higher_is_better": True}


PLAIN = [launch(1000.0), step(1, 1001.0, 4.0), step(2, 1002.0, 3.0), evaluation(2, 1003.0, 10.0), step(3, 1004.0, 2.5)]


def write_run(
    folder: Path,
    lines: list[dict[str, Any]] | None = None,
    config: dict[str, Any] | None = None,
    worker: dict[str, Any] | None = None,
    digest: str = "d1",
    batch: int = 100,
) -> Path:
    (folder / "journal").mkdir(parents=True)
    text = "".join(json.dumps(line) + "\n" for line in (PLAIN if lines is None else lines))
    (folder / "journal" / "worker-0000.jsonl").write_text(text)
    (folder / "config.yaml").write_text(yaml.safe_dump(config or {"train": {"steps": 3}}))
    known = {"host": "one", "device_name": "CPU", "cores": 2} | (worker or {})
    (folder / "environment.json").write_text(json.dumps({"versions": {"torch": "2"}, "workers": [known]}))
    (folder / "data.json").write_text(json.dumps({"digest": digest}))
    (folder / "choices.json").write_text(json.dumps({"batch": {"words": batch, "sentences": None}}))
    return folder


def compare_two(tmp_path: Path, **of_b: Any) -> RunComparison:
    return compare({"a": write_run(tmp_path / "a"), "b": write_run(tmp_path / "b", **of_b)})


def test_what_differs_is_listed_and_nothing_else(tmp_path: Path) -> None:
    comparison = compare_two(tmp_path, config={"train": {"steps": 9}, "model": {"width": 8}})
    assert list_differences(comparison.settings) == [("train.steps", "3", "9"), ("model.width", "-", "8")]
    assert comparison.environment == []
    assert comparison.notes == []


def test_another_folder_with_the_same_text_is_no_difference(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", config={"data": {"folder": "/here", "corpus": "/here/c"}})
    b = write_run(tmp_path / "b", config={"data": {"folder": "/there", "corpus": "/there/c"}})
    c = write_run(tmp_path / "c", config={"data": {"folder": "/there", "corpus": "/there/c"}}, digest="d2")
    assert compare({"a": a, "b": b}).settings == []
    assert {one.what for one in compare({"a": a, "c": c}).settings} == {"data.folder", "data.corpus"}


@pytest.mark.parametrize(
    ("of_b", "word"),
    [
        ({"worker": {"host": "two"}}, "different machines"),
        ({"worker": {"device_name": "GPU"}}, "different machines"),
        ({"lines": [launch(0.0, workers=4), step(1, 1.0, 2.0)]}, "1 and 4 workers"),
        ({"batch": 200}, "compare their learning by words"),
        ({"digest": "d2"}, "different corpora"),
        ({"config": {"train": {"steps": 3, "label_smoothing": 0.2}}}, "compare scores instead"),
    ],
)
def test_a_note_warns_of_figures_that_cannot_be_compared(tmp_path: Path, of_b: dict[str, Any], word: str) -> None:
    (note,) = compare_two(tmp_path, **of_b).notes
    assert word in note


def test_curves_have_steps_words_and_time(tmp_path: Path) -> None:
    side = compare_two(tmp_path).sides[0]
    assert side.curves["training loss"] == ComparedCurve([1, 2, 3], [100, 200, 300], [1.0, 2.0, 4.0], [4.0, 3.0, 2.5])
    assert side.curves["sacrebleu"] == ComparedCurve([2], [200], [3.0], [10.0])
    assert side.curves["validation loss"].value == [3.0]
    assert (side.words, side.seconds) == (300, 4.0)


def test_training_time_excludes_pauses_and_includes_lost_steps(tmp_path: Path) -> None:
    lines = [
        launch(1000.0),
        step(1, 1010.0, 4.0),
        step(2, 1020.0, 3.0),  # undone: the launch was killed before a checkpoint
        evaluation(2, 1025.0, 50.0),
        launch(5000.0, attempt=2),
        {"kind": "resume", "time": 5001.0, "step": 1, "attempt": 2},
        step(2, 5005.0, 2.0, attempt=2),
    ]
    side = compare_two(tmp_path, lines=lines).sides[1]
    assert side.curves["training loss"] == ComparedCurve([1, 2], [100, 200], [10.0, 30.0], [4.0, 2.0])
    assert side.seconds == 30.0


def test_words_of_steps_that_other_workers_took_are_counted(tmp_path: Path) -> None:
    side = compare_two(tmp_path, lines=[launch(0.0), step(1, 1.0, 3.0), step(4, 2.0, 2.0)]).sides[1]
    assert side.curves["training loss"].words == [100, 400]


def test_a_step_without_a_loss_leaves_no_point(tmp_path: Path) -> None:
    side = compare_two(tmp_path, lines=[launch(0.0), step(1, 1.0, None), step(2, 2.0, 3.0)]).sides[1]
    assert side.curves["training loss"] == ComparedCurve([2], [200], [2.0], [3.0])


def test_the_best_score_that_all_reached_is_timed(tmp_path: Path) -> None:
    lines = [launch(0.0), step(1, 1.0, 3.0), evaluation(1, 2.0, 4.0), step(2, 3.0, 2.0), evaluation(2, 4.0, 12.0)]
    comparison = compare_two(tmp_path, lines=lines)
    assert comparison.target == 10.0
    assert comparison.reached == [(2, 200, 3.0), (2, 200, 4.0)]
    assert ("sacrebleu 10.00 at step", "2", "2") in list_figures(comparison)


def test_a_run_without_an_evaluation_has_nothing_to_reach(tmp_path: Path) -> None:
    comparison = compare_two(tmp_path, lines=[launch(0.0), step(1, 1.0, 3.0)])
    assert comparison.target is None
    assert comparison.shared == ["training loss"]
    assert ("best sacrebleu", "10.00", "-") in list_figures(comparison)


def test_phases_stand_side_by_side_in_time_and_share(tmp_path: Path) -> None:
    rows = {row[0].strip(): row[1:] for row in list_figures(compare_two(tmp_path))}
    assert rows["backward"] == ("500.0 ms  50%",) * 2
    assert rows["time per step"] == ("1,000.0 ms",) * 2


def test_a_run_that_has_not_begun_can_be_compared(tmp_path: Path) -> None:
    comparison = compare_two(tmp_path, lines=[launch(0.0)])
    assert list_figures(comparison)
    assert render_comparison(comparison)


def test_long_curves_are_thinned_by_means(tmp_path: Path) -> None:
    curve = ComparedCurve(*([float(number) for number in range(10)] for _ in range(4)))
    assert curve.thin(5) == ComparedCurve(*([0.5, 2.5, 4.5, 6.5, 8.5] for _ in range(4)))
    assert curve.thin(10) == curve
    assert len(curve.thin(4).value) == 4


def test_the_page_needs_no_network_and_cannot_be_broken_by_a_name(tmp_path: Path) -> None:
    name = "</script><script>alert(1)</script>"
    text = render_comparison(compare({name: write_run(tmp_path / "a"), "b": write_run(tmp_path / "b")}))
    assert "<script>alert" not in text
    assert "default-src 'none'" in text
    assert "src=" not in text.split("<script>", 1)[0]
    drawn = text.split('id="drawn">', 1)[1].split("</script>", 1)[0]
    facts = json.loads(drawn)
    assert facts["names"] == [name, "b"]
    assert facts["curves"]["training loss"][0]["words"] == [100, 200, 300]
    assert facts["phases"]["merge"] == [250.0, 250.0]


def test_the_page_of_image_runs_counts_images(tmp_path: Path) -> None:
    lines = [PLAIN[0] | {"unit": "images"}, *PLAIN[1:]]
    comparison = compare(
        {name: write_run(tmp_path / name, lines=lines, batch=size) for name, size in (("a", 8), ("b", 9))}
    )
    text = render_comparison(comparison)
    assert '<input type="radio" name="axis" value="words"> images</label>' in text
    assert "A step is not the same amount of images in each: compare their learning by images (--by words)." in text
    assert '"words":"images"' in text
    assert "target word" not in text.partition("plotly.js")[0]


@pytest.mark.parametrize(
    ("x", "y", "line"),
    [
        ([1, 2, 3, 4], [0.0, 1.0, 2.0, 3.0], " ▁▃▆█"),
        ([1, 2], [3.0, 0.0], " █▁  "),
        ([1, 4], [3.0, 0.0], " ███▁"),
        ([4], [1.5], "    ▅"),
    ],
)
def test_a_sparkline_has_common_scales_and_ends_where_its_run_does(x: list[float], y: list[float], line: str) -> None:
    assert sparkline(x, y, last=4.0, low=0.0, high=3.0, width=5) == line


def test_a_flat_curve_is_a_flat_sparkline() -> None:
    assert sparkline([0.0, 1.0], [2.0, 2.0], last=1.0, low=2.0, high=2.0, width=2) == "▁▁"
