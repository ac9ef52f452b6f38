"""A job on an emulated cluster: the links carry what they are said to, and nothing stays behind."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import Tiny, command, emulated_network, lockstep, steps
from lockstep.lab.emulated_network import EmulatedNetwork
from lockstep.launch.run_all import Program, run_all

pytestmark = emulated_network

LARGE = ("model.width=512", "model.feed_forward=2048", "model.encoder_layers=2", "model.decoder_layers=1")
"""More than 10 million parameters."""


def list_leftovers(pid: int) -> list[str]:
    """Namespaces, processes and files of a rehearsal."""
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.splitlines()
    files = [str(path) for path in Path("/etc/netns").glob("*")] if Path("/etc/netns").exists() else []
    return [name for name in [*spaces, *files] if f"lockstep-{pid}-" in name]


def list_processes(run: Path) -> list[int]:
    """All that have this run's folder on their command line."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(run).encode() in words:
            pids.append(int(path.parent.name))
    return pids


def rehearse_large_model(tiny: Tiny, run: Path, hosts: int, link: str) -> dict[str, Any]:
    """With a model of more than ten million parameters; what crossed the links is checked."""
    words = ("--hosts", hosts, "--link", link, "--steps", 9, "--run", run, "--json")
    rehearsal = dict(json.loads(lockstep("rehearse", tiny.config, *LARGE, *words).stdout))
    model = next(line for line in read_events(run) if line["kind"] == "model")
    assert model["parameters"] > 10_000_000
    ring = 4 * model["parameters"] * 2 * (hosts - 1) / hosts
    assert rehearsal["bytes_per_step"] == pytest.approx(ring, rel=0.01)
    assert rehearsal["wire_bytes_per_step"] == pytest.approx(ring, rel=0.1)
    facts = json.loads((run / "environment.json").read_text())
    assert {host["host"] for host in facts["workers"]} == {f"h{number}" for number in range(1, hosts + 1)}
    assert not list_processes(run)
    return rehearsal


def test_a_job_on_emulated_hosts_sends_the_bytes_that_it_reports(tiny: Tiny, tmp_path: Path) -> None:
    rehearsal = rehearse_large_model(tiny, tmp_path / "run", 2, "100mbit")
    assert 0.5 < rehearsal["link_share"] < 1.05
    assert "bottleneck is the network" in rehearsal["bottleneck"]


TAKE = "import socket; c, _ = socket.create_server(('10.77.0.1', 5000)).accept()\nwhile c.recv(1 << 20): pass"
SEND = """
import socket, time
while True:
    try:
        wire = socket.create_connection(("10.77.0.1", 5000))
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
end = time.monotonic() + 4
while time.monotonic() < end:
    wire.sendall(bytes(1 << 16))
"""


def measure_stream(link: str) -> float:
    """Bits per second of a plain TCP stream through such a link, by the switch's counters."""
    counts: list[tuple[float, int]] = []
    with EmulatedNetwork(2, link) as network:
        programs = [
            Program(host.command([sys.executable, "-c", text]), {})
            for host, text in zip(network.members, (TAKE, SEND), strict=True)
        ]
        assert run_all(programs, lambda: counts.append((time.monotonic(), network.read_sent_bytes()[1]))) == ""
    under_way = [count for count in counts if counts[-1][1] * 0.2 < count[1] < counts[-1][1] * 0.9]
    (begin, first), (end, last) = under_way[0], under_way[-1]
    return 8 * (last - first) / (end - begin)


@pytest.mark.slow  # nearly the whole link is used only where nothing else runs
@pytest.mark.parametrize("link", ["100mbit", "1gbit"])
def test_an_all_reduce_is_as_fast_as_the_link_allows(tiny: Tiny, tmp_path: Path, link: str) -> None:
    allowed, rehearsal = measure_stream(link), rehearse_large_model(tiny, tmp_path / "run", 4, link)
    assert 0.9 < allowed / rehearsal["link_bits"] < 1.05
    assert rehearsal["wire_bits"] == pytest.approx(allowed, rel=0.1), "by the switch's counters"


def read_events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "journal" / "worker-0000.jsonl").read_text().splitlines()]


@contextmanager
def start_rehearsal(tiny: Tiny, run: Path) -> Iterator["subprocess.Popen[str]"]:
    words = command("rehearse", tiny.config, "--hosts", 2, "--link", "100mbit", "--steps", 100_000, "--run", run)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 180
        while not steps(run, 1):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline, "no step within three minutes"
            time.sleep(0.05)
        assert list_leftovers(process.pid)
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until_gone(run: Path) -> bool:
    """Within ten seconds."""
    deadline = time.monotonic() + 10
    while list_processes(run) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not list_processes(run)


@pytest.mark.slow
def test_nothing_is_left_after_an_interruption_and_after_a_kill_the_next_start_cleans_up(
    tiny: Tiny, tmp_path: Path
) -> None:
    with start_rehearsal(tiny, tmp_path / "first") as process:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
        assert wait_until_gone(tmp_path / "first")
        assert not list_leftovers(process.pid)
    with start_rehearsal(tiny, tmp_path / "killed") as process:
        process.kill()
        process.communicate(timeout=60)
        assert wait_until_gone(tmp_path / "killed"), "processes on the hosts died with it"
        assert list_leftovers(process.pid)
        again = ("--hosts", 2, "--link", "none", "--steps", 6, "--run", tmp_path / "again")
        lockstep("rehearse", tiny.config, *again)
        assert not list_leftovers(process.pid)


@pytest.mark.slow
def test_servers_run_on_additional_hosts(tiny: Tiny, tmp_path: Path) -> None:
    cluster = ("--hosts", 1, "--workers-per-host", 2, "--servers", 1, "--link", "1gbit")
    words = (*cluster, "--steps", 9, "--run", tmp_path / "run", "--json")
    rehearsal = json.loads(lockstep("rehearse", tiny.config, *LARGE, "strategy.name=server", *words).stdout)
    assert rehearsal["workers"] == 2
    assert rehearsal["strategy"] == "server"
    both = 2 * rehearsal["bytes_per_step"]
    assert rehearsal["wire_bytes_per_step"] == pytest.approx(both, rel=0.1), "gradients of two leave through one link"


def test_wrong_rehearsals_are_refused_in_a_sentence(tiny: Tiny, tmp_path: Path) -> None:
    def refused(*words: object) -> str:
        error = lockstep("rehearse", tiny.config, "--run", tmp_path / "refused", *words, code=2).stderr
        assert "Traceback" not in error
        assert not (tmp_path / "refused").exists()
        return error

    assert "'fast' is not the rate of a link" in refused("--link", "fast")
    assert "strategy.servers is not for strategy.name=auto; server has it" in refused("--servers", 1)
    assert "--hosts" in refused("--hosts", 251)
    (tmp_path / "before" / "journal").mkdir(parents=True)
    error = lockstep("rehearse", tiny.config, "--run", tmp_path / "before", code=2).stderr
    assert "has a run already" in error


def test_a_failure_on_a_host_is_reported(tiny: Tiny, tmp_path: Path) -> None:
    words = ("--hosts", 2, "--link", "none", "--run", tmp_path / "run", "train.device=cuda")
    error = lockstep("rehearse", tiny.config, *words, code=1).stderr
    assert "The rehearsal failed" in error
    assert "cuda" in error.lower()
    assert "Traceback" not in error
