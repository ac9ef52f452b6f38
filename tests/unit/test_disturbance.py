"""What other programs did to a run is measured, and said before its figures."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from burner import burn
from lockstep.explain.compare_runs import compare
from lockstep.explain.measures.disturbance import measure_disturbance
from lockstep.explain.reading.record import Record
from lockstep.explain.report import make, render_text
from lockstep.explain.summary import summarise
from lockstep.watch.other_programs import OtherPrograms, compute_share, read_quota
from madeup import PLAIN, MadeUp, Phases


def spend(process: psutil.Process, seconds: float) -> None:
    """Waits until a process has used that much processor time from now on."""
    until = sum(process.cpu_times()[:2]) + seconds
    while sum(process.cpu_times()[:2]) < until:
        sum(range(10_000))


def write_slow_worker(folder: Path, others: list[float] | None) -> MadeUp:
    """Writes a run whose worker 1 is slow in every step, with a sample of other programs for every ten steps."""

    def phases(rank: int, step: int) -> Phases:
        return {**PLAIN, "forward": 0.100} if rank == 1 else {**PLAIN, "merge": 0.065}

    run = MadeUp(folder)
    first = run.now + 2.0
    run.launch(range(1, 41), phases=phases)
    for place, share in enumerate(others or ()):
        run.now = first + 1.6 * (place + 1)
        run.write(0, "system", seconds=1.6, host="here", others=share)
    return run


def test_a_disturbed_run_says_so_first_and_blames_no_worker(tmp_path: Path) -> None:
    run = write_slow_worker(tmp_path, [0.0, 0.45, 0.45, 0.45])
    report = make(run.folder)
    assert report.verdict[0].startswith("Other programs used 39 % of the cores")
    assert report.verdict[0].endswith("the figures below are of a disturbed run.")
    assert len(report.verdict) == 4
    assert report.bottleneck is not None
    assert report.bottleneck.name == "imbalance"
    assert "waiting for the slowest worker" in report.verdict[3]
    assert "Worker 1 is the slowest in 100 % of the steps, which may be due to other programs." in report.verdict[3]
    assert not any("Make worker 1" in one.what for one in report.advice)
    assert any(one.what == "Train with nothing else running on the machine." for one in report.advice)
    assert render_text(report).index("disturbed run") < render_text(report).index("worker")
    assert "which may be due to other programs" in report.answers[3].text
    summary = summarise(run.folder)
    assert summary.disturbance == report.verdict[0]
    assert summary.others_share == pytest.approx(30 * 0.45 / 35)
    other = write_slow_worker(tmp_path / "quiet", [0.01] * 4)
    notes = compare({"a": run.folder, "b": other.folder}).notes
    assert notes[0] == f"a: {report.verdict[0]}"
    assert not any(note.startswith("b:") for note in notes)


@pytest.mark.parametrize("others", [None, [0.09] * 4])
def test_a_quiet_run_and_one_without_samples_name_the_slow_worker(tmp_path: Path, others: list[float] | None) -> None:
    run = write_slow_worker(tmp_path, others)
    report = make(run.folder)
    assert len(report.verdict) == 3
    assert "disturbed" not in render_text(report)
    assert report.bottleneck is not None
    assert report.bottleneck.name == "imbalance: worker 1"
    assert summarise(run.folder).disturbance == ""


def test_only_samples_during_measured_steps_count(tmp_path: Path) -> None:
    """Each step takes 0.1 s: 5 warm-up steps, 15 measured ones, and then nothing."""
    run = MadeUp(tmp_path)
    first = run.now + 2.0
    run.launch(range(1, 21))
    for begin, end, share in ((0.0, 0.5, 1.0), (0.5, 1.5, 0.2), (1.5, 3.0, 0.5)):
        run.now = first + end
        run.write(0, "system", seconds=end - begin, host="here", others=share)
    assert measure_disturbance(Record.open(run.folder)).share == pytest.approx((1.0 * 0.2 + 0.5 * 0.5) / 1.5)


def test_processor_time_of_others_counts_and_that_of_the_run_does_not() -> None:
    with burn() as (other,):
        source = OtherPrograms(os.getpid())
        busy, own = source._before
        spend(other, 0.3)
        child = subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)
        assert child.returncode == 0
        share = source(1.0)
    assert share * source._limit > 0.3 * 0.9
    assert source._before[1] - own > 0.05, "children of the run that have ended count as the run"
    assert source._before[0] - busy >= 0.3


def test_an_interval_shorter_than_the_ticks_of_the_kernel_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    source = OtherPrograms(os.getpid())
    busy, own = source._before
    monkeypatch.setattr(source, "_read_seconds", lambda: (busy, own + 0.01))
    assert source(0.005) == 0.0
    monkeypatch.setattr(source, "_read_seconds", lambda: (busy, own + 5.0))
    with pytest.raises(LookupError, match="does not count"):
        source(5.0)


def test_a_run_loses_only_the_cores_that_are_not_left_free_for_it() -> None:
    assert compute_share(others=1.0, cores=2, limit=2.0) == 0.5
    assert compute_share(others=30.0, cores=64, limit=2.0) == 0.0
    assert compute_share(others=63.0, cores=64, limit=2.0) == 0.5
    assert compute_share(others=9.0, cores=2, limit=2.0) == 1.0


def test_the_limit_of_a_container_is_read_from_its_control_group(tmp_path: Path) -> None:
    group, own = tmp_path / "a" / "b", tmp_path / "self"
    group.mkdir(parents=True)
    own.write_text("3:cpuset:/\n0::/a/b\n")
    assert read_quota(tmp_path, own) == float("inf")
    (group / "cpu.max").write_text("max 100000\n")
    (tmp_path / "a" / "cpu.max").write_text("150000 100000\n")
    assert read_quota(tmp_path, own) == 1.5
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("50000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    own.write_text("3:cpu,cpuacct:/\n")
    assert read_quota(tmp_path, own) == 0.5
