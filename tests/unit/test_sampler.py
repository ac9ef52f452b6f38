"""The sampler records what happens on the machine, and never stops a training."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest

from lockstep.run.journal import Journal, read
from lockstep.watch import sampler
from lockstep.watch.sampler import (
    WORKER_SOURCES,
    CoreUsage,
    DiskCounters,
    NetworkCounters,
    ProcessUsage,
    Sampler,
    Source,
    list_host_sources,
    read_link_bits,
    to_scalars,
)


class CountingSource:
    """A source that counts its readings and can be waited for."""

    def __init__(self) -> None:
        self.readings = 0
        self._change = threading.Condition()

    def __call__(self, seconds: float) -> int:
        with self._change:
            self.readings += 1
            self._change.notify_all()
        return self.readings

    def wait_for(self, readings: int) -> None:
        with self._change:
            assert self._change.wait_for(lambda: self.readings >= readings, timeout=60)


def make_maker(source: Source) -> Callable[[], Source]:
    return lambda: source


def fail(*_: object) -> NoReturn:
    raise PermissionError("not for you")


def system_lines(folder: Path) -> list[dict[str, Any]]:
    return read(folder).of("system")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "SHORTEST_SECONDS", 0.0)


def test_samples_are_taken_at_every_interval_and_at_the_end(tmp_path: Path, at_once: None) -> None:
    source = CountingSource()
    running = Sampler(Journal(tmp_path, 0), 0.01, "here", {"count": make_maker(source)})
    source.wait_for(3)
    running.close()
    lines = system_lines(tmp_path)
    assert [line["count"] for line in lines] == list(range(1, source.readings + 1))
    assert all(line["host"] == "here" and line["seconds"] > 0 for line in lines)


def test_the_first_sample_does_not_wait_for_a_long_interval(tmp_path: Path) -> None:
    source = CountingSource()
    running = Sampler(Journal(tmp_path, 0), 1000.0, "here", {"count": make_maker(source)})
    source.wait_for(1)
    running.close()


def test_a_run_shorter_than_an_interval_has_its_last_sample(tmp_path: Path, at_once: None) -> None:
    Sampler(Journal(tmp_path, 0), 1000.0, "here", {"count": make_maker(CountingSource())}).close()
    assert [line["count"] for line in system_lines(tmp_path)] == [1]


def test_no_interval_means_no_sample(tmp_path: Path, at_once: None) -> None:
    source = CountingSource()
    Sampler(Journal(tmp_path, 0), 0.0, "here", {"count": make_maker(source)}).close()
    assert source.readings == 0


def test_a_failing_source_is_left_out_and_the_others_continue(tmp_path: Path) -> None:
    good = CountingSource()
    bad = {"never": fail, "later": make_maker(fail)}
    running = Sampler(Journal(tmp_path, 0), 0.01, "here", {**bad, "count": make_maker(good)})
    good.wait_for(3)
    running.close()
    first, *rest = system_lines(tmp_path)
    assert first["left_out"] == dict.fromkeys(("never", "later"), "PermissionError: not for you")
    assert all("left_out" not in line and "later" not in line for line in rest)
    assert [line["count"] for line in (first, *rest)] == list(range(1, good.readings + 1))


def test_a_journal_that_cannot_be_written_ends_the_sampling_and_nothing_else(tmp_path: Path) -> None:
    journal, source = Journal(tmp_path, 0), CountingSource()
    journal.close()
    running = Sampler(journal, 0.01, "here", {"count": make_maker(source)})
    source.wait_for(1)
    running.close()
    assert not running._thread.is_alive()


def test_close_does_not_wait_for_a_source_that_hangs(tmp_path: Path) -> None:
    asked, answer = threading.Event(), threading.Event()

    def hang(seconds: float) -> int:
        asked.set()
        answer.wait()
        return 1

    running = Sampler(Journal(tmp_path, 0), 0.01, "here", {"hang": make_maker(hang)})
    assert asked.wait(60)
    running.close()
    answer.set()


def test_every_line_has_the_processor_time_of_sampling(tmp_path: Path, at_once: None) -> None:
    def work(seconds: float) -> int:
        return sum(range(200_000))

    Sampler(Journal(tmp_path, 0), 1000.0, "here", {"work": make_maker(work)}).close()
    Sampler(Journal(tmp_path, 1), 1000.0, "here", {"work": make_maker(lambda seconds: 1)}).close()
    (busy,), (idle,) = system_lines(tmp_path), read(tmp_path, 1).of("system")
    assert busy["own"] > idle["own"] > 0


def test_each_line_is_passed_to_show(tmp_path: Path, at_once: None) -> None:
    shown: list[dict[str, Any]] = []
    Sampler(Journal(tmp_path, 0), 1000.0, "here", {"count": make_maker(CountingSource())}, shown.append).close()
    assert [line["count"] for line in shown] == [1]


def test_the_real_sources_write_the_documented_keys(tmp_path: Path, at_once: None) -> None:
    Sampler(Journal(tmp_path, 0), 1000.0, socket.gethostname(), WORKER_SOURCES | list_host_sources([])).close()
    (line,) = system_lines(tmp_path)
    assert line["process"].keys() == {"cpu", "resident"}
    assert len(line["cores"]) == psutil.cpu_count()
    assert all(0 <= share <= 1 for share in line["cores"])
    assert 0 < line["memory"]["used"] < line["memory"]["total"] == psutil.virtual_memory().total
    assert 0.0 <= line["others"] <= 1.0
    assert isinstance(line["gpus"], list)
    assert line["seconds"] > 0


def test_process_usage_is_that_of_the_worker() -> None:
    source, process = ProcessUsage(), psutil.Process()
    before = process.cpu_times()
    while sum(process.cpu_times()[:2]) < sum(before[:2]) + 0.2:
        sum(range(10_000))
    sample = source(0.5)
    assert sample["cpu"] > 0.99 * 0.2 / 0.5
    assert sample["resident"] == pytest.approx(process.memory_info().rss, rel=0.2)
    assert source(0.5)["cpu"] < sample["cpu"], "counts from the reading before"


def test_bytes_are_counted_per_interface() -> None:
    source = NetworkCounters()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        peer, _ = server.accept()
        with peer:
            client.sendall(bytes(10**6))
            received = 0
            while received < 10**6:
                received += len(peer.recv(2**16))
    loopback = source(1.0)["lo"]
    assert loopback["sent"] >= 10**6
    assert loopback["received"] >= 10**6
    assert loopback["link_bits"] is None
    assert source(1.0)["lo"]["sent"] < loopback["sent"], "once used, an interface stays in the lines"


def test_disk_counters_report_read_and_written_bytes(tmp_path: Path) -> None:
    try:
        source = DiskCounters()
    except LookupError:
        pytest.skip("the kernel has no disk counters")
    with (tmp_path / "data").open("wb") as file:
        file.write(os.urandom(2**20))
        file.flush()
        os.fsync(file.fileno())
    sample = source(1.0)
    assert sample.keys() == {"read", "written"}
    assert min(sample.values()) >= 0


def test_a_busy_core_has_a_share_above_zero() -> None:
    source, process = CoreUsage(), psutil.Process()
    before = sum(process.cpu_times()[:2])
    while sum(process.cpu_times()[:2]) < before + 0.2:
        sum(range(10_000))
    assert sum(source(1.0)) > 0


def test_an_interface_without_a_speed_has_none() -> None:
    assert read_link_bits("lo") is None
    assert read_link_bits("no-such-interface") is None


def test_scalars_are_rates_and_leave_out_unknown_values() -> None:
    gpu = {"index": 1, "name": "a", "utilisation": 0.5, "memory_used": 7, "memory_total": 9, "watts": None}
    line = {
        "seconds": 2.0,
        "host": "here",
        "process": {"cpu": 1.5, "resident": 100},
        "cores": [1.0, 0.25],
        "memory": {"used": 5, "total": 10},
        "disk": {"read": 4, "written": 8},
        "network": {"eth0": {"sent": 20, "received": 10, "link_bits": None}},
        "gpus": [gpu | {"sm_activity": 0.25}],
    }
    assert to_scalars(line) == {
        "worker/cores": 1.5,
        "worker/resident": 100,
        "host/cores_busy": 1.25,
        "host/memory_used": 5,
        "disk/read_per_second": 2.0,
        "disk/written_per_second": 4.0,
        "network/eth0/sent_per_second": 10.0,
        "network/eth0/received_per_second": 5.0,
        "gpu/1/utilisation": 0.5,
        "gpu/1/memory_used": 7,
        "gpu/1/sm_activity": 0.25,
    }
    assert to_scalars({"seconds": 1.0, "host": "here", "process": {"cpu": 1.0, "resident": 2}}) == {
        "worker/cores": 1.0,
        "worker/resident": 2,
    }
