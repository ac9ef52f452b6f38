"""Golden runs: the losses of 20 steps and the digest of the final model, committed under `tests/golden`.

They keep refactorings honest: a change that moves one bit of training shows here. A golden file holds for one torch
version, one instruction set and one maker of CPUs; `tests/golden` has those of AMD, `tests/golden/intel` those of Intel.
Elsewhere kernels add in another order, so losses are compared within 1e-5 with those of AMD and the
digest is not compared; the test's output says which comparison was made.

`pytest tests/distributed/test_golden.py --write-golden` writes missing files. It never replaces one: delete it first and
give the reason in the commit. Only files with dropout or of native kernels may be replaced. The native kernels have
their own files, which hold for one CPU model, because oneDNN chooses its blocks by the caches. Without dropout their losses
are those of torch's operators within 1e-5.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import LSTM, Tiny, lockstep, steps
from golden_runs import TOLERANCE, losses, machine, model_digest

FOLDER = Path(__file__).parents[1] / "golden"
STEPS = 20
BUCKETS = "strategy.bucket_mb=0.02"
"""Several buckets, although the model is tiny."""


@dataclass(frozen=True)
class Golden:
    settings: tuple[str, ...] = ()
    workers: int = 1
    dropout: bool = False
    images: bool = False
    kernels: str = "torch"


CASES = {
    "single": Golden(),
    "allreduce": Golden((BUCKETS,), 2),
    "sharded": Golden(("strategy.name=sharded",), 2),
    "server": Golden(("strategy.name=server", BUCKETS), 2),
    "local": Golden(("strategy.name=local", "strategy.every=4", BUCKETS), 2),
    "lstm": Golden(LSTM),
    "resnet": Golden(images=True),
    "single-dropout": Golden(dropout=True),
    "allreduce-dropout": Golden((BUCKETS,), 2, dropout=True),
    "single-native": Golden(kernels="native"),
    "allreduce-native": Golden((BUCKETS,), 2, kernels="native"),
    "sharded-native": Golden(("strategy.name=sharded",), 2, kernels="native"),
    "server-native": Golden(("strategy.name=server", BUCKETS), 2, kernels="native"),
    "post-norm-native": Golden(("model.norm=post",), kernels="native"),
    "allreduce-dropout-native": Golden((BUCKETS,), 2, dropout=True, kernels="native"),
}


def train(case: Golden, tiny: Tiny, run: Path) -> str:
    """Trains 20 steps; returns the text of a golden file."""
    settings = [f"train.steps={STEPS}", "train.threads=1", "train.precision=fp32", "train.seed=1"]
    settings += [f"train.kernels={case.kernels}"]
    if not case.images:
        settings += [f"model.dropout={0.1 if case.dropout else 0.0}"]
    lockstep("train", tiny.config, *settings, *case.settings, "--workers", case.workers, "--run", run)
    lines = [
        machine(case.kernels),
        f"model {model_digest(run, STEPS)}",
        *(f"{line['step']} {line['loss']:.7g}" for line in steps(run)),
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", CASES)
def test_a_run_is_the_golden_run(
    name: str, tiny: Tiny, tiny_images: Tiny, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    case, path = CASES[name], (FOLDER / "intel" if "Intel" in machine() else FOLDER) / f"{name}.txt"
    text = train(case, tiny_images if case.images else tiny, tmp_path / "run")
    if request.config.getoption("--write-golden") and not path.exists():
        path.write_text(text)
    here = machine(case.kernels)
    if not path.read_text().startswith(f"{here}\n"):
        path = FOLDER / path.name
    golden = path.read_text()
    if golden.splitlines()[0] == here:
        print(f"{name}: compared to the last bit ({here})")
        assert text == golden
    else:
        print(f"{name}: losses compared within {TOLERANCE} (golden file of {golden.splitlines()[0]}, here {here})")
        assert losses(text) == pytest.approx(losses(golden), rel=TOLERANCE)


@pytest.mark.parametrize("name", ["single", "allreduce", "sharded", "server"])
def test_native_kernels_train_as_the_operators_of_torch(name: str) -> None:
    native, golden = ((FOLDER / f"{name}{suffix}.txt").read_text() for suffix in ("-native", ""))
    assert losses(native) == pytest.approx(losses(golden), rel=TOLERANCE)
