"""A printed job is read back and run here: it trains as a plain run, with the variables that its platform injects."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from conftest import Tiny, command, emulated_network, lockstep, steps

SETTINGS = ("train.steps=20", "model.dropout=0", "train.evaluate_every=null", "train.checkpoint_every=1000")
SERVER = ("strategy.name=server", "strategy.servers=1")
KUBERNETES = ("--on", "kubernetes", "--nodes", 2, "--image", "made/up:1", "--with", "claim=runs")


@pytest.fixture(scope="module")
def plain(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int], list[float]]:
    """Returns the losses of a plain run with so many workers and servers."""
    folder = tmp_path_factory.mktemp("plain")

    @cache
    def train(workers: int, servers: int) -> list[float]:
        run = folder / f"{workers}-{servers}"
        extra = [*SERVER, "--servers", servers] if servers else []
        lockstep("train", tiny.config, *SETTINGS, *extra, "--workers", workers, "--run", run)
        return read_losses(run)

    return train


def read_losses(run: Path) -> list[float]:
    return [line["loss"] for line in steps(run)]


def pretend(
    tiny: Tiny, folder: Path, *words: object, settings: tuple[str, ...] = (), emulates: bool = True
) -> dict[str, object]:
    """Runs `lockstep launch --pretend` in a folder of its own, with or without the programs that emulate hosts."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("bash", "cat", "head"):
        (programs / name).symlink_to(str(shutil.which(name)))
    environment = os.environ if emulates else os.environ | {"PATH": str(programs)}
    all_words = command("launch", tiny.config, *SETTINGS, *settings, *words, "--name", "first", "--pretend", "--json")
    result = subprocess.run(
        all_words, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert result.returncode == 0, result.stderr
    facts = dict(json.loads(result.stdout))
    assert facts["steps"] == 20
    assert facts["emulated"] is (emulates and "local" not in words)
    assert not list(folder.rglob("processes.json")), "a secret may be in them"
    return facts


@emulated_network
@pytest.mark.parametrize(
    ("words", "processes"),
    [
        pytest.param(("--on", "local", "--workers-per-node", 2), (2, 0), id="local", marks=pytest.mark.slow),
        pytest.param(KUBERNETES, (2, 0), id="kubernetes"),
        pytest.param((*KUBERNETES, "--plain"), (2, 0), id="indexed job", marks=pytest.mark.slow),
        pytest.param(
            ("--on", "sky", "--nodes", 2, "--with", "bucket=s3://made-up"), (2, 0), id="sky", marks=pytest.mark.slow
        ),
        pytest.param(("--on", "slurm", "--nodes", 2), (2, 0), id="slurm"),
        pytest.param(
            ("--on", "mpi", "--hosts", "192.0.2.4:2,192.0.2.5:2", "--interface", "ens5"), (4, 0), id="report 1"
        ),
        pytest.param(
            (
                "--on",
                "vertex",
                "--nodes",
                2,
                "--image",
                "made/up:1",
                "--with",
                "bucket=b",
                "--run",
                "/gcs/b/runs/first",
            ),
            (2, 1),
            id="report 4",
        ),
    ],
)
def test_a_pretended_job_reaches_the_losses_of_a_plain_run(
    tiny: Tiny,
    tmp_path: Path,
    plain: Callable[[int, int], list[float]],
    words: tuple[object, ...],
    processes: tuple[int, int],
) -> None:
    facts = pretend(tiny, tmp_path, *words, settings=SERVER if processes[1] else ())
    run = tmp_path / str(facts["run"])
    assert facts["workers"] == processes[0]
    assert read_losses(run) == pytest.approx(plain(*processes), rel=1e-4)
    environment = json.loads((run / "environment.json").read_text())
    hosts = {worker["host"] for worker in environment["workers"]}
    assert len(hosts) == (1 if "local" in words else 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [KUBERNETES, ("--on", "mpi", "--hosts", "node1,node2", "--interface", "ens5"), ("--on", "slurm", "--nodes", 2)],
    ids=["kubernetes", "mpi", "slurm"],
)
def test_without_root_all_processes_run_beside_each_other(
    tiny: Tiny, tmp_path: Path, plain: Callable[[int, int], list[float]], words: tuple[object, ...]
) -> None:
    facts = pretend(tiny, tmp_path, *words, emulates=False)
    assert "this machine, without emulated hosts" in str(facts["sentence"])
    assert read_losses(tmp_path / str(facts["run"])) == pytest.approx(plain(2, 0), rel=1e-4)


@emulated_network
@pytest.mark.slow
def test_a_run_at_an_address_is_tried_beside_it(tiny: Tiny, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    words = (*KUBERNETES[:-2], "--run", f"file://{store}/first")
    facts = pretend(tiny, tmp_path, *words)
    assert facts["run"] == f"file://{store}/first-pretend"
    assert sorted(path.name for path in store.iterdir()) == ["first-pretend"]
    assert (store / "first-pretend" / "config.yaml").exists()


@pytest.mark.slow
def test_a_trial_replaces_an_earlier_one_and_nothing_else(tiny: Tiny, tmp_path: Path) -> None:
    words = ("--on", "local", "--workers-per-node", 1, "--run", "mine")
    for _ in range(2):
        pretend(tiny, tmp_path, *words)
        shutil.rmtree(tmp_path / "programs")
    (tmp_path / "mine-pretend" / "pretended").unlink()
    all_words = command("launch", tiny.config, *words, "--pretend")
    result = subprocess.run(all_words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert "is in the way of the trial" in result.stderr
