"""A run knows how much of the cores other programs used."""

from pathlib import Path

import pytest

from burner import burn
from conftest import Tiny, lockstep
from lockstep.explain.report import make
from lockstep.explain.summary import summarise


@pytest.mark.slow
def test_a_run_beside_a_burner_is_called_disturbed(tiny: Tiny, tmp_path: Path) -> None:
    settings = ("train.steps=400", "watch.sample_seconds=0.5", "--workers", 2, "--run", tmp_path / "run")
    with burn(2):
        lockstep("train", tiny.config, *settings)
    summary = summarise(tmp_path / "run")
    assert summary.others_share is not None
    assert summary.others_share > 0.2
    assert make(tmp_path / "run").verdict[0] == summary.disturbance != ""


def test_the_share_of_other_programs_is_measured_in_every_run(tiny: Tiny, tmp_path: Path) -> None:
    """The machine may be busy with other tests, so that only the bounds are certain."""
    settings = ("train.steps=60", "watch.sample_seconds=0.5", "--workers", 2, "--run", tmp_path / "run")
    lockstep("train", tiny.config, *settings)
    summary = summarise(tmp_path / "run")
    assert summary.others_share is not None
    assert 0.0 <= summary.others_share <= 1.0
    assert bool(summary.disturbance) == (summary.others_share > 0.10)
