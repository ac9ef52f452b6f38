import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lockstep.run.journal import Journal, lines, read, worker_file


def write(folder: Path, *entries: tuple[str, dict[str, Any]], rank: int = 0) -> Path:
    journal = Journal(folder, rank)
    for kind, facts in entries:
        journal.write(kind, **facts)
    journal.close()
    return worker_file(folder, rank)


def step(number: int, **facts: Any) -> tuple[str, dict[str, Any]]:
    return "step", {"step": number, **facts}


def test_a_line_is_one_json_object_with_kind_and_time(tmp_path: Path) -> None:
    before = time.time()
    path = write(tmp_path, step(1, words={"source": 3}, note="gr\u00fcn\nblau"), ("stop", {"reason": "finished"}))
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["kind"] for line in found] == ["step", "stop"]
    assert all(before - 0.001 <= line["time"] <= time.time() + 0.001 for line in found)
    assert found[0]["words"] == {"source": 3}
    assert found[0]["note"] == "gr\u00fcn\nblau"
    assert path.read_bytes().endswith(b"}\n")


def test_every_worker_has_a_file_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, step(1, loss=1.0), rank=0)
    write(tmp_path, step(1, loss=2.0), rank=12)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["worker-0000.jsonl", "worker-0012.jsonl"]
    assert read(tmp_path, 12).steps[0]["loss"] == 2.0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_become_null(tmp_path: Path, value: float) -> None:
    path = write(tmp_path, step(1, loss=value, phases={"input": value}, both=[1.0, value], pair=(value, 2)))
    text = path.read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    line = json.loads(text)
    assert (line["loss"], line["phases"], line["both"], line["pair"]) == (None, {"input": None}, [1.0, None], [None, 2])


def test_numbers_keep_what_a_float32_knows(tmp_path: Path) -> None:
    (line,) = read_plain(write(tmp_path, step(123456789, loss=1.23456789, small=1.23456789e-12, count=2**53 + 1)))
    assert line["step"] == 123456789
    assert line["loss"] == 1.234568
    assert line["small"] == 1.234568e-12
    assert line["count"] == 2**53 + 1


def read_plain(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_steps_and_events_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, ("run", {"workers": 2}), step(2), step(1), ("evaluation", {"step": 1}), ("run", {"workers": 3}))
    reading = read(tmp_path)
    assert [line["step"] for line in reading.steps] == [1, 2]
    assert [line["kind"] for line in reading.events] == ["run", "evaluation", "run"]
    assert [line["workers"] for line in reading.of("run")] == [2, 3]
    assert reading.damaged == 0


def test_a_step_computed_again_counts_by_its_last_attempt(tmp_path: Path) -> None:
    write(tmp_path, step(1, attempt=1), step(2, attempt=1), step(3, attempt=1))
    write(tmp_path, step(2, attempt=2), step(3, attempt=2), step(4, attempt=2))
    assert [(line["step"], line["attempt"]) for line in read(tmp_path).steps] == [(1, 1), (2, 2), (3, 2), (4, 2)]


def test_a_heal_undoes_what_went_beyond_it(tmp_path: Path) -> None:
    write(tmp_path, step(1), step(2), step(3), ("heal", {"step": 2, "from": 1}), step(4))
    assert [line["step"] for line in read(tmp_path).steps] == [1, 2, 4]


A, B = ("1.1", 0), ("1.4", 2)  # a start from the beginning, and one from a checkpoint at step 2 after all had died


def start(*lineage: tuple[str, int], kind: str = "resume", step: int | None = None) -> tuple[str, dict[str, Any]]:
    return kind, {"step": lineage[-1][1] if step is None else step, "lineage": lineage}


def test_a_heal_undoes_steps_of_a_branch_that_was_lost(tmp_path: Path) -> None:
    write(tmp_path, start(A), *(step(number, branch=A[0]) for number in (1, 2, 3, 4)))  # dies
    write(tmp_path, start(A, B, kind="heal", step=5), step(6, branch=B[0]))  # the others had died too, and begun at 2
    assert [line["step"] for line in read(tmp_path).steps] == [1, 2, 6]
    write(tmp_path, start(("1.9", 0), kind="heal", step=9))
    assert not read(tmp_path).steps


def test_a_torn_last_line_is_skipped_and_counted_wherever_it_was_cut(tmp_path: Path) -> None:
    path = write(tmp_path, step(1), step(2, note="gr\u00fcn"))
    first, second = path.read_bytes().splitlines(keepends=True)
    for cut in range(1, len(second) - 1):
        path.write_bytes(first + second[:cut])
        reading = read(tmp_path)
        assert ([line["step"] for line in reading.steps], reading.damaged) == ([1], 1)


def test_the_next_launch_begins_a_new_line_after_a_torn_one(tmp_path: Path) -> None:
    path = write(tmp_path, step(1), step(2))
    whole = path.read_bytes()
    for cut in range(2, len(whole)):
        path.write_bytes(whole[:-cut])
        write(tmp_path, ("run", {"attempt": 2}), step(2, attempt=2))
        reading = read(tmp_path)
        assert len(reading.of("run")) == 1
        assert reading.steps[-1]["attempt"] == 2
        assert reading.damaged <= 1


def test_a_whole_line_that_only_lost_its_end_of_line_still_counts(tmp_path: Path) -> None:
    path = write(tmp_path, step(1))
    path.write_bytes(path.read_bytes()[:-1])
    write(tmp_path, step(2))
    reading = read(tmp_path)
    assert [line["step"] for line in reading.steps] == [1, 2]
    assert reading.damaged == 0


@pytest.mark.parametrize(
    "garbage", [b"\xff\xfe\x00", b"\0\0\0\0\0\0", b"[1]", b"5", b"null", b'{"step": 1}', b"{", b'{"kind"']
)
def test_a_line_that_is_no_entry_is_skipped_and_counted(tmp_path: Path, garbage: bytes) -> None:
    path = write(tmp_path, step(1))
    with path.open("ab") as file:
        file.write(garbage + b"\n\n")
    write(tmp_path, step(2))
    reading = read(tmp_path)
    assert [line["step"] for line in reading.steps] == [1, 2]
    assert reading.damaged == 1
    assert list(lines(path)).count(None) == 1


def test_a_line_with_half_of_a_surrogate_pair_is_read(tmp_path: Path) -> None:
    """File names that are not UTF-8 contain them."""
    path = write(tmp_path, step(1))
    with path.open("ab") as file:
        file.write(b'{"kind":"fault","time":1.0,"detail":"\\udcff"}\n')
    reading = read(tmp_path)
    assert ([line["detail"] for line in reading.of("fault")], reading.damaged) == (["\udcff"], 0)


def test_a_journal_that_does_not_exist_reads_as_empty(tmp_path: Path) -> None:
    reading = read(tmp_path / "nowhere")
    assert (reading.steps, reading.events, reading.damaged) == ([], [], 0)


def test_what_was_written_survives_a_kill(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from lockstep.run.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1]), 0); journal.write('step', step=1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=os.environ, check=False)
    assert [line["step"] for line in read(tmp_path).steps] == [1]


def test_lines_of_several_threads_are_whole_and_in_the_order_of_their_times(tmp_path: Path) -> None:
    journal, together = Journal(tmp_path, 0), threading.Barrier(4)

    def fill(writer: int) -> None:
        together.wait()
        for number in range(30):
            journal.write("system", writer=writer, number=number, cores=[0.123456789] * 1000)

    threads = [threading.Thread(target=fill, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    reading = read(tmp_path)
    assert reading.damaged == 0
    times = [line["time"] for line in reading.events]
    assert times == sorted(times)
    for writer in range(4):
        assert [line["number"] for line in reading.events if line["writer"] == writer] == list(range(30))


def test_a_full_disk_is_an_error_when_a_line_is_written_and_not_again_at_the_end(tmp_path: Path) -> None:
    worker_file(tmp_path, 0).symlink_to("/dev/full")
    journal = Journal(tmp_path, 0)
    with pytest.raises(OSError, match="No space left"):
        journal.write("stop")
    journal.close()
