"""A command and the agent of a host: what they say to each other, and what happens when one of them is gone."""

import os
import queue
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import JsonValue

from conftest import is_alive, wait_until_dead
from lockstep.errors import LockstepError
from lockstep.hosts.agent_channel import AgentChannel, ChannelLost, Event, ask_all, make_agent_command
from lockstep.hosts.connections import connect, listen
from lockstep.hosts.hosts_file import Host
from lockstep.hosts.machine_report import MachineReport


def open_channel(before: str = "", after: str = "") -> AgentChannel:
    command = f"{before} {sys.executable} -m lockstep.hosts.agent {after}"
    return AgentChannel("here", ["bash", "-c", command])


def test_questions_are_answered_by_an_agent_that_has_no_torch() -> None:
    with open_channel() as channel:
        assert channel.wait_for_hello()["host"] == socket.gethostname()
        report = channel.ask("facts", first="localhost")
        assert isinstance(report, dict)
        assert MachineReport(**report).cores >= 1  # type: ignore[arg-type]
        assert MachineReport(**report).torch.startswith("2.")  # type: ignore[arg-type]
        with pytest.raises(LockstepError, match="KeyError"):
            channel.ask("nothing of the kind")


def test_what_a_login_prints_is_no_answer() -> None:
    with open_channel(before="echo Welcome; echo '{\"id\": 1}';") as channel:
        assert channel.wait_for_hello()["hello"] == "lockstep agent"
        assert float(str(channel.ask("clock"))) == pytest.approx(time.time(), abs=5)


def test_an_agent_that_does_not_start_is_explained() -> None:
    with AgentChannel("h2", ["bash", "-c", "echo 'Host key verification failed.' >&2; exit 255"]) as channel:
        with pytest.raises(ChannelLost, match=r"h2 is gone: Host key verification failed\. Compare the host's key"):
            channel.wait_for_hello()


def test_a_lost_connection_ends_every_question() -> None:
    with open_channel() as channel, open_channel() as other:
        for one in (channel, other):
            one.wait_for_hello()
        os.kill(channel._process.pid, signal.SIGKILL)
        lost, answered = ask_all([channel, other], "clock", 20, [{}, {}])
        assert isinstance(lost, ChannelLost)
        assert float(str(answered)) > 0


def test_the_agent_ends_with_what_it_has_started(tmp_path: Path) -> None:
    with open_channel() as channel:
        channel.wait_for_hello()
        (agent,) = _children(channel._process.pid) or [channel._process.pid]
        question = ask_in_background(channel)
        while not _children(agent):
            time.sleep(0.02)
        started = _children(agent)
        channel.close()
        question.join(timeout=20)
        assert not question.is_alive()
    while any(Path(f"/proc/{pid}").exists() and _state(pid) != "Z" for pid in started):
        time.sleep(0.02)


LEAVE = """
import os, subprocess, sys, tempfile
open(tempfile.mkstemp()[1], "w").write("temporary")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, tempfile.gettempdir(), flush=True)
sys.exit(3)
"""
"""Leaves a process in a session of its own without a parent, and a temporary file."""


def test_nothing_is_left_of_a_program_that_an_agent_has_started(tmp_path: Path) -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    command = [sys.executable, "-m", "lockstep.hosts.agent"]
    with AgentChannel("here", command, lambda name, event: events.put(event)) as channel:
        channel.wait_for_hello()
        words: list[JsonValue] = [sys.executable, "-c", LEAVE]
        channel.ask("start", name="leave", words=words, variables={"WORD": "secret"}, folder=str(tmp_path / "new"))
        told = [events.get(timeout=20) for _ in range(2)]
        line = next(one for one in told if one["event"] == "line")
        assert next(one for one in told if one["event"] == "end")["code"] == 3
        left, folder = str(line["text"]).split()
        assert Path(folder).is_dir()
        assert is_alive(int(left))
        channel.close()
        wait_until_dead([int(left)])
        assert not Path(folder).exists()
        assert events.get(timeout=20) == {"event": "lost"}


def test_temporary_files_of_a_killed_agent_are_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-m", "lockstep.hosts.agent"]
    with AgentChannel("here", command) as killed, AgentChannel("here", command) as other:
        for channel in (killed, other):
            channel.wait_for_hello()
            channel.ask("start", name="sleep", words=["sleep", "600"], variables={}, folder="/")
        assert len(list(tmp_path.glob("lockstep-agent-*"))) == 2, "those of others stay"
        os.kill(killed._process.pid, signal.SIGKILL)
        killed._process.wait()
        with AgentChannel("here", command) as channel:
            channel.wait_for_hello()
            channel.ask("start", name="sleep", words=["sleep", "600"], variables={}, folder="/")
            assert len(list(tmp_path.glob("lockstep-agent-*"))) == 2
    wait_until_gone(tmp_path)


def wait_until_gone(folder: Path) -> None:
    while list(folder.iterdir()):
        time.sleep(0.02)


def test_an_agent_that_is_cut_off_ends_itself(tmp_path: Path) -> None:
    """What it has started ends, too."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    command = [sys.executable, "-m", "lockstep.hosts.agent"]
    with AgentChannel("here", command, lambda name, event: events.put(event)) as channel:
        channel.wait_for_hello()
        pid = channel.ask("start", name="sleep", words=["sleep", "600"], variables={}, folder=str(tmp_path))
        channel.ask("end after", silence=0.3)
        while events.get(timeout=20) != {"event": "lost"}:
            pass
        wait_until_dead([int(str(pid))])


def test_a_program_gets_signals_and_is_alone_with_its_name() -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    command = [sys.executable, "-m", "lockstep.hosts.agent"]
    with AgentChannel("here", command, lambda name, event: events.put(event)) as channel:
        channel.wait_for_hello()
        channel.ask("start", name="sleep", words=["sleep", "600"], variables={}, folder="/")
        with pytest.raises(LockstepError, match="sleep runs already"):
            channel.ask("start", name="sleep", words=["sleep", "600"], variables={}, folder="/")
        assert channel.ask("signal", name="sleep", number=int(signal.SIGTERM)) is True
        assert events.get(timeout=20) == {"event": "end", "program": "sleep", "code": -signal.SIGTERM}


def test_the_children_of_a_program_are_ended_alone() -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    command = [sys.executable, "-m", "lockstep.hosts.agent"]
    with AgentChannel("here", command, lambda name, event: events.put(event)) as channel:
        channel.wait_for_hello()
        script = "sleep 600 & echo ready; wait $!; exit 7"
        channel.ask("start", name="parent", words=["sh", "-c", script], variables={}, folder="/")
        assert events.get(timeout=20)["text"] == "ready"
        assert channel.ask("end children", name="parent") == 1
        while (event := events.get(timeout=20))["event"] != "end":
            pass
        assert event["code"] == 7


def test_a_host_is_reached_by_ssh_without_a_shell_of_ours() -> None:
    command = make_agent_command(Host("node2", 1, 4444, "me"), ["ssh", "-F", "config"], "/opt/python")
    assert command[:3] == ["ssh", "-F", "config"]
    assert command[-4:] == ["-p", "4444", "me@node2", "/opt/python -m lockstep.hosts.agent"]
    assert "BatchMode=yes" in command


def test_a_connection_is_measured_and_strangers_are_sent_away() -> None:
    listener = listen("127.0.0.1")
    assert isinstance(listener, dict)
    port, token = int(str(listener["port"])), str(listener["token"])
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(bytes(16))
        assert stranger.recv(1) == b""
    answer = connect("127.0.0.1", port, token)
    assert isinstance(answer, dict)
    assert float(str(answer["bits_per_second"])) > 1e6
    while _is_open(port):  # until the listener has noticed that its peer is gone
        time.sleep(0.02)


def test_a_port_is_free_again_for_the_next_peer() -> None:
    listener = listen("127.0.0.1")
    assert isinstance(listener, dict)
    port = int(str(listener["port"]))
    for _ in range(5):
        connect("127.0.0.1", port, str(listener["token"]), most_seconds=0)
        listener = listen("127.0.0.1", port)
        assert isinstance(listener, dict)
    connect("127.0.0.1", port, str(listener["token"]), most_seconds=0)


def ask_in_background(channel: AgentChannel) -> threading.Thread:
    def ask() -> None:
        with suppress(LockstepError):
            channel.ask("rate", workers=1, threads=1)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _children(pid: int) -> list[int]:
    """Of all threads: an agent starts programs from the thread of a request."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for path in tasks for word in path.read_text().split()]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
