"""The weights of a model: of one checkpoint, or the mean of several. No torch is needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from lockstep.errors import LockstepError
from lockstep.run.checkpoint import Checkpoint, find_model, list_all
from lockstep.run.directory import RunDirectory

Weights = dict[str, np.ndarray]


def list_model_folders(run: Path, which: Literal["best", "last"], count: int) -> list[Path]:
    """Returns the models of the `count` newest checkpoints of a run, or of those with the best scores. Raises if the run
    has fewer, because a mean of fewer models is another model."""
    saved = [one for one in list_all(RunDirectory(run).checkpoints) if one.damage("model/") is None]
    if not saved:
        raise LockstepError(
            f"{run} has no checkpoints of which --average could take the mean.", "Name a run folder.", code=2
        )
    if which == "best":
        saved = _sort_by_score(saved)
    if len(saved) < count:
        setting = "train.keep_best" if which == "best" else "train.keep_last"
        kind = " with a score" if which == "best" else ""
        have = f"{len(saved)} checkpoint{'s' * (len(saved) != 1)}{kind}"
        raise LockstepError(
            f"{run} has {have}, and --average {count} needs {count}.",
            f"Train with {setting}={count}, or average fewer.",
            code=2,
        )
    chosen = saved[:count] if which == "best" else saved[-count:]
    return [one.path / "model" for one in chosen]


def _sort_by_score(saved: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Returns the checkpoints that have a score, the best first. Translation and accuracy: a higher score is better."""
    scored = [(evaluation.rank(True), i) for i, one in enumerate(saved) if (evaluation := one.evaluation) is not None]
    return [saved[i] for _, i in sorted(scored)]


def read_weights(folders: Sequence[Path]) -> Weights:
    """Returns the mean of the weights in these model folders, each of which has the same tensors."""
    from safetensors.numpy import load_file

    first = load_file(folders[0] / "model.safetensors")
    if len(folders) == 1:
        return first
    total = {name: values.astype(np.float64) for name, values in first.items()}
    for folder in folders[1:]:
        other = load_file(folder / "model.safetensors")
        if {name: values.shape for name, values in other.items()} != {n: v.shape for n, v in first.items()}:
            raise LockstepError(
                f"The models in {folders[0]} and {folder} have other sizes.", "Average one run.", code=2
            )
        for name, values in other.items():
            total[name] += values
    return {name: (values / len(folders)).astype(first[name].dtype) for name, values in total.items()}


def find_models(place: Path, which: Literal["best", "last"], average: int) -> tuple[list[Path], str | None]:
    """Returns the model folders whose mean is wanted, and a sentence if another checkpoint had to be taken."""
    if average > 1:
        return list_model_folders(place, which, average), None
    model = find_model(place, which)
    return [model.folder], model.notice
