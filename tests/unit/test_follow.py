import socket
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lockstep.cli import follow_command
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Journal, worker_file
from lockstep.watch.follow import TAIL_BYTES, Follower
from madeup import MadeUp


def step(number: int, **facts: Any) -> dict[str, Any]:
    shape = {"words": {"source": 30, "target": 40}, "seconds": 0.5, "phases": {"forward": 0.4, "merge": 0.1}}
    return {"step": number, "loss": 9.0 / number, **shape, **facts}


def test_every_poll_returns_the_current_status_of_each_worker(tmp_path: Path) -> None:
    first, second = Journal(tmp_path, 0), Journal(tmp_path, 1)
    with Follower(tmp_path) as follower:
        assert [one.step for one in follower.poll()] == [None, None]
        first.write("run", unit="images")
        first.write("step", **step(1))
        first.write("step", **step(2, seconds=1.5))
        second.write("run", unit="images")
        second.write("step", **step(1, staleness=3))
        one, other = follower.poll()
        assert (one.worker, one.step, one.loss, one.event) == (0, 2, 4.5, "trains")
        assert (one.per_second, one.merge_share) == (40.0, 0.1)  # 80 images in 2 s, of them 0.2 s for the exchange
        assert (other.step, other.staleness) == (1, 3)
        assert follower.unit == "images"

        first.write("system", cores=[1.0])
        first.write("checkpoint", step=1000)
        second.write("stop", reason="finished", step=1)
        one, other = follower.poll()
        assert (one.step, one.event, one.is_stopped) == (2, "saved step 1,000", False)
        assert (other.event, other.is_stopped) == ("stopped: finished", True)


def test_an_evaluation_is_followed(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    journal.write("step", **step(500))
    with Follower(tmp_path) as follower:
        journal.write("evaluating", step=500, done=340, of=1014, attempt=1)
        assert [(one.step, one.event) for one in follower.poll()] == [(500, "evaluating 340 of 1,014")]
        journal.write("evaluation", step=500, scores={"loss": 1.0})
        assert [one.event for one in follower.poll()] == ["evaluated"]


def test_a_new_launch_resets_the_status(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    journal.write("step", **step(7))
    journal.write("run", unit="words")
    with Follower(tmp_path) as follower:
        (one,) = follower.poll()
        assert (one.step, one.per_second, one.event) == (None, None, "starts")


def test_damaged_lines_are_skipped_and_incomplete_lines_are_awaited(tmp_path: Path) -> None:
    path = worker_file(tmp_path, 0)
    journal = Journal(tmp_path, 0)
    journal.write("step", **step(1))
    (tmp_path / "worker-old.jsonl").write_text("not a worker's")
    with Follower(tmp_path) as follower:
        with path.open("a") as file:
            file.write('{"kind":"ste\n7\n{"kind":"step","step":9}\n{"kind":"stop","time":1.0,"rea')
            file.flush()
            (one,) = follower.poll()
            assert (one.step, one.event) == (1, "trains")
            file.write('son":"signal"}\n')
        (one,) = follower.poll()
        assert one.event == "stopped: signal"


def test_only_the_end_of_a_long_journal_is_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    for number in range(1, 2000):
        journal.write("step", **step(number))
    assert worker_file(tmp_path, 0).stat().st_size > TAIL_BYTES
    with Follower(tmp_path) as follower:
        assert [one.step for one in follower.poll()] == [1999]
    for _ in range(4000):  # a long evaluation
        journal.write("system", host="node1", process={"cpu": 0.98, "resident": 917_000_000})
    with Follower(tmp_path) as follower:
        assert [one.step for one in follower.poll()] == [1999]


def look(folder: Path) -> follow_command.FollowedRun:
    return next(follow_command._take_snapshots(folder, every=1.0, once=True))


def test_a_run_that_is_not_locked_has_ended_or_was_cut_off(tmp_path: Path) -> None:
    run = MadeUp(tmp_path, hosts=[socket.gethostname()])
    run.launch(range(1, 4), stop=None)
    with RunDirectory(tmp_path).lock():
        assert look(tmp_path)["state"] == "running"
    assert look(tmp_path)["state"] == "cut off"
    run.write(0, "stop", reason="finished", step=3)  # worker 1 had died before, which some strategies survive
    assert look(tmp_path)["state"] == "ended"


def test_a_recent_line_shows_that_a_run_on_other_machines_is_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = MadeUp(tmp_path, hosts=["node1", "node2"])
    run.launch(range(1, 4), stop=None)
    assert look(tmp_path)["state"] == "cut off", "made up long ago"
    Journal(run.folder / "journal", 1).write("system", host="node2")
    assert look(tmp_path)["state"] == "running"
    monkeypatch.setattr(follow_command, "SILENT_SECONDS", 0.0)
    assert look(tmp_path)["state"] == "cut off"


def test_the_table_has_a_row_for_every_worker_of_the_last_launch(tmp_path: Path) -> None:
    run = MadeUp(tmp_path, hosts=["node1", "node2"])
    run.config(train={"steps": 2000})
    run.launch(range(1, 4), workers=3)
    run.launch(range(4, 6), workers=2, attempt=2, resumed=3, of_step={"staleness": 1})
    console = Console(width=100)
    with console.capture() as shown:
        console.print(follow_command._table(look(tmp_path)))
    lines = [line.split() for line in shown.get().splitlines() if line.strip()]
    assert lines[0] == [str(tmp_path), "of", "2,000", "steps,", "ended"]
    rows = [line for line in lines if line[0] in "012"]
    assert [(row[0], row[1], row[2], row[6]) for row in rows] == [("0", "node1", "5", "1"), ("1", "node2", "5", "1")]
