"""A report of a resilient run names the workers that were lost, with their times."""

from pathlib import Path

from lockstep.explain.measures.absences import list_absences
from lockstep.explain.reading.record import Record
from lockstep.explain.report import make
from madeup import MadeUp


def write_run(folder: Path, *kills: tuple[int, float, float | None]) -> MadeUp:
    """Writes a run of three workers. Each of `kills` is a worker, when it died and when it was back, in seconds from the
    beginning. The dead worker writes its `run` line one second before it has healed."""
    run = MadeUp(folder)
    start = run.now + 2.0
    run.launch(range(1, 41), workers=3, strategy="resilient")
    for worker, lost, back in kills:
        path = folder / "journal" / f"worker-{worker:04d}.jsonl"
        lines = path.read_text().splitlines()
        before = [line for line in lines if '"step"' not in line[:15] or _read_time(line) <= start + lost]
        after = [line for line in lines if back is not None and _read_time(line) > start + back]
        before = [line for line in before if '"stop"' not in line]
        path.write_text("".join(f"{line}\n" for line in before))
        if back is not None:
            run.now = start + back - 1.0
            run.write(worker, "run", attempt=1, workers=3, strategy="resilient", restarts=1)
            run.now = start + back
            run.write(worker, "heal", step=20, attempt=1, seconds=0.5)
        else:
            run.now = start + 3.9
            run.write(0, "quorum", step=30, participants=[rank for rank in range(3) if rank != worker])
        with path.open("a") as file:
            file.writelines(f"{line}\n" for line in after)
    return run


def _read_time(line: str) -> float:
    return float(line.split('"time": ')[1].split(",")[0].rstrip("}"))


def test_a_lost_worker_is_named_with_its_times(tmp_path: Path) -> None:
    run = write_run(tmp_path, (1, 1.0, 3.0))
    (absence,) = list_absences(Record.open(run.folder))
    assert (absence.worker, absence.step) == (1, 10)
    assert absence.back is not None
    assert 1.9 < absence.back - absence.lost < 2.1
    report = make(run.folder)
    assert "Worker 1 was lost after step 10, at " in report.verdict[0]
    assert "2.00 s later." in report.verdict[0]
    assert report.faults is not None
    (row,) = report.faults.rows
    assert row.title == "Worker 1 was lost"
    assert "and back at" in row.detail


def test_always_the_same_worker_is_said_only_where_it_is_true(tmp_path: Path) -> None:
    same = make(write_run(tmp_path / "same", (2, 1.0, 2.1), (2, 2.5, 3.7)).folder).verdict[0]
    assert "Workers were lost 2 times: always worker 2." in same
    several = make(write_run(tmp_path / "several", (1, 1.0, 2.1), (2, 2.0, 3.2)).folder).verdict[0]
    assert "Workers were lost 2 times: worker 1 once, worker 2 once." in several
    assert "always" not in several


def test_a_worker_that_did_not_come_back_is_named(tmp_path: Path) -> None:
    assert "and did not come back" in make(write_run(tmp_path, (2, 1.0, None)).folder).verdict[0]


def test_nothing_is_said_of_runs_without_losses_and_of_other_strategies(tmp_path: Path) -> None:
    assert list_absences(Record.open(write_run(tmp_path / "a").folder)) == []
    other = MadeUp(tmp_path / "b")
    other.launch(range(1, 11))
    other.write(1, "run", attempt=1, workers=2, strategy="allreduce", restarts=1)
    assert list_absences(Record.open(other.folder)) == []


def test_kinds_of_lines_that_a_report_does_not_know_are_ignored(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.write(0, "evaluating", step=1, seconds=0.1)
    run.launch(range(1, 21))
    run.write(0, "evaluating", step=20, limited=100)
    report = make(run.folder)
    assert report.summary.step == 20
    assert report.summary.damaged_lines == 0
