"""What a run chooses when it starts and keeps on every resume: precision, kernels, threads, batch budget, synchronization
interval.

The same file counts the launches and stores what was measured about the model."""

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, TypedDict
from uuid import uuid4

from lockstep.config import RunConfig
from lockstep.errors import LockstepError
from lockstep.files import damaged, read_json, write_json
from lockstep.run import environment_variables
from lockstep.run.directory import RunDirectory

if TYPE_CHECKING:
    from lockstep.team import Team


class BatchBudget(TypedDict):
    """The size of a global batch, in one of three units."""

    words: int | None
    sentences: int | None
    images: int | None
    per: str  # always "global": a budget per worker is multiplied once, when the run starts


class Conditions(TypedDict):
    """What a measured peak depends on."""

    precision: str
    kernels: str
    threads: int
    devices: list[str]


class MeasuredModel(TypedDict):
    """Arithmetic of the model, and the best rate of each worker."""

    conditions: Conditions
    flops_per_word: float | None
    peak_flops: list[float]


@dataclass
class Choices:
    """The content of choices.json."""

    precision: str
    every: int  # steps between synchronizations of strategy.name=local
    batch: BatchBudget
    kernels: str = "torch"  # or native; runs of earlier versions had none but torch's
    threads: dict[str, int] = field(default_factory=dict)  # of each worker, by number of workers
    workers: int | None = None  # of the last launch
    launches: int = 1
    launch: str = ""  # a name that only this launch has
    run: str = ""  # a name that only this run has
    measured: list[MeasuredModel] = field(default_factory=list)

    def write(self, run: RunDirectory) -> None:
        write_json(run.choices, asdict(self))


_TYPES = {
    "precision": str,
    "every": int,
    "batch": dict,
    "kernels": str,
    "threads": dict,
    "launches": int,
    "measured": list,
}
"""The types of what choices.json contains."""
_REQUIRED = ("precision", "every", "batch")


def read_choices(run: RunDirectory) -> Choices | None:
    """Returns the choices of an earlier launch, also of version 0.1.0; None before the first one."""
    facts = read_json(run.choices)
    if facts is None:
        return None
    known = {name: value for name, value in facts.items() if name in Choices.__dataclass_fields__}
    for name, kind in _TYPES.items():
        if not isinstance(known.get(name, kind()), kind) or (name in _REQUIRED and name not in known):
            raise damaged(run.choices, f"{name} is missing or wrong")
    if not known["batch"].keys() <= BatchBudget.__annotations__.keys():
        raise damaged(run.choices, "batch is wrong")
    return Choices(**known)


def make_choices(
    run: RunDirectory, config: RunConfig, team: "Team", has_kernels: bool, precision: str, may_keep: bool
) -> Choices:
    """Makes the choices of this launch. With `may_keep`, earlier ones are kept where the config does not say otherwise.
    `has_kernels`: all workers have the native kernels and compute on CPU. `precision` is that of `auto`."""
    before = read_choices(run)
    kept_choices = before if may_keep else None
    batch = config.batch
    factor = team.size if batch.per == "worker" else 1
    budget: BatchBudget = {
        "words": batch.words and batch.words * factor,
        "sentences": batch.sentences and batch.sentences * factor,
        "images": batch.images and batch.images * factor,
        "per": "global",
    }
    every = max(1, min(500, config.train.steps // 20))
    kernels = "native" if has_kernels else "torch"
    choices = kept_choices or Choices(precision, every, budget, kernels)
    choices.launches = (before.launches if before is not None else 0) + 1
    choices.run = choices.run or (before.run if before is not None else "") or uuid4().hex
    choices.launch = environment_variables.launch_id() if team.elastic else uuid4().hex
    if config.train.precision != "auto":
        choices.precision = config.train.precision
    if config.train.kernels != "auto":
        choices.kernels = config.train.kernels
    if choices.kernels == "native" and not has_kernels:
        raise _missing_kernels(run, config, team)
    if config.strategy.name == "local" and config.strategy.every is not None:
        choices.every = config.strategy.every
    if config.train.threads is not None:
        choices.threads[str(team.size)] = config.train.threads
    choices.workers = team.size
    processes = environment_variables.local_world_size(default=team.size)
    choices.threads.setdefault(str(team.size), max(1, len(os.sched_getaffinity(0)) // processes))
    return choices


def _missing_kernels(run: RunDirectory, config: RunConfig, team: "Team") -> LockstepError:
    if team.device.type != "cpu":
        return LockstepError("train.kernels=native is for CPUs.", "Leave train.kernels out.", code=2)
    install = "Install Lockstep again on every machine, with a C compiler"
    if config.train.kernels == "native":
        return LockstepError(
            "train.kernels=native, and not all workers have the compiled kernels.", f"{install}.", code=2
        )
    return LockstepError(
        f"The run {run.name} was trained with native kernels, and not all workers have them here.",
        f"{install}, or continue with train.kernels=torch: then the results differ in their last bits.",
        code=2,
    )
