"""The progress line of a run."""

from pathlib import Path

import pytest

from lockstep.watch import console
from lockstep.watch.console import ConsoleProgress
from lockstep.watch.eta import Eta


def test_a_suspended_machine_does_not_distort_the_eta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "LINE_EVERY_SECONDS", -1.0)
    log = tmp_path / "console.log"
    progress = ConsoleProgress(log, Eta(10_000, None, 100_000), start=0)
    for step in range(1, 101):
        progress.step(step, 3.0, 1000.0, 3600.0 if step == 50 else 0.5)
    progress.close()
    lines = log.read_text().splitlines()
    assert lines[48].endswith("loss 3.000  1,000 words/s  ETA 1:22:55")
    assert lines[49].endswith("ETA 2:00:13")
    assert lines[99].endswith("ETA 1:25:21")


def test_an_evaluation_is_shown_in_the_log_while_it_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "LINE_EVERY_SECONDS", -1.0)
    log = tmp_path / "console.log"
    progress = ConsoleProgress(log, Eta(2000, 500, 1000), start=0)
    progress.step(1000, 3.0, 1000.0, 0.5)
    progress.evaluating(340, 1014, "sentences")
    progress.close()
    assert log.read_text().splitlines()[1].endswith("step 1,000/2,000  evaluating 340/1,014 sentences")
