"""The parts of the lab's emulated network that need no network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.cli.rehearse_command import choose_settings
from lockstep.errors import LockstepError
from lockstep.lab.emulated_network import EmulatedNetwork, check_can_emulate, parse_rate
from lockstep.lab.rehearsal import EmulatedCluster, Meter
from lockstep.launch.run_all import Program, run_all


@pytest.mark.parametrize(("text", "bits"), [("100mbit", 1e8), ("1gbit", 1e9), ("2.5Gbit", 2.5e9), ("800bit", 800)])
def test_a_rate_is_read(text: str, bits: float) -> None:
    assert parse_rate(text) == bits


@pytest.mark.parametrize("text", ["", "fast", "1", "0mbit", "-1gbit", "1gb", "1tbit"])
def test_what_is_not_a_rate_is_refused(text: str) -> None:
    with pytest.raises(LockstepError, match="not the rate of a link"):
        parse_rate(text)


def test_without_root_the_error_names_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LockstepError, match="needs root on Linux"):
        check_can_emulate()


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LockstepError, match="needs ip and tc and unshare and setpriv"):
        check_can_emulate()


def test_a_meter_counts_the_busiest_host_between_two_moments() -> None:
    times, sent = [10.0, 11.0, 12.0, 13.0, 14.0], [[0, 0], [100, 50], [300, 60], [400, 70], [400, 80]]
    meter = Meter(EmulatedNetwork(2), times=times, sent=sent)
    assert meter.count_bytes(10.0, 13.5) == 400.0
    assert meter.count_bytes(10.5, 14.0) == 350.0
    assert meter.count_bytes(11.0, 13.5) is None, "too short to tell"


def test_a_cluster_is_described_in_words() -> None:
    assert EmulatedCluster(2, "1gbit").describe() == "2 emulated hosts, 1gbit"
    assert (
        EmulatedCluster(2, None, 2, 1).describe()
        == "2 emulated hosts x 2 workers and 1 of parameter servers, unlimited links"
    )


def python(text: str) -> Program:
    return Program([sys.executable, "-c", text], {})


def test_programs_that_succeed_say_nothing() -> None:
    looks: list[None] = []
    assert run_all([python("import time; time.sleep(0.3)")] * 2, lambda: looks.append(None)) == ""
    assert looks


def test_the_sentence_of_the_first_that_failed_is_returned() -> None:
    failing = "import sys; print('noise\\nError: No corpus.\\n       Prepare it.\\nmore', file=sys.stderr); sys.exit(2)"
    assert run_all([python("import time; time.sleep(0.5)"), python(failing)]) == "No corpus. Prepare it."


def test_without_a_sentence_the_last_lines_are_returned() -> None:
    said = run_all([python("raise ValueError('three is not four')")])
    assert said.endswith("ValueError: three is not four")
    assert run_all([python("import sys; sys.exit(3)")]) == "it said nothing"


def test_programs_die_with_their_starter(tmp_path: Path) -> None:
    """Also when it is killed and cannot do anything about it."""
    mark = tmp_path / "pid"
    inner = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    outer = (
        "import sys; from lockstep.launch.run_all import Program, run_all\n"
        f"run_all([Program([sys.executable, '-c', {inner!r}], {{}})])"
    )
    process = subprocess.Popen([sys.executable, "-c", outer])
    while not (mark.exists() and mark.read_text()):
        assert process.poll() is None
    pid = int(mark.read_text())
    assert Path(f"/proc/{pid}").exists()
    process.kill()
    process.wait()
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        pass


def test_a_rehearsal_takes_the_steps_and_servers_that_the_command_line_sets() -> None:
    assert choose_settings([], None, None, all_steps=False) == ["train.steps=30"]
    assert choose_settings([], 9, 2, all_steps=False) == ["strategy.servers=2", "train.steps=9"]
    assert choose_settings(["train.steps=12"], None, None, all_steps=False) == []
    assert choose_settings(["train.steps=12"], None, None, all_steps=True) == []
    assert choose_settings(["train.evaluate_every=5"], None, 0, all_steps=True) == ["strategy.servers=0"]


@pytest.mark.parametrize(
    ("word", "steps", "servers", "all_steps", "says"),
    [
        ("train.steps=12", 9, None, False, "--steps and train.steps"),
        ("strategy.servers=1", None, 2, False, "--servers and strategy.servers"),
        ("model.width=8", 9, None, True, "--whole"),
        ("train.evaluate_every=5", None, None, False, "train.evaluate_every has no effect"),
        ("train.steps=5", None, None, False, "warm-up"),
    ],
)
def test_a_rehearsal_refuses_settings_that_it_cannot_follow(
    word: str, steps: int | None, servers: int | None, all_steps: bool, says: str
) -> None:
    with pytest.raises(LockstepError, match=says) as refused:
        choose_settings([word], steps, servers, all_steps)
    assert refused.value.code == 2
