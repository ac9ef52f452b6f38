"""A worker that dies or stands still: it is named, all start again from the last checkpoint, and nothing is lost."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from conftest import Tiny, forked, lockstep, running, steps, weights
from lockstep.run.journal import read

STEPS = ("train.steps=16", "train.checkpoint_every=4", "train.restarts=3")


def train(tiny: Tiny, run: Path, *settings: str, fault: str = "", code: int = 0) -> str:
    words = ["train", tiny.config, *STEPS, *settings, "--workers", 2, "--run", run]
    return lockstep(*words, fault=fault, code=code).stderr


@pytest.fixture(scope="module")
def uninterrupted(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    run = tmp_path_factory.mktemp("uninterrupted") / "run"
    train(tiny, run)
    return weights(run, 16)


def test_after_a_kill_all_start_again_by_themselves_and_end_with_the_same_bits(
    tiny: Tiny, tmp_path: Path, uninterrupted: dict[str, bytes]
) -> None:
    said = train(tiny, tmp_path / "run", fault="kill:phase=backward:rank=1:step=7:restarts=0")
    assert "Worker 1 (process " in said
    assert "was killed by SIGKILL in backward of step 7, which a person or a program sent" in said
    assert "All start again from the last checkpoint (restart 1 of 3)." in said
    assert weights(tmp_path / "run", 16) == uninterrupted
    (fault,) = [line for line in read(tmp_path / "run" / "journal").of("fault") if line["what"] == "restarted"]
    assert "was killed by SIGKILL" in fault["detail"]
    assert 0 < fault["seconds"] < 60


def test_a_stopped_worker_is_named_and_replaced(tiny: Tiny, tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    said = train(tiny, tmp_path / "run", "train.stall_seconds=2", fault="stop:phase=backward:rank=1:step=10:restarts=0")
    assert re.search(
        r"in backward of step 10 \(\d+ sentences, longest \d+/\d+, \d+ words\): it is stopped \(SIGSTOP\)", said
    )
    assert "(established). Worker 0 waits for it. All start again from the last checkpoint" in said
    assert weights(tmp_path / "run", 16) == uninterrupted


def test_a_worker_that_skips_an_exchange_is_named(tiny: Tiny, tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    """Gloo ends the worker that gets its data."""
    said = train(tiny, tmp_path / "run", fault="skip:phase=agree:rank=1:step=6:restarts=0")
    assert re.search(r"Worker 1 skipped an exchange: it is ahead of the others, in .*\. Worker 0 .* SIGABRT", said)
    assert weights(tmp_path / "run", 16) == uninterrupted


def test_a_worker_that_dies_at_the_same_step_is_not_restarted_for_ever(tiny: Tiny, tmp_path: Path) -> None:
    said = train(tiny, tmp_path / "run", "train.restarts=9", fault="kill:phase=forward:rank=1:step=6", code=1)
    assert "Workers died 3 times at step 6." in said
    assert "lockstep data show RUN --step 6" in said
    assert said.count("All start again") == 2


@pytest.mark.parametrize(
    ("fault", "code", "sentence"),
    [
        ("segv:phase=backward", 1, r"was killed by SIGSEGV in backward of step 3, at at \(faults.py:\d+\); see logs/"),
        (
            "error:phase=forward",
            1,
            r"ended with exit code 1 in forward of step 3: RuntimeError: fault injected at forward, step 3, at at \(faults",
        ),
        ("term:phase=forward", 143, r"Stopped at step 3 and saved: worker 1 got SIGTERM, which was not sent to all\."),
    ],
)
def test_the_sentence_about_a_death_has_the_place_and_the_cause(
    tiny: Tiny, tmp_path: Path, fault: str, code: int, sentence: str
) -> None:
    said = train(tiny, tmp_path / "run", "train.restarts=0", fault=f"{fault}:rank=1:step=3", code=code)
    assert re.search(sentence, said), said


def test_a_mistake_that_a_worker_reports_is_no_reason_to_start_again(tiny: Tiny, tmp_path: Path) -> None:
    said = train(tiny, tmp_path / "run", "train.max_skipped=2", fault="nan:phase=gradient", code=1)
    assert "The gradient was not finite" in said
    assert "All start again" not in said


@pytest.mark.slow
def test_a_worker_that_continues_in_time_is_left_alone(tiny: Tiny, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with running(tiny, run, "train.stall_seconds=600", "train.timeout_seconds=900", workers=2) as launcher:
        worker = forked(launcher.pid)[1]
        os.kill(worker, signal.SIGSTOP)
        time.sleep(13)
        before = len(steps(run))
        os.kill(worker, signal.SIGCONT)
        deadline = time.monotonic() + 30
        while len(steps(run)) <= before:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(1.5)
        launcher.send_signal(signal.SIGTERM)
        said = launcher.communicate()[1]
    assert "has stood still for" in said
    assert "Worker 1 continues." in said
    assert "All start again" not in said
