"""`resilient`: survivors never restart, a returning worker copies a peer, no sentence is lost or used twice."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from conftest import Tiny, children, command, forked, lockstep, manifest, running, steps, wait_until_dead
from lockstep.data.corpus.batches import Order, Position
from lockstep.data.corpus.binary_corpus import Corpus
from lockstep.data.data_settings import BatchSettings
from lockstep.explain.summary import summarise
from lockstep.process import die_with_parent
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import lines, read, worker_file

RESILIENT = "strategy.name=resilient"
OFTEN = ("train.checkpoint_every=40", "train.evaluate_every=100", "strategy.bucket_mb=0.02")


def until(process: subprocess.Popen[str], condition: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def took_part_again(run: Path, rank: int, restarts: int) -> bool:
    """Has the worker, started again so often, healed and taken a step since?"""
    journal = read(run / "journal", rank)
    start, healed = journal.of("run")[-1], journal.of("heal")
    if start["restarts"] != restarts or not healed or healed[-1]["time"] < start["time"]:
        return False
    return bool(journal.steps[-1]["step"] > healed[-1]["step"])


def stopped(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 143, errors
    assert "Traceback" not in errors
    return errors


def check_replicas_are_identical(run: Path, workers: int) -> int:
    """Returns the step at which all of them ended."""
    ends = [read(run / "journal", rank).of("stop")[-1] for rank in range(workers)]
    assert len({(end["step"], end["digest"]) for end in ends}) == 1
    last = int(ends[0]["step"])
    assert manifest(run, last)["progress"]["step"] == last
    return last


def check_every_sentence_was_used_once(tiny: Tiny, run: Path, workers: int) -> None:
    """In every step the shares of those who took part make the global batch that the order has for it. A share whose
    worker died before it could write so must have been counted by those who journalled the step."""
    pairs = Corpus.open(tiny.folder / "corpus").set("train")
    order = Order(pairs.source.lengths, pairs.target.lengths, BatchSettings(words=150), seed=1)
    by_rank = [{line["step"]: line for line in steps(run, rank)} for rank in range(workers)]
    last = max(step for known in by_rank for step in known)
    deaths = sum(len(read(run / "journal", rank).of("run")) - 1 for rank in range(workers))
    unwritten = 0
    for step, batch in enumerate(islice(order.batches(Position()), last), 1):
        found = [known[step] for known in by_rank if step in known]
        assert found, f"step {step} is in no journal"
        assert {line["batch"] for line in found} == {batch.digest}
        assert len({line["loss"] for line in found}) == 1
        written = sum(line["words"]["target"] for line in found)
        assert written <= batch.target_words, f"a sentence of step {step} was used twice"
        unwritten += written < batch.target_words
    assert unwritten <= deaths


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "kills"),
    [
        pytest.param(1, 10, marks=pytest.mark.xdist_group("ten-kills")),
        pytest.param(0, 2, marks=pytest.mark.slow),  # it saves, and shows the progress
    ],
)
def test_killed_again_and_again_a_worker_heals_and_the_other_never_restarts(
    tiny: Tiny, tmp_path: Path, victim: int, kills: int
) -> None:
    survivor = 1 - victim
    with running(tiny, tmp_path, RESILIENT, *OFTEN, workers=2, steps_first=1) as process:
        for kill in range(kills):
            os.kill(read(tmp_path / "journal", victim).of("run")[-1]["pid"], signal.SIGKILL)
            until(process, lambda restarts=kill + 1: took_part_again(tmp_path, victim, restarts))  # type: ignore[misc]
        errors = stopped(process)
    assert errors.count("was killed by SIGKILL; started again") == kills

    living, dying = (read(tmp_path / "journal", rank) for rank in (survivor, victim))
    last = check_replicas_are_identical(tmp_path, 2)
    assert [line["restarts"] for line in living.of("run")] == [0]
    written = [line or {"kind": "damaged"} for line in lines(worker_file(tmp_path / "journal", survivor))]
    taken = Counter(line["step"] for line in written if line["kind"] == "step")
    assert set(taken.values()) == {1}, "a step counted twice"
    assert [line["restarts"] for line in dying.of("run")] == list(range(kills + 1))
    assert len({line["pid"] for line in dying.of("run")}) == kills + 1
    assert len(dying.of("heal")) >= kills
    assert all(line["from"] == survivor and line["seconds"] > 0 for line in dying.of("heal"))
    check_every_sentence_was_used_once(tiny, tmp_path, 2)
    summary = summarise(tmp_path)
    assert (summary.state, summary.step, summary.launches) == ("stopped", last, 1)
    assert summary.measured_steps + summary.warmup_steps == last


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("phase=merge:step=5:rank=1", "phase=save:step=40:rank=0"),
        pytest.param("phase=update:step=5:rank=0", "phase=backward:step=9:rank=1", marks=pytest.mark.slow),
        pytest.param("phase=evaluate:step=100:rank=1", "phase=rename:step=40:rank=0", marks=pytest.mark.slow),
    ],
)
def test_killed_anywhere_in_a_step_two_of_three_workers_heal(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    monkeypatch.setenv("LOCKSTEP_FAULT", f"kill:{first}:restarts=0,kill:{second}:restarts=0")
    with running(tiny, tmp_path, RESILIENT, *OFTEN, workers=3, steps_first=1) as process:
        until(process, lambda: all(took_part_again(tmp_path, rank, restarts=1) for rank in (0, 1)))
        stopped(process)
    assert len(read(tmp_path / "journal", 2).of("run")) == 1
    check_replicas_are_identical(tmp_path, 3)
    check_every_sentence_was_used_once(tiny, tmp_path, 3)
    assert not list((tmp_path / "checkpoints").glob(".step-*")), "something half-written was left"


def test_a_worker_that_stands_still_is_left_out_and_heals_when_it_moves_again(tiny: Tiny, tmp_path: Path) -> None:
    with running(tiny, tmp_path, RESILIENT, *OFTEN, "strategy.merge_seconds=2", workers=2) as process:
        stalled = read(tmp_path / "journal", 1).of("run")[-1]["pid"]
        os.kill(stalled, signal.SIGSTOP)
        until(process, lambda: read(tmp_path / "journal", 0).of("quorum")[-1]["participants"] == [0])
        os.kill(stalled, signal.SIGCONT)
        until(process, lambda: took_part_again(tmp_path, 1, restarts=0))
        stopped(process)
    assert [len(read(tmp_path / "journal", rank).of("run")) for rank in (0, 1)] == [1, 1]
    check_replicas_are_identical(tmp_path, 2)
    check_every_sentence_was_used_once(tiny, tmp_path, 2)


def test_when_all_died_they_continue_from_the_last_checkpoint_until_the_restarts_are_used_up(
    tiny: Tiny, tmp_path: Path
) -> None:
    settings = (RESILIENT, "train.checkpoint_every=40", "train.save=wait", "train.steps=60", "strategy.restarts=1")
    train = ("train", tiny.config, *settings, "--workers", 2, "--run", tmp_path)
    dead = lockstep(*train, fault="kill:phase=forward:step=47", code=1)
    assert dead.stderr.count("started again (1 of 1 restarts)") == 2
    assert "was killed by SIGKILL: it died too often, after 1 restart." in dead.stderr
    for rank in (0, 1):
        journal = read(tmp_path / "journal", rank)
        back = [line for line in journal.events if line["kind"] in ("resume", "heal")]
        assert [line["step"] for line in back][-1] >= 40
    assert max(steps(tmp_path, rank)[-1]["step"] for rank in (0, 1)) == 46
    lockstep(*train)
    assert check_replicas_are_identical(tmp_path, 2) == 60
    check_every_sentence_was_used_once(tiny, tmp_path, 2)


def test_the_last_score_is_noted_also_when_the_worker_that_saves_dies_in_the_evaluation(
    tiny: Tiny, tmp_path: Path
) -> None:
    settings = (RESILIENT, "train.steps=12", "strategy.restarts=0")
    train = ("train", tiny.config, *settings, "--workers", 2, "--run", tmp_path)
    assert "is given up" in lockstep(*train, fault="kill:phase=evaluate:step=12:rank=0").stderr
    (evaluation,) = read(tmp_path / "journal", 1).of("evaluation")
    assert manifest(tmp_path, 12)["progress"]["score"] == pytest.approx(evaluation["scores"]["sacrebleu"])
    assert manifest(tmp_path, 12)["progress"]["best_step"] == 12


def test_a_worker_that_comes_back_when_the_others_are_done_ends_quietly(tiny: Tiny, tmp_path: Path) -> None:
    fault = "kill:phase=merge:step=28:rank=1:restarts=0"
    result = lockstep("train", tiny.config, RESILIENT, "train.steps=30", "--workers", 2, "--run", tmp_path, fault=fault)
    assert "Traceback" not in result.stderr
    assert "finished at step 30" in result.stdout
    assert result.stderr.count("started again") == 1
    assert len(read(tmp_path / "journal", 1).of("run")) == 2
    assert check_replicas_are_identical(tmp_path, 2) == 30
    check_every_sentence_was_used_once(tiny, tmp_path, 2)


@pytest.mark.parametrize(  # the other continues alone before it is back, or is still waiting
    "dead_after", [1, pytest.param(12, marks=pytest.mark.slow)]
)
def test_a_worker_that_dies_at_once_is_given_up_and_the_other_continues(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead_after: int
) -> None:
    monkeypatch.setenv("LOCKSTEP_FAULT", "kill:phase=input:rank=0")
    settings = (RESILIENT, *OFTEN, f"strategy.dead_after_seconds={dead_after}")
    with running(tiny, tmp_path, *settings, workers=2) as process:
        until(process, lambda: len(read(tmp_path / "journal", 0).of("run")) == 3 and len(forked(process.pid)) == 2)
        reached = steps(tmp_path, 1)[-1]["step"]
        until(process, lambda: steps(tmp_path, 1)[-1]["step"] > reached)
        errors = stopped(process)
    assert "Worker 0 is given up, the others continue." in errors
    assert "it died 3 times in a row before its first step" in errors
    summary = summarise(tmp_path)
    assert (summary.state, summary.step) == ("stopped", read(tmp_path / "journal", 1).of("stop")[-1]["step"])
    check_every_sentence_was_used_once(tiny, tmp_path, 2)


@pytest.mark.slow
def test_workers_that_all_die_at_once_end_in_one_clear_sentence(tiny: Tiny, tmp_path: Path) -> None:
    result = lockstep(
        "train", tiny.config, RESILIENT, "--workers", 2, "--run", tmp_path, fault="kill:phase=input", code=1
    )
    assert "was killed by SIGKILL: it died 3 times in a row before its first step" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_worker_that_says_what_is_wrong_is_not_started_again(tiny: Tiny, tmp_path: Path) -> None:
    fault = "nan:phase=gradient"
    train = ("train", tiny.config, RESILIENT, "train.max_skipped=3", "--workers", 2, "--run", tmp_path)
    result = lockstep(*train, fault=fault, code=1)
    assert result.stderr.count("The gradient was not finite") == 2, "once for each worker"
    assert "started again" not in result.stderr
    assert [len(read(tmp_path / "journal", rank).of("run")) for rank in (0, 1)] == [1, 1]


@pytest.mark.slow
def test_killing_the_launcher_leaves_no_orphan_and_the_run_can_continue(tiny: Tiny, tmp_path: Path) -> None:
    with running(tiny, tmp_path, RESILIENT, *OFTEN, workers=2, steps_first=45) as launcher:
        orphans = [*children(launcher.pid), *forked(launcher.pid)]
        assert len(orphans) == 4  # the fork server, the lighthouse and two workers
        assert RunDirectory(tmp_path).busy()
        refused = lockstep("train", tiny.config, RESILIENT, "--workers", 2, "--run", tmp_path, code=1)
        assert "is being trained right now" in refused.stderr
        assert str(launcher.pid) in refused.stderr
        launcher.kill()
        launcher.wait()
        wait_until_dead(orphans)
    reached = max(steps(tmp_path, rank)[-1]["step"] for rank in (0, 1))
    train = ("train", tiny.config, RESILIENT, *OFTEN, f"train.steps={reached + 2}", "--workers", 2, "--run", tmp_path)
    assert "Continuing from step" in lockstep(*train).stderr
    assert [line["step"] for line in steps(tmp_path, 1)] == list(range(1, reached + 3))
    check_replicas_are_identical(tmp_path, 2)


@contextmanager
def lighthouse() -> Iterator[str]:
    """torchft's own, as a process; yields its address."""
    program = "from torchft.coordination import LighthouseServer\nimport time\n"
    program += "server = LighthouseServer('127.0.0.1:0', 1, 60_000, 100, 2_000)\nprint(server.address(), flush=True)\n"
    program += "time.sleep(1_000)"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=die_with_parent,
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip().rpartition(':')[2]}"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_an_engine_of_its_own_may_start_each_worker(tiny: Tiny, tmp_path: Path) -> None:
    engine = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--max-restarts", "3"]
    engine += ["--standalone", "-m", "lockstep", "--"]
    train = [*engine, *command("train", tiny.config, RESILIENT, "train.steps=60", "--run", tmp_path)[3:]]
    with lighthouse() as address:
        shared = os.environ | {"TORCHFT_LIGHTHOUSE": address, "NUM_REPLICA_GROUPS": "2"}
        shared["LOCKSTEP_FAULT"] = "kill:phase=merge:step=20:rank=1:restarts=0"
        workers = [
            subprocess.Popen(train, env=shared | {"REPLICA_GROUP_ID": rank}, stderr=subprocess.PIPE, text=True)
            for rank in "01"
        ]
        try:
            errors = [worker.communicate(timeout=120)[1] for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], errors
    assert check_replicas_are_identical(tmp_path, 2) == 60
    check_every_sentence_was_used_once(tiny, tmp_path, 2)


def test_without_torchft_one_sentence_names_the_extra(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torchft'] = None\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    train = ("train", tiny.config, RESILIENT, "--workers", 2, "--run", tmp_path / "run")
    result = lockstep(*train, code=2, PYTHONPATH=path)
    assert result.stderr.count("needs torchft, which is not installed.") == 1
    assert "lockstep-train[resilient]" in result.stderr
    assert "Traceback" not in result.stderr
