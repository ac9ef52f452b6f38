"""Checkpoints do not know strategies: a run saved under one continues under any other with any number of workers."""

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from conftest import Tiny, lockstep, manifest, steps

FIRST, LAST = 5, 10
OFF = ("model.dropout=0", "train.checkpoint_every=5")
PLACES: dict[str, tuple[object, ...]] = {
    "single-1": ("--workers", 1),
    "allreduce-2": ("--workers", 2),
    "allreduce-3": ("--workers", 3),
    "sharded-2": ("strategy.name=sharded", "--workers", 2),
    "sharded-3": ("strategy.name=sharded", "--workers", 3),
    "server-1": ("strategy.name=server", "--servers", 1, "--workers", 1),
    "server-2": ("strategy.name=server", "--servers", 1, "--workers", 2),
    "server-3": ("strategy.name=server", "--workers", 3),
    "resilient-2": ("strategy.name=resilient", "--workers", 2),
}
USUAL = {
    ("allreduce-2", "server-3"),
    ("allreduce-3", "single-1"),
    ("single-1", "sharded-3"),
    ("sharded-3", "allreduce-2"),
    ("server-2", "single-1"),
    ("allreduce-2", "resilient-2"),
}
"""Pairs that are always tried; the others are left to `make test-all`."""
PAIRS = [
    pytest.param(one, other, marks=[] if (one, other) in USUAL else [pytest.mark.slow])
    for one, other in product(PLACES, PLACES)
]


@pytest.fixture(scope="module")
def saved(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """A run under some strategy, trained once."""
    folder = tmp_path_factory.mktemp("matrix")

    def train(place: str, total: int) -> Path:
        run = folder / f"{place}-{total}"
        if not run.exists():
            lockstep("train", tiny.config, *OFF, f"train.steps={total}", *PLACES[place], "--run", run)
        return run

    return train


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_saved_under_one_strategy_a_run_continues_under_another(
    tiny: Tiny, tmp_path: Path, saved: Callable[[str, int], Path], one: str, other: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(saved(one, FIRST), run)
    back = () if "strategy.name=server" in PLACES[other] else ("strategy.name=auto",)
    lockstep("train", tiny.config, *OFF, f"train.steps={LAST}", *back, *PLACES[other], "--run", run)
    changing, straight = steps(run), steps(saved("single-1", LAST))
    assert [line["batch"] for line in changing] == [line["batch"] for line in straight]
    assert [line["loss"] for line in changing] == pytest.approx([line["loss"] for line in straight], rel=1e-4)
    assert manifest(run, LAST)["progress"]["scalars"]["optimizer.step"] == LAST
