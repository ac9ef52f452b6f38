"""The monitors of several hosts: what they tell each other, who they name, and what they do not believe."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lockstep import monitor_folder
from lockstep.heartbeat import Heartbeat, HeartbeatWriter
from lockstep.launch import host_monitor
from lockstep.launch.engine import MonitorFacts, find_lacks
from lockstep.launch.host_monitor import HostMonitor
from lockstep.launch.monitor_exchange import Exchange, Message, News
from lockstep.launch.process_state import ProcessState
from lockstep.launch.stall_watch import View
from lockstep.monitor_folder import (
    Peer,
    make_monitor_folder,
    note_end,
    read_workers,
    register_worker,
    take_death,
    write_peers,
)

KEY = "00ff" * 8


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def make_pair() -> tuple[Exchange, Exchange]:
    one, two = Exchange("127.0.0.1"), Exchange("127.0.0.1")
    peers: list[Peer] = [
        {"host": f"h{number}", "address": "127.0.0.1", "port": exchange.port, "ranks": [number - 1]}
        for number, exchange in ((1, one), (2, two))
    ]
    one.join(peers, bytes.fromhex(KEY), peers[0])
    two.join(peers, bytes.fromhex(KEY), peers[1])
    return one, two


def hear(exchange: Exchange) -> Message | None:
    exchange.receive()
    return exchange.others[0].message


def test_a_host_hears_what_another_one_sees() -> None:
    one, two = make_pair()
    now = time.monotonic()
    view = View({1: Heartbeat(7, 3, "merge", now - 4.0, 0.5)}, {1: ProcessState("T", 1.0)})
    one.send(Message(0, view, [News("stall", "Worker 1 has stood still.", 1, "established")]))
    wait_until(lambda: hear(two) is not None, "nothing was heard")
    message = hear(two)
    assert message is not None
    beat = message.view.beats[1]
    assert (beat.step, beat.count, beat.phase) == (7, 3, "merge")
    assert 3.9 < time.monotonic() - beat.time < 10
    assert message.view.states[1].is_halted
    assert message.news == [News("stall", "Worker 1 has stood still.", 1, "established")]


LINE = b'{"n":5,"w":[],"s":[],"l":false}'


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{}",
        LINE.replace(b"5", b'"5"'),
        LINE.replace(b'"w":[]', b'"w":[[0,1,1,99,0,0,"S",false]]'),
        LINE.replace(b'"w":[]', b'"w":[[0,1,1,1,-5,0,"S",false]]'),
        LINE.replace(b'"w":[]', b'"w":[[0,1]]'),
        LINE.replace(b'"s":[]', b'"s":[["fire","",0,"",""]]'),
        b"[" * 5000,
        b"x" * 20_000,
    ],
)
def test_what_is_not_well_formed_is_ignored(line: bytes) -> None:
    one, two = make_pair()
    text = b"0 " + line
    place = ("127.0.0.1", two.port)
    one._socket.sendto(one._sign(text) + text, place)
    one._socket.sendto(one._sign(b"0 " + LINE) + b"0 " + LINE, place)
    wait_until(lambda: hear(two) is not None, "the well-formed line was not heard")
    message = hear(two)
    assert message is not None
    assert message.number == 5


def test_a_stranger_and_a_repetition_are_not_believed() -> None:
    one, two = make_pair()
    place = ("127.0.0.1", two.port)
    stranger = Exchange("127.0.0.1")
    stranger._key = b"another"
    later, earlier = (b"0 " + LINE.replace(b"5", number) for number in (b"9", b"5"))
    stranger._socket.sendto(stranger._sign(later) + later, place)
    one._socket.sendto(one._sign(earlier) + earlier, place)
    wait_until(lambda: hear(two) is not None, "the signed line was not heard")
    message = hear(two)
    assert message is not None
    assert message.number == 5
    heard_at = two.others[0].heard_at
    one._socket.sendto(one._sign(earlier) + earlier, place)
    one.send(Message(0, View()))
    time.sleep(0.05)
    hear(two)
    assert two.others[0].heard_at == heard_at


@pytest.fixture
def _memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(monitor_folder, "MEMORY", tmp_path)


@pytest.mark.usefixtures("_memory")
def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    folder = make_monitor_folder("run")
    assert folder is not None
    assert folder == make_monitor_folder("run")
    assert folder.parent != (make_monitor_folder("other") or folder).parent
    folder.parent.chmod(0o770)
    assert make_monitor_folder("run") is None
    folder.parent.chmod(0o700)
    folder.rmdir()
    folder.symlink_to(tmp_path)
    assert make_monitor_folder("run") is None


@pytest.mark.usefixtures("_memory")
def test_what_dead_monitors_have_left_is_removed(tmp_path: Path) -> None:
    names = ("dead", "running", "new")
    folders = {name: tmp_path / f"lockstep-job-{os.getuid()}-{name}" / "start" for name in names}
    for folder in folders.values():
        folder.mkdir(parents=True)
        (folder / "lock").touch()
    for name in ("dead", "running"):
        os.utime(folders[name], (1, 1))
    with (folders["running"] / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_monitor_folder("run")
    assert not folders["dead"].parent.exists()
    assert folders["running"].exists()
    assert folders["new"].exists()


@contextmanager
def idle_process() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    try:
        yield child
    finally:
        child.kill()
        child.wait()


class Host:
    """A monitor in this process, and a worker in another one."""

    def __init__(self, tmp_path: Path, number: int, pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rank, self.name, self.folder = number - 1, f"h{number}", tmp_path / f"h{number}" / "start"
        self.folder.mkdir(parents=True)
        monkeypatch.setattr(os, "getpid", lambda: pid)
        register_worker(self.folder, self.rank)
        monkeypatch.undo()
        self.writer = HeartbeatWriter(self.folder / f"heartbeat-{self.rank}")
        for step in (1, 2, 3):
            self.writer.begin_step(step)
        journal = tmp_path / "run" / "journal"
        facts = MonitorFacts(str(self.folder), str(journal), self.name, "127.0.0.1", "127.0.0.1", 1.5, 600.0)
        self.monitor = HostMonitor(facts)

    def peer(self) -> Peer:
        return {"host": self.name, "address": "127.0.0.1", "port": self.monitor.exchange.port, "ranks": [self.rank]}

    def faults(self) -> list[dict[str, object]]:
        path = Path(self.monitor.log._journal or "") / f"monitor-{self.name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Host, Host]]:
    (tmp_path / "run").mkdir()
    with idle_process() as one, idle_process() as two:
        pair = Host(tmp_path, 1, one.pid, monkeypatch), Host(tmp_path, 2, two.pid, monkeypatch)
        for name, seconds in {"CHECK": 0.05, "SEND": 0.02, "LINGER": 0.5}.items():
            monkeypatch.setattr(host_monitor, f"{name}_SECONDS", seconds)
        for host in pair:
            monkeypatch.setenv("LOCKSTEP_HEARTBEATS", str(host.folder))
            write_peers([other.peer() for other in pair], KEY)
        wait_until(lambda: take_turns(pair) and all(hear(host.monitor.exchange) for host in pair), "not heard")
        yield pair
        for host in pair:
            host.monitor.close()


def take_turns(hosts: tuple[Host, ...]) -> bool:
    for host in hosts:
        host.monitor.take_turn()
    return True


def test_everybody_names_the_host_of_the_stopped_worker_which_is_then_ended(
    hosts: tuple[Host, Host], capfd: pytest.CaptureFixture[str]
) -> None:
    one, two = hosts
    (worker,) = read_workers(two.folder)
    os.kill(worker.process.pid, signal.SIGSTOP)
    one.writer.beat("merge")
    wait_until(lambda: take_turns(hosts) and len(one.monitor.repeated) == 2, "the worker was not ended, or not named")
    said = capfd.readouterr().err
    assert said.count("Host h2: Worker 1 (process ") == 2, "each monitor says it once"
    assert "it is stopped (SIGSTOP)" in said
    assert said.count("Host h2: Worker 1 was ended.") == 2
    assert not worker.process.is_alive()
    assert [(fault["what"], fault["host"], fault["rank"]) for fault in two.faults()] == [
        ("stall", "h2", 1),
        ("ended", "h2", 1),
    ]
    assert not one.faults(), "the host of the worker writes the lines"
    assert one.monitor.alive, "the victim is left to notice"
    for host in hosts:
        note = take_death(host.folder)
        assert note is not None
        assert "Worker 1 was ended." in note[1]


def test_a_worker_that_is_gone_is_named_on_all_hosts(
    hosts: tuple[Host, Host], capfd: pytest.CaptureFixture[str]
) -> None:
    (worker,) = read_workers(hosts[1].folder)
    os.kill(worker.process.pid, signal.SIGKILL)
    wait_until(lambda: take_turns(hosts) and len(hosts[0].monitor.repeated) == 1, "the others were not told")
    assert capfd.readouterr().err.count("is gone without a word in step 3: it was killed, or crashed.") == 2


def test_the_killed_worker_is_named_and_not_the_one_that_has_lost_it(
    hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    one = hosts[0]
    with idle_process() as third:
        monkeypatch.setattr(os, "getpid", lambda: third.pid)
        register_worker(one.folder, 9)
        wait_until(lambda: take_turns((one,)) and 9 in one.monitor.alive, "the worker was not found")
        monkeypatch.setenv("LOCKSTEP_HEARTBEATS", str(one.folder))
        monkeypatch.setenv("RANK", "0")
        note_end("lost", "Worker 0 lost the connection to another worker.")
        third.kill()
        third.wait()
        one.monitor.take_turn()
    assert "Worker 9 (process " in capfd.readouterr().err
    assert [(fault["what"], fault["rank"]) for fault in one.faults()] == [("died", 9)]


def test_a_host_that_is_not_heard_is_lost_and_the_others_end(
    hosts: tuple[Host, Host], capfd: pytest.CaptureFixture[str]
) -> None:
    one, _ = hosts
    one.writer.beat("merge")
    wait_until(lambda: take_turns((one,)) and not one.monitor.alive, "the worker was not ended")
    said = capfd.readouterr().err
    assert said.startswith("Host h2 (127.0.0.1, Worker 1) is lost: its monitor was not heard for")
    assert "Host h1: Worker 0 was ended. Host h2" in said
    assert [(fault["what"], fault["host"]) for fault in one.faults()] == [("host lost", "h2"), ("ended", "h1")]


def test_a_silent_monitor_is_no_lost_host_while_the_training_goes_on(hosts: tuple[Host, Host]) -> None:
    one, _ = hosts
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        one.writer.begin_step(4)
        take_turns((one,))
        time.sleep(0.02)
    assert one.monitor.alive
    assert not one.monitor.lost


@pytest.mark.parametrize(
    ("restarts", "shares_store", "command", "is_one_host", "lacks"),
    [
        (3, False, "torchrun --rdzv-backend c10d --rdzv_conf keep_alive_interval=1", False, []),
        (0, True, "", True, ["--max-restarts 3", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"]),
        (3, False, "torchrun --master-addr h1", False, ["--rdzv-backend c10d", "--rdzv-conf last_call_timeout=2"]),
    ],
)
def test_what_a_torchrun_command_lacks_is_said(
    restarts: int, shares_store: bool, command: str, is_one_host: bool, lacks: list[str]
) -> None:
    said = find_lacks(restarts, shares_store, command.split(), is_one_host)
    assert [one.startswith(other) for one, other in zip(said, lacks, strict=True)] == [True] * len(lacks)
