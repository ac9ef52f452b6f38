"""The progress line of a run."""

from pathlib import Path

import pytest

from lockstep.watch import console
from lockstep.watch.console import ConsoleProgress, format_duration


def test_durations_are_formatted_as_a_clock() -> None:
    assert [format_duration(seconds) for seconds in (59.9, 61, 3725)] == ["0:59", "1:01", "1:02:05"]


def test_a_suspended_machine_does_not_distort_the_eta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "LINE_EVERY_SECONDS", -1.0)
    log = tmp_path / "console.log"
    progress = ConsoleProgress(log, steps=10_000, start=0)
    for step in range(1, 101):
        progress.step(step, 3.0, 1000.0, 3600.0 if step == 50 else 0.5)
    progress.close()
    lines = log.read_text().splitlines()
    assert lines[48].endswith("loss 3.000  1,000 words/s  ETA 1:22:55")
    assert lines[49].endswith("ETA 2:00:13")
    assert lines[99].endswith("ETA 1:25:21")
