"""Runs of the WMT16 recipe are compared with the curve of field report 3."""

from pathlib import Path

import pytest

from lockstep.explain import reference
from lockstep.explain.reading.record import Record
from lockstep.explain.report import make, render_page, render_text
from madeup import MadeUp

CONFIG = Path(__file__).parents[2] / "configs" / "transformer-base-wmt16.yaml"


def write_recipe_run(folder: Path, scores: dict[int, float]) -> Record:
    """Writes a run with the config of the recipe and every 500th step."""
    run = MadeUp(folder)
    (folder / "config.yaml").write_text(CONFIG.read_text())
    evaluations = {step: {"loss": 2.0, "sacrebleu": 20.0, "Eval_BLEU_Score": score} for step, score in scores.items()}

    def rate(step: int) -> float:
        return 2.0 * 512**-0.5 * min(step**-0.5, step * 8000**-1.5)

    run.launch(range(500, max(scores) + 1, 500), workers=1, scores=evaluations, rate=rate)
    return Record.open(folder)


@pytest.mark.parametrize(
    ("score", "verdict"), [(0.371, "ahead"), (0.356, "on track"), (0.350, "on track"), (0.340, "behind")]
)
def test_the_last_evaluation_is_compared_with_the_reference(tmp_path: Path, score: float, verdict: str) -> None:
    comparison = reference.compare(write_recipe_run(tmp_path, {8000: 0.2, 50_000: score}))
    assert comparison is not None
    assert comparison.verdict == verdict
    assert comparison.text.lower().startswith(verdict)
    assert [chart.name for chart in comparison.charts] == ["reference-score", "reference-loss", "reference-rate"]


def test_the_reference_is_straight_between_its_points_over_the_logarithm() -> None:
    assert reference.interpolate_score(50_000) == pytest.approx(0.353)
    assert reference.interpolate_score(300_000) == pytest.approx(0.380)
    assert reference.interpolate_score((50_000 * 100_000) ** 0.5) == pytest.approx(0.360)
    assert reference.interpolate_score(400_000) == pytest.approx(0.380)


def test_before_the_first_point_it_is_too_early(tmp_path: Path) -> None:
    comparison = reference.compare(write_recipe_run(tmp_path, {4000: 0.2}))
    assert comparison is not None
    assert comparison.verdict == "too early to compare"


def test_the_report_warns_of_the_score_and_shows_each_worker(tmp_path: Path) -> None:
    write_recipe_run(tmp_path, {20_000: 0.32})
    report = make(tmp_path)
    for written in (render_text(report), render_page(report)):
        assert "about 0.9" in written
        assert "A step of each worker" in written
        assert "Against the reference curve" in written


def test_the_learning_rate_of_the_recipe_is_that_of_the_reference(tmp_path: Path) -> None:
    comparison = reference.compare(write_recipe_run(tmp_path, {20_000: 0.32}))
    assert comparison is not None
    (away,) = [figure for figure in comparison.figures if figure.name.startswith("learning rate")]
    assert away.value == 0.0


def test_another_recipe_has_no_reference(tmp_path: Path) -> None:
    MadeUp(tmp_path).launch(range(1, 21))
    assert reference.compare(Record.open(tmp_path)) is None
