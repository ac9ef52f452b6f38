"""A stop signal ends an evaluation, and the resumed run repeats it."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import Tiny, command, lockstep, manifest, weights, write_images, write_pairs
from lockstep.run.journal import read

SENTENCES = 900
Settings = tuple[str, ...]
SERVER = ("strategy.name=server", "strategy.servers=1")
ASYNC = (*SERVER, "strategy.mode=async")


@pytest.fixture(scope="module")
def long_evaluation(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The tiny training with many validation sentences and a wide beam, so that an evaluation takes seconds."""
    folder = tmp_path_factory.mktemp("long-evaluation")
    for seed, (name, count) in enumerate({"train": 300, "valid": SENTENCES, "test": 12}.items()):
        write_pairs(folder, name, count, seed)
    config = yaml.safe_load(tiny.config.read_text())
    config["data"] |= {"folder": str(folder), "corpus": str(folder / "corpus")}
    config["train"] |= {"steps": 4, "evaluate_every": 2}
    config["search"]["beam"] = 16
    (folder / "tiny.yaml").write_text(yaml.safe_dump(config))
    lockstep("prepare", folder / "tiny.yaml")
    return Tiny(folder)


def evaluations(run: Path) -> list[dict[str, Any]]:
    return read(run / "journal").of("evaluation")


@contextmanager
def evaluating(tiny: Tiny, run: Path, *words: object, step: int = 2) -> Iterator[subprocess.Popen[str]]:
    """A training that is in the middle of its evaluation after this step."""
    earlier = len(read(run / "journal").of("evaluating"))
    process = subprocess.Popen(
        command("train", tiny.config, *words, "--run", run),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 180
        while not any(line["step"] == step for line in read(run / "journal").of("evaluating")[earlier:]):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline, "no evaluation within three minutes"
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.communicate()


def signal_launcher(process: subprocess.Popen[str], run: Path) -> None:
    process.send_signal(signal.SIGTERM)


def signal_group(process: subprocess.Popen[str], run: Path) -> None:
    """What Ctrl-C does."""
    os.killpg(process.pid, signal.SIGINT)


def signal_last_worker(process: subprocess.Popen[str], run: Path) -> None:
    journals = sorted((run / "journal").glob("worker-*.jsonl"))
    os.kill(read(run / "journal", len(journals) - 1).of("run")[-1]["pid"], signal.SIGTERM)


def interrupt(
    tiny: Tiny, run: Path, send: Callable[[subprocess.Popen[str], Path], None], *words: object, step: int = 2
) -> None:
    """Stops a training in its evaluation after this step, and checks that it ends as one that was stopped."""
    scored_before = len(evaluations(run))
    with evaluating(tiny, run, *words, step=step) as process:
        send(process, run)
        _, errors = process.communicate(timeout=100)
    assert process.returncode == (130 if send is signal_group else 143), errors
    assert "continues from there" in errors
    assert "Traceback" not in errors
    assert len(evaluations(run)) == scored_before, "what was scored is thrown away"


@pytest.mark.parametrize(
    ("settings", "workers", "send"),
    [
        pytest.param((), 1, signal_group, marks=pytest.mark.slow),
        ((), 2, signal_last_worker),
        pytest.param((), 2, signal_group, marks=pytest.mark.slow),
        pytest.param(("strategy.name=sharded",), 2, signal_launcher, marks=pytest.mark.slow),
        pytest.param(SERVER, 2, signal_launcher, marks=pytest.mark.slow),
        pytest.param(("strategy.name=local", "strategy.every=3"), 2, signal_launcher, marks=pytest.mark.slow),
    ],
)
def test_a_run_stopped_in_an_evaluation_ends_as_if_it_had_not_been(
    long_evaluation: Tiny,
    tmp_path: Path,
    settings: Settings,
    workers: int,
    send: Callable[[subprocess.Popen[str], Path], None],
) -> None:
    words, run, whole = (*settings, "--workers", workers), tmp_path / "run", tmp_path / "whole"
    interrupt(long_evaluation, run, send, *words)
    saved = manifest(run, 2)["progress"]
    assert saved["step"] == 2
    assert saved["score"] is None
    interrupt(long_evaluation, run, send, *words)  # while it is made up for
    lockstep("train", long_evaluation.config, *words, "--run", run)
    lockstep("train", long_evaluation.config, *words, "--run", whole)
    assert weights(run, 4) == weights(whole, 4)
    assert [line["scores"] for line in evaluations(run)] == [line["scores"] for line in evaluations(whole)]
    best = ("best_step", "best_score", "best_loss", "evaluations_without_gain", "score", "loss")
    assert all(manifest(run, 4)["progress"][name] == manifest(whole, 4)["progress"][name] for name in best)


@pytest.mark.parametrize(
    ("settings", "send"),
    [
        (ASYNC, signal_last_worker),
        pytest.param(ASYNC, signal_launcher, marks=pytest.mark.slow),
        pytest.param(("strategy.name=resilient",), signal_last_worker, marks=pytest.mark.slow),
        pytest.param(("strategy.name=resilient",), signal_launcher, marks=pytest.mark.slow),
    ],
)
def test_workers_that_evaluate_by_themselves_stop_together_and_make_up_for_the_evaluation(
    long_evaluation: Tiny,
    tmp_path: Path,
    settings: Settings,
    send: Callable[[subprocess.Popen[str], Path], None],
) -> None:
    words = (*settings, "train.steps=100000", "train.evaluate_every=1000000", "--workers", 2)
    interrupt(long_evaluation, tmp_path, send, *words, "train.evaluate_every=2")
    journal = read(tmp_path / "journal")
    stopped = journal.of("stop")[-1]["step"]
    saved = manifest(tmp_path, stopped)["progress"]
    assert saved["score"] is None
    assert saved["is_evaluation_missed"]
    lockstep("train", long_evaluation.config, *settings, f"train.steps={stopped}", "--workers", 2, "--run", tmp_path)
    assert [line["step"] for line in evaluations(tmp_path)] == [stopped]


def test_the_last_evaluation_can_be_stopped_and_is_made_up_for(long_evaluation: Tiny, tmp_path: Path) -> None:
    words = ("train.evaluate_every=4", "--workers", 2)
    interrupt(long_evaluation, tmp_path, signal_launcher, *words, step=4)
    assert manifest(tmp_path, 4)["progress"]["score"] is None
    result = lockstep("train", long_evaluation.config, *words, "--run", tmp_path)
    assert "finished at step 4" in result.stdout
    assert [line["step"] for line in evaluations(tmp_path)] == [4]
    assert manifest(tmp_path, 4)["progress"]["score"] is not None


@pytest.mark.slow
def test_an_evaluation_of_images_can_be_stopped(tmp_path: Path) -> None:
    images, run = tmp_path / "images", tmp_path / "run"
    images.mkdir()
    write_images(images, train=60, test=20_000)
    config = {
        "data": {"images": str(images)},
        "batch": {"images": 7},
        "model": {"name": "resnet", "depth": 8, "channels": 16},
        "train": {"steps": 2, "evaluate_every": 2, "precision": "fp32", "threads": 1},
        "optimizer": {"name": "sgd"},
    }
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(config))
    interrupt(Tiny(tmp_path), run, signal_launcher, "--workers", 2)
    assert manifest(run, 2)["progress"]["score"] is None
