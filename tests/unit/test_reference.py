"""Runs of the WMT16 recipe are laid over field report 3's curve."""

from pathlib import Path

import pytest

from lockstep.explain import reference
from lockstep.explain.reading.record import Record
from lockstep.explain.report import make, page, text
from madeup import MadeUp

CONFIG = Path(__file__).parents[2] / "configs" / "transformer-base-wmt16.yaml"


def recipe_run(folder: Path, scores: dict[int, float]) -> Record:
    """A run with the recipe's own config; every 500th step is enough for a journal."""
    run = MadeUp(folder)
    (folder / "config.yaml").write_text(CONFIG.read_text())
    listed = {step: {"loss": 2.0, "sacrebleu": 20.0, "Eval_BLEU_Score": score} for step, score in scores.items()}

    def rate(step: int) -> float:
        return 2.0 * 512**-0.5 * min(step**-0.5, step * 8000**-1.5)

    run.launch(range(500, max(scores) + 1, 500), workers=1, scores=listed, rate=rate)
    return Record.open(folder)


@pytest.mark.parametrize(
    ("score", "verdict"), [(0.371, "ahead"), (0.356, "on track"), (0.350, "on track"), (0.340, "behind")]
)
def test_the_last_evaluation_is_held_against_the_reference(tmp_path: Path, score: float, verdict: str) -> None:
    found = reference.compare(recipe_run(tmp_path, {8000: 0.2, 50_000: score}))
    assert found is not None
    assert found.verdict == verdict
    assert found.text.lower().startswith(verdict)
    assert [chart.name for chart in found.charts] == ["reference-score", "reference-loss", "reference-rate"]


def test_the_reference_is_straight_between_its_points_over_the_logarithm() -> None:
    assert reference.score_at(50_000) == pytest.approx(0.353)
    assert reference.score_at(300_000) == pytest.approx(0.380)
    assert reference.score_at((50_000 * 100_000) ** 0.5) == pytest.approx(0.360)
    assert reference.score_at(400_000) == pytest.approx(0.380)


def test_before_the_first_point_it_is_too_early(tmp_path: Path) -> None:
    found = reference.compare(recipe_run(tmp_path, {4000: 0.2}))
    assert found is not None
    assert found.verdict == "too early to compare"


def test_the_report_warns_of_the_score_and_shows_each_worker(tmp_path: Path) -> None:
    recipe_run(tmp_path, {20_000: 0.32})
    report = make(tmp_path)
    for written in (text(report), page(report)):
        assert "about 0.9" in written
        assert "A step of each worker" in written
        assert "Against the reference curve" in written


def test_the_learning_rate_of_the_recipe_is_the_reference_s(tmp_path: Path) -> None:
    found = reference.compare(recipe_run(tmp_path, {20_000: 0.32}))
    assert found is not None
    (away,) = [figure for figure in found.figures if figure.name.startswith("learning rate")]
    assert away.value == 0.0


def test_another_recipe_has_no_reference(tmp_path: Path) -> None:
    MadeUp(tmp_path).launch(range(1, 21))
    assert reference.compare(Record.open(tmp_path)) is None
