"""Turns the options of `lockstep plan` into the inputs of the planner: profile, cluster, links, strategies."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.errors import LockstepError

if TYPE_CHECKING:
    from lockstep.config import RunConfig
    from lockstep.examples.explanation import Explanation
    from lockstep.lab.plan.cluster import Cluster
    from lockstep.lab.plan.costs import LinkModel
    from lockstep.lab.plan.planned_job import PlannedJob
    from lockstep.lab.plan.predict import Plan
    from lockstep.lab.plan.profile import Profile

BATCH_TOLERANCE = 0.1
"""Relative difference below which two batch sizes count as equal: real batches are a little below their budget."""


@dataclass(frozen=True)
class PlanOptions:
    """The options of the command, as the user wrote them."""

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


def make(options: PlanOptions, say: Callable[[str], None]) -> "Plan":
    """Predicts everything that the options ask for."""
    from lockstep.cli.common import read_config
    from lockstep.files import disk_error, write_json
    from lockstep.lab.plan import predict
    from lockstep.lab.plan.planned_job import Choice

    config, cluster = read_config(options.config), _read_cluster(options)
    counts = parse_counts(options.workers) if options.workers else list_powers(cluster.workers)
    choices = [Choice.parse(word) for word in options.strategies.split(",")] if options.strategies else []
    pipes = _find_pipes(options, cluster, say)
    profile = _find_profile(options, config, cluster, max(counts), say)
    if options.save_profile is not None:
        try:
            write_json(options.save_profile, profile.as_dict())
        except OSError as error:
            raise disk_error(options.save_profile, error, "name another file") from None
    return predict.make_plan(_make_job(config, profile, cluster), cluster, counts, choices, pipes, options.steps)


def _read_cluster(options: PlanOptions) -> "Cluster":
    from lockstep.lab.plan.cluster import find_device, load_cluster, parse_contention
    from lockstep.lab.plan.score import measure_contention, read_measurements

    cluster = load_cluster(options.cluster)
    if options.device is not None:
        chosen = find_device(options.device)
        cluster = replace(cluster, device=chosen, dollars=chosen.dollars)
    if options.contention is not None:
        place = Path(options.contention)
        factors = (
            measure_contention(read_measurements(place)) if place.exists() else parse_contention(options.contention)
        )
        cluster = replace(cluster, contention=factors)
    return cluster


def _find_pipes(options: PlanOptions, cluster: "Cluster", say: Callable[[str], None]) -> "list[LinkModel]":
    from lockstep.lab.plan.cluster import parse_link
    from lockstep.lab.plan.sweep import measure_link

    pipes = (
        [parse_link(word.strip()) for word in options.links.split(",")] if options.links else [cluster.wiring.between]
    )
    if not options.probe:
        return pipes
    measured_pipes = []
    for one in pipes:
        say(f"Measuring a link of {one.name} between two emulated hosts ...")
        measured_pipes.append(measure_link(None if one.name == "none" else one.name, one.name))
    return measured_pipes


def parse_counts(text: str) -> list[int]:
    """Parses `1,2,4`, `1-16`, or a mix of both."""
    counts: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or int(last or first) < int(first):
            raise LockstepError(
                f"Cannot read {part!r} as a number of workers.", "Write --workers 1,2,4 or 1-16.", code=2
            )
        counts += range(int(first), int(last or first) + 1)
    return counts


def list_powers(most: int) -> list[int]:
    """The powers of two up to `most`, and `most`."""
    return sorted({2**power for power in range(most.bit_length())} | {most})


def _find_profile(
    options: PlanOptions, config: "RunConfig", cluster: "Cluster", workers: int, say: Callable[[str], None]
) -> "Profile":
    """The profile that the user gave; one computed from the FLOPs of the model for --device; otherwise a measured one."""
    from lockstep.lab.plan.profile import load_profile, measure_profile

    device = cluster.device
    if options.profile is not None:
        profile = load_profile(options.profile)
        return profile if device is None else device.scale_profile(profile, config.train.precision)
    if device is not None:
        from lockstep.lab.plan.model_shape import WORDS, measure_shape

        words = config.batch.words or WORDS * (config.batch.sentences or 1)
        return device.estimate_profile(measure_shape(config), words, device.choose_precision(config.train.precision))
    say("Training for a few steps with one worker to measure the job ...")
    kind = "words" if config.batch.words else "sentences" if config.batch.sentences else "images"
    sizes: list[list[str]] = [[]]
    if config.batch.per == "global" and workers > 1:
        sizes.append([f"batch.{kind}={max(1, getattr(config.batch, kind) // workers)}"])
    return measure_profile(Path(options.config[0]), options.config[1:], sizes)


def _make_job(config: "RunConfig", profile: "Profile", cluster: "Cluster") -> "PlannedJob":
    from lockstep.lab.plan.planned_job import PlannedJob
    from lockstep.parallel.strategy_settings import AllReduceSettings, ReplicasSettings, ShardedSettings, SingleSettings

    strategy = config.strategy
    if isinstance(strategy, SingleSettings | ReplicasSettings | ShardedSettings):  # these have no buckets
        strategy = AllReduceSettings()
    words = profile.points[-1].words
    if config.batch.words and abs(config.batch.words / words - 1) > BATCH_TOLERANCE:
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


def explain_field_report(name: str) -> "Explanation":
    """Explains a field report with the planner. The FLOPs of its model are counted; all else is as the report says."""
    from lockstep.config import build
    from lockstep.examples import field_report_1, field_report_5
    from lockstep.lab.plan.model_shape import measure_shape

    models = {
        "field-report-1": (field_report_1.explain, {"name": "transformer"}, 32768),
        "field-report-5": (field_report_5.explain, {"name": "lstm"}, 50000),
    }
    if name not in models:
        raise LockstepError(f"There is no explanation of {name}.", f"Choose {' or '.join(models)}.", code=2)
    explain, model, size = models[name]
    data = {"grammar": {}, "languages": ["en", "de"], "vocabulary": {"size": size}}
    return explain(measure_shape(build({"data": data, "batch": {"words": 1}, "model": model}, name)))
