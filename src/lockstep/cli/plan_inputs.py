"""What `lockstep plan` was asked for, turned into what the planner needs: profile, cluster, links, strategies."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.errors import LockstepError

if TYPE_CHECKING:
    from lockstep.config import RunConfig
    from lockstep.examples.explanation import Explanation
    from lockstep.lab.plan.cluster import Cluster
    from lockstep.lab.plan.costs import Pipe
    from lockstep.lab.plan.job import PlannedJob
    from lockstep.lab.plan.predict import Plan
    from lockstep.lab.plan.profile import Profile

SAME = 0.1
"""Batches that differ by less are the same: real ones are a little smaller than their budget."""


@dataclass(frozen=True)
class Asked:
    """The options, as they were written."""

    config: list[str]
    cluster: str
    workers: str | None
    strategies: str | None
    links: str | None
    probe: bool
    device: str | None
    profile: Path | None
    save_profile: Path | None
    contention: str | None
    steps: int | None


def make(asked: Asked, say: Callable[[str], None]) -> "Plan":
    from lockstep.cli.common import read_config
    from lockstep.files import disk_error, write_json
    from lockstep.lab.plan import predict
    from lockstep.lab.plan.job import Choice

    config, cluster = read_config(asked.config), _cluster(asked)
    counts = counted(asked.workers) if asked.workers else powers(cluster.workers)
    choices = [Choice.of(word) for word in asked.strategies.split(",")] if asked.strategies else []
    pipes = _pipes(asked, cluster, say)
    profile = _profile(asked, config, cluster, max(counts), say)
    if asked.save_profile is not None:
        try:
            write_json(asked.save_profile, profile.as_dict())
        except OSError as error:
            raise disk_error(asked.save_profile, error, "name another file") from None
    return predict.make(_job(config, profile, cluster), cluster, counts, choices, pipes, asked.steps)


def _cluster(asked: Asked) -> "Cluster":
    from lockstep.lab.plan.cluster import contention, device, load
    from lockstep.lab.plan.score import contention as of_study
    from lockstep.lab.plan.score import measured

    found = load(asked.cluster)
    if asked.device is not None:
        chosen = device(asked.device)
        found = replace(found, device=chosen, dollars=chosen.dollars)
    if asked.contention is not None:
        place = Path(asked.contention)
        found = replace(found, contention=of_study(measured(place)) if place.exists() else contention(asked.contention))
    return found


def _pipes(asked: Asked, cluster: "Cluster", say: Callable[[str], None]) -> "list[Pipe]":
    from lockstep.lab.plan.cluster import pipe
    from lockstep.lab.plan.sweep import measure

    pipes = [pipe(word.strip()) for word in asked.links.split(",")] if asked.links else [cluster.wiring.between]
    if not asked.probe:
        return pipes
    found = []
    for one in pipes:
        say(f"Measuring a link of {one.name} between two emulated hosts ...")
        found.append(measure(None if one.name == "none" else one.name, one.name))
    return found


def counted(text: str) -> list[int]:
    """`1,2,4` or `1-16`, or both."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or int(last or first) < int(first):
            raise LockstepError(f"Cannot read {part!r} as a number of workers.", "For example 1,2,4 or 1-16.", code=2)
        found += range(int(first), int(last or first) + 1)
    return found


def powers(most: int) -> list[int]:
    """1, 2, 4, ... and `most`."""
    return sorted({2**power for power in range(most.bit_length())} | {most})


def _profile(
    asked: Asked, config: "RunConfig", cluster: "Cluster", workers: int, say: Callable[[str], None]
) -> "Profile":
    """Given, or counted when it is for a device that is not here, or measured."""
    from lockstep.lab.plan.profile import load, take

    device = cluster.device
    if asked.profile is not None:
        return load(asked.profile) if device is None else device.scaled(load(asked.profile))
    if device is not None:
        from lockstep.lab.plan.model_shape import WORDS, measure_shape

        words = config.batch.words or WORDS * (config.batch.sentences or 1)
        return device.profile(measure_shape(config), words, device.precision(config.train.precision))
    say("Training for a few steps with one worker, to see what it computes ...")
    kind = "words" if config.batch.words else "sentences" if config.batch.sentences else "images"
    sizes: list[list[str]] = [[]]
    if config.batch.per == "global" and workers > 1:
        sizes.append([f"batch.{kind}={max(1, getattr(config.batch, kind) // workers)}"])
    return take(Path(asked.config[0]), asked.config[1:], sizes)


def _job(config: "RunConfig", profile: "Profile", cluster: "Cluster") -> "PlannedJob":
    from lockstep.lab.plan.job import PlannedJob
    from lockstep.parallel.strategy_settings import AllReduceSettings, ReplicasSettings, ShardedSettings, SingleSettings

    strategy = config.strategy
    if isinstance(strategy, SingleSettings | ReplicasSettings | ShardedSettings):  # these have no buckets
        strategy = AllReduceSettings()
    words = profile.points[-1].words
    if config.batch.words and abs(config.batch.words / words - 1) > SAME:
        words = config.batch.words
    return PlannedJob(
        profile,
        words=words,
        per_worker=config.batch.per == "worker",
        bucket_mb=strategy.bucket_mb,
        threads=profile.threads,
        cores=cluster.cores,
        contention=cluster.contention or {1: 1.0},
    )


def explained(name: str) -> "Explanation":
    """A field report seen by the planner: its model is counted, everything else is what the report says."""
    from lockstep.config import build
    from lockstep.examples import field_report_1, field_report_5
    from lockstep.lab.plan.model_shape import measure_shape

    models = {
        "field-report-1": (field_report_1.explain, {"name": "transformer"}, 32768),
        "field-report-5": (field_report_5.explain, {"name": "lstm"}, 50000),
    }
    if name not in models:
        raise LockstepError(f"There is no explanation of {name}.", f"There are {' and '.join(models)}.", code=2)
    explain, model, size = models[name]
    data = {"grammar": {}, "languages": ["en", "de"], "vocabulary": {"size": size}}
    return explain(measure_shape(build({"data": data, "batch": {"words": 1}, "model": model}, name)))
