import os
import signal
import subprocess
import sys

import pytest

from lockstep import faults
from lockstep.faults import Fault, parse


@pytest.fixture
def inject(monkeypatch: pytest.MonkeyPatch) -> "Inject":
    return Inject(monkeypatch)


class Inject:
    """Sets the faults of this process as LOCKSTEP_FAULT does at its start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(faults, "_current_step", 0)

    def __call__(self, text: str, rank: int | None = None) -> None:
        self.monkeypatch.setattr(faults, "_faults", parse(text))
        if rank is None:
            self.monkeypatch.delenv("RANK", raising=False)
        else:
            self.monkeypatch.setenv("RANK", str(rank))


def test_a_fault_has_action_phase_rank_and_step() -> None:
    assert parse("kill:rank=1:phase=merge:step=7") == [Fault("kill", "merge", 1, 7)]
    assert parse("nan:phase=gradient") == [Fault("nan", "gradient", None, None)]
    assert parse("stop:phase=save:step=0") == [Fault("stop", "save", None, 0)]
    assert parse("kill:phase=save:restarts=0") == [Fault("kill", "save", restarts=0)]


def test_several_faults_are_joined_by_commas() -> None:
    assert parse("term:phase=input,error:phase=save:rank=0,") == [Fault("term", "input"), Fault("error", "save", 0)]
    assert parse("") == []


@pytest.mark.parametrize(
    "text",
    [
        "explode:phase=merge",
        "kill",
        "kill:phase=lunch",
        "kill:merge",
        "kill:phase=merge:step=x",
        "kill:phase=merge:stpe=7",
        "kill:phase",
    ],
)
def test_a_malformed_fault_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="LOCKSTEP_FAULT"):
        parse(text)


def test_a_point_without_faults_does_nothing(inject: Inject) -> None:
    inject("")
    assert [faults.at(phase) for phase in faults.PHASES] == [None] * len(faults.PHASES)


def test_only_the_named_phase_fails(inject: Inject) -> None:
    inject("nan:phase=gradient")
    assert [phase for phase in faults.PHASES if faults.at(phase)] == ["gradient"]
    assert faults.at("gradient") == "nan"


def test_only_the_named_step_fails(inject: Inject) -> None:
    inject("nan:phase=gradient:step=3")
    hit = []
    for step in range(6):
        faults.set_step(step)
        hit += [step] if faults.at("gradient") else []
    assert hit == [3]


@pytest.mark.parametrize(("rank", "hit"), [(0, None), (1, "nan"), (2, None), (None, None)])
def test_only_the_named_rank_fails(inject: Inject, rank: int | None, hit: str | None) -> None:
    inject("nan:phase=gradient:rank=1", rank)
    assert faults.at("gradient") == hit


def test_a_fault_can_be_limited_to_the_time_before_a_restart(inject: Inject, monkeypatch: pytest.MonkeyPatch) -> None:
    inject("nan:phase=gradient:restarts=0")
    assert faults.at("gradient") == "nan"
    for counter in ("TORCHELASTIC_RESTART_COUNT", "LOCKSTEP_RESTARTS"):
        with monkeypatch.context() as again:
            again.setenv(counter, "1")
            assert faults.at("gradient") is None


def test_a_delay_can_be_limited_to_the_time_before_a_restart(inject: Inject, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = list[float]()
    monkeypatch.setattr(faults.time, "sleep", slept.append)
    inject("slow:phase=backward:ms=100:restarts=0")
    faults.slow("backward", 0.0)
    monkeypatch.setenv("LOCKSTEP_RESTARTS", "1")
    faults.slow("backward", 0.0)
    assert slept == [0.1]


def test_without_step_and_rank_all_of_them_fail(inject: Inject) -> None:
    for rank in (None, 0, 5):
        inject("nan:phase=gradient", rank)
        faults.set_step(11)
        assert faults.at("gradient") == "nan"


def test_an_error_is_raised_at_its_point(inject: Inject) -> None:
    inject("error:phase=save")
    faults.set_step(4)
    with pytest.raises(RuntimeError, match="fault injected at save, step 4"):
        faults.at("save")


PROGRAM = "from lockstep import faults\nfaults.set_step(7)\nfaults.at('input')\nfaults.at('merge')\nprint('survived')"


def run(fault: str | None, rank: int) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "LOCKSTEP_FAULT"}
    environment |= {"RANK": str(rank)} | ({"LOCKSTEP_FAULT": fault} if fault is not None else {})
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("action", ["kill", "term"])
def test_the_environment_makes_the_named_worker_die(action: str) -> None:
    fault = f"{action}:rank=1:phase=merge:step=7"
    assert run(fault, rank=1).returncode == -getattr(signal, f"SIG{action.upper()}")
    assert run(fault, rank=0).stdout == "survived\n"


def test_a_stopped_worker_can_continue() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"LOCKSTEP_FAULT": "stop:phase=merge"},
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        _, status = os.waitpid(worker.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        worker.send_signal(signal.SIGCONT)
        assert worker.communicate()[0] == "survived\n"


def test_without_the_variable_no_fault_is_injected() -> None:
    assert run(None, rank=1).stdout == "survived\n"
