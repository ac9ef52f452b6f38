"""Promises 3, 4 and 5: kill a run anywhere, start it again, and nothing is lost or different."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from conftest import (
    LSTM,
    TORCHRUN,
    Tiny,
    children,
    command,
    forked,
    lockstep,
    manifest,
    running,
    steps,
    wait_until_dead,
    weights,
)
from lockstep.launch.fixed import find_free_port
from lockstep.run.best import Evaluation, find_best
from lockstep.run.checkpoint import find_newest_whole
from lockstep.run.journal import lines

STEPS = 22
SETTINGS = (
    f"train.steps={STEPS}",
    "train.checkpoint_every=3",
    "train.evaluate_every=6",
    "batch.micro_words=20",
    "train.keep_last=2",
)
# Where each launch is killed. The first comes before any checkpoint; later ones wherever a step or a save can be cut.
KILLS = (
    "phase=input:step=2",
    "phase=forward:step=4",
    "phase=micro:step=5",
    "phase=backward:step=7",
    "phase=merge:step=8",
    "phase=update:step=10",
    "phase=save:step=12",
    "phase=rename:step=15:rank=0",
    "phase=evaluate:step=18",
    "phase=renamed:step=21:rank=0",
)


FEW, ONE = (KILLS[3], KILLS[5], KILLS[8]), (KILLS[5],)


def way(
    *settings: object, workers: int, kills: tuple[str, ...] = FEW, slow: bool = False, model: tuple[str, ...] = ()
) -> object:
    name = "-".join(str(setting).rsplit("=", 1)[-1].strip("-") for setting in settings) or "allreduce"
    name += "-lstm" if model else ""
    marks = [pytest.mark.xdist_group(f"kills-{name}-{workers}x{len(kills)}"), *([pytest.mark.slow] if slow else [])]
    return pytest.param((*model, *settings), workers, kills, marks=marks, id=f"{name}-{workers}x{len(kills)}")


SERVER, LOCAL = "strategy.name=server", ("strategy.name=local", "strategy.bucket_mb=0.02", "strategy.every=4")
POWERSGD = ("strategy.gradients=powersgd", "strategy.powersgd_start=4", "strategy.powersgd_rank=2")


@pytest.mark.parametrize(
    ("settings", "workers", "kills"),
    [
        way(workers=1, kills=KILLS[:1] + FEW, slow=True),
        way(workers=1, kills=KILLS, slow=True),
        way(workers=2),
        way(workers=2, kills=KILLS, slow=True),
        way("train.kernels=torch", workers=2, kills=KILLS, slow=True),
        way(workers=3, kills=KILLS, slow=True),
        way("strategy.name=sharded", workers=2, kills=ONE),
        way("strategy.name=sharded", workers=3, kills=KILLS, slow=True),
        way(SERVER, "--servers", 2, workers=2, kills=ONE),
        way(SERVER, "--servers", 2, workers=2, slow=True),
        way(SERVER, workers=3, slow=True),
        way(*LOCAL, workers=2, slow=True),
        way(*POWERSGD, workers=2, slow=True),
        way("strategy.name=replicas", workers=2, slow=True),
        way(SERVER, "--servers", 1, workers=2, kills=KILLS, slow=True),
        way(SERVER, workers=2, kills=KILLS, slow=True),
        way(workers=2, kills=KILLS[7:8], model=LSTM, slow=True),
        way("strategy.name=sharded", workers=2, kills=KILLS[3:4], model=LSTM, slow=True),
        way(SERVER, workers=2, kills=KILLS[4:5], model=LSTM, slow=True),
        way(SERVER, "strategy.embeddings=rows", workers=2, kills=KILLS[2:3], model=LSTM, slow=True),
        way(SERVER, "strategy.embeddings=rows", "--servers", 2, workers=2, model=LSTM, slow=True),
        way(workers=1, model=LSTM, slow=True),
        way(SERVER, "--servers", 1, workers=2, model=LSTM, slow=True),
        way(*LOCAL, workers=2, model=LSTM, slow=True),
        way("strategy.name=replicas", workers=2, model=LSTM, slow=True),
    ],
)
def test_kills_anywhere_end_in_the_same_bits(
    tiny: Tiny, tmp_path: Path, settings: tuple[object, ...], workers: int, kills: tuple[str, ...]
) -> None:
    train = ("train", tiny.config, *SETTINGS, *settings, "--workers", workers, "--run")
    run, straight = tmp_path / "killed", tmp_path / "straight"
    for number, point in enumerate(kills):
        victim = "" if "rank" in point else f":rank={number % workers}"
        result = lockstep(*train, run, fault=f"kill:{point}{victim}", code=None)
        assert result.returncode != 0, f"nobody was killed at {point}"
        assert "Traceback" not in result.stderr
        if workers > 1:
            assert "was killed by SIGKILL" in result.stderr
    lockstep(*train, run)
    lockstep(*train, straight)
    assert weights(run, STEPS) == weights(straight, STEPS)
    for rank in range(workers):
        assert [(line["step"], line["batch"]) for line in steps(run, rank)] == [
            (line["step"], line["batch"]) for line in steps(straight, rank)
        ]
    assert not list((run / "checkpoints").glob(".step-*")), "something half-written was left"


MOMENTS: tuple[str, ...] = ("begin", "write", "save", "parts", "rename", "renamed")
"""Of a write in the background: nothing written yet, within the first file, all files written, all workers done, manifest
written, renamed."""


@pytest.mark.parametrize(
    ("settings", "workers", "action", "moments"),
    [
        pytest.param((), 1, "orphan", MOMENTS[1:2] + MOMENTS[4:5], marks=pytest.mark.slow),
        ((), 2, "kill", MOMENTS[2:3] + MOMENTS[5:]),
        pytest.param((), 1, "kill", MOMENTS, marks=pytest.mark.slow),
        pytest.param((), 1, "orphan", MOMENTS, marks=pytest.mark.slow),
        pytest.param((), 2, "orphan", MOMENTS, marks=pytest.mark.slow),
        pytest.param(("strategy.name=sharded",), 2, "kill", MOMENTS, marks=pytest.mark.slow),
        pytest.param(("strategy.name=sharded",), 2, "orphan", MOMENTS, marks=pytest.mark.slow),
        pytest.param((SERVER, "--servers", 1), 2, "orphan", MOMENTS, marks=pytest.mark.slow),
        pytest.param(LOCAL, 2, "orphan", MOMENTS, marks=pytest.mark.slow),
    ],
)
def test_kills_during_the_write_leave_the_checkpoint_before_it_whole(
    tiny: Tiny, tmp_path: Path, settings: tuple[object, ...], workers: int, action: str, moments: tuple[str, ...]
) -> None:
    """`kill` ends the writer process, `orphan` the worker to which it belongs."""
    train = ("train", tiny.config, *SETTINGS, *settings, "--workers", workers, "--run")
    run, straight = tmp_path / "killed", tmp_path / "straight"
    for number, moment in enumerate(moments):
        step = 3 * (number + 2)
        rank = number % workers if moment in ("begin", "write", "save") else 0
        result = lockstep(*train, run, fault=f"{action}:phase={moment}:step={step}:rank={rank}", code=None)
        assert result.returncode != 0, f"nobody was killed at {moment}"
        assert "Traceback" not in result.stderr
        assert action == "orphan" or ("which writes checkpoints, was killed by SIGKILL" in result.stderr)
        newest, skipped = find_newest_whole(run / "checkpoints")
        assert newest is not None
        assert (newest.step, skipped) == (step if moment == "renamed" else step - 3, [])
    lockstep(*train, run)
    lockstep(*train, straight)
    assert weights(run, STEPS) == weights(straight, STEPS)
    assert not list((run / "checkpoints").glob(".step-*")), "something half-written was left"


@pytest.mark.parametrize(
    ("settings", "workers"),
    [
        (("strategy.name=allreduce",), 2),
        *(
            pytest.param(settings, workers, marks=pytest.mark.slow)
            for settings, workers in (
                ((), 1),
                (("strategy.name=sharded",), 3),
                ((SERVER, "--servers", 1), 2),
                (LOCAL, 2),
                (("strategy.name=replicas",), 2),
            )
        ),
    ],
    ids=str,
)
def test_images_and_batch_norm_resume_in_the_same_bits(
    tiny_images: Tiny, tmp_path: Path, settings: tuple[object, ...], workers: int
) -> None:
    """Sixty images are nine steps: it is killed in the middle of the second pass."""
    train = ("train", tiny_images.config, "train.steps=16", "train.checkpoint_every=6", *settings, "--workers", workers)
    killed = lockstep(*train, "--run", tmp_path / "killed", fault="kill:phase=backward:step=14:rank=0", code=None)
    assert killed.returncode != 0
    lockstep(*train, "--run", tmp_path / "killed")
    lockstep(*train, "--run", tmp_path / "straight")
    assert weights(tmp_path / "killed", 16) == weights(tmp_path / "straight", 16)
    assert [line["batch"] for line in steps(tmp_path / "killed")] == [
        line["batch"] for line in steps(tmp_path / "straight")
    ]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_that_dies_in_an_evaluation_loses_no_step(tiny: Tiny, tmp_path: Path, workers: int) -> None:
    """Also not in the last one, after which nothing would remind it."""
    wait = "train.save=wait"  # in the background, the write might end after the death
    settings = ("train.steps=7", "train.checkpoint_every=3", "train.evaluate_every=3", "train.keep_last=1", wait)
    train = ("train", tiny.config, *settings, "--workers", workers, "--run", tmp_path)
    for step in (3, 7):
        assert lockstep(*train, fault=f"kill:phase=evaluate:step={step}:rank=0", code=None).returncode != 0
        assert manifest(tmp_path, step)["progress"]["score"] is None
    lockstep(*train)
    found = [line for line in lines(tmp_path / "journal" / "worker-0000.jsonl") if line is not None]
    assert [line["step"] for line in found if line["kind"] == "step"] == list(range(1, 8)), "a step was computed again"
    scores = {line["step"]: line["scores"] for line in found if line["kind"] == "evaluation"}
    assert list(scores) == [3, 6, 7]
    evaluations = [Evaluation(step, one["sacrebleu"], one["loss"]) for step, one in scores.items()]
    best = find_best(evaluations, higher_is_better=True)
    assert best is not None
    assert manifest(tmp_path, 7)["progress"]["best_step"] == best.step
    for step in {7, best.step}:
        assert manifest(tmp_path, step)["progress"]["score"] == scores[step]["sacrebleu"]


def test_a_finished_run_continues_when_asked_for_more_steps(tiny: Tiny, tmp_path: Path) -> None:
    train = ("train", tiny.config, "--run", tmp_path)
    lockstep(*train, "train.steps=5")
    kept = [tmp_path / "config.yaml", *(tmp_path / "journal").iterdir()]
    before = {path: path.read_bytes() for path in kept}
    idle = lockstep(*train, "train.steps=3", "--workers", 2)
    assert "finished at step 5" in idle.stdout
    assert "1 worker, single" in idle.stdout
    assert "Nothing to do: step 5 is reached and train.steps is 3." in idle.stderr
    assert {path: path.read_bytes() for path in before} == before, "it is not a launch of the run"
    lockstep(*train, "train.steps=9")
    assert [line["step"] for line in steps(tmp_path)] == list(range(1, 10))
    assert {line["step"]: line["attempt"] for line in steps(tmp_path)}[6] == 2
    lockstep("train", tiny.config, "train.steps=9", "--run", tmp_path / "straight")
    assert weights(tmp_path, 9) == weights(tmp_path / "straight", 9)


def test_other_workers_continue_at_the_exact_next_batch(tiny: Tiny, tmp_path: Path) -> None:
    off = ("model.dropout=0", "batch.words=150", "train.checkpoint_every=5")
    for total, workers in ((5, 3), (10, 1), (15, 2)):
        settings = (*off, f"train.steps={total}")
        lockstep("train", tiny.config, *settings, "--workers", workers, "--run", tmp_path / "changing")
    lockstep("train", tiny.config, *off, "train.steps=15", "--run", tmp_path / "single")
    changing, single = steps(tmp_path / "changing"), steps(tmp_path / "single")
    assert [line["batch"] for line in changing] == [line["batch"] for line in single]
    assert [line["loss"] for line in changing] == pytest.approx([line["loss"] for line in single], rel=1e-4)


def test_killing_the_launcher_leaves_no_orphan_and_no_damage(tiny: Tiny, tmp_path: Path) -> None:
    with running(tiny, tmp_path, *SETTINGS[1:], workers=2, steps_first=4) as launcher:
        orphans = [*children(launcher.pid), *forked(launcher.pid)]
        assert len(orphans) == 3, "the fork server and two workers"
        while find_newest_whole(tmp_path / "checkpoints")[0] is None:
            assert launcher.poll() is None, launcher.communicate()[1]
            time.sleep(0.05)
        launcher.kill()
        launcher.wait()
        wait_until_dead(orphans)
    reached = steps(tmp_path)[-1]["step"]
    again = ("train", tiny.config, *SETTINGS[1:], f"train.steps={reached + 2}", "--workers", 2, "--run", tmp_path)
    assert "Continuing from step" in lockstep(*again).stderr
    assert [line["step"] for line in steps(tmp_path, 1)] == list(range(1, reached + 3))


@pytest.mark.slow
def test_workers_that_do_not_share_the_run_folder_are_told_before_they_train(tiny: Tiny, tmp_path: Path) -> None:
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    environment = os.environ | common | {"MASTER_PORT": str(find_free_port())}
    workers = [
        subprocess.Popen(
            command("train", tiny.config, "train.timeout_seconds=20", "--run", tmp_path / f"machine-{rank}"),
            env=environment | {"RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    for worker in workers:
        _, errors = worker.communicate(timeout=240)
        assert worker.returncode == 1
        assert f"does not see the first worker's run folder {tmp_path / 'machine-1'}" in errors
        assert "Traceback" not in errors


MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", *command()]


@pytest.fixture(scope="module")
def own_launcher(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("own-launcher")
    lockstep("train", tiny.config, *SETTINGS, "--workers", 2, "--run", run)
    return run


@pytest.mark.parametrize("engine", [TORCHRUN, MPIRUN], ids=["torchrun", "mpirun"])
def test_an_existing_engine_runs_the_same_program(
    own_launcher: Path, tiny: Tiny, tmp_path: Path, engine: list[str]
) -> None:
    if shutil.which(engine[0]) is None:
        pytest.skip(f"{engine[0]} is not installed")
    end = "import atexit, os\nif 'RANK' in os.environ or 'OMPI_COMM_WORLD_RANK' in os.environ: atexit.register(os.abort)\n"
    (tmp_path / "sitecustomize.py").write_text(end)  # a worker that exits through Python cleanup fails
    words = [*engine, "train", str(tiny.config), *SETTINGS, "--run", str(tmp_path / "run")]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    assert weights(tmp_path / "run", STEPS) == weights(own_launcher, STEPS)
