"""Question 4: how much of the time did the devices really work? Waiting is not work, whatever a monitor says."""

from dataclasses import dataclass

import numpy as np

from lockstep.explain.answer import Answer, Figure, Tone, missing, told
from lockstep.explain.answers.duration import Duration
from lockstep.explain.arithmetic import arithmetic
from lockstep.explain.bottleneck import IMBALANCE, Bottleneck
from lockstep.explain.formatting import count, flops, megabytes, milliseconds, number, plural, share
from lockstep.explain.pages import charts
from lockstep.explain.reading.machines import Gpu, Machines
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import PHASES
from lockstep.explain.summary import words_per_second

QUESTION = "Were the devices fully utilised?"
FULL = 0.90
MOST_WORKERS, MOST_HOSTS = 16, 8
"""More are not shown one by one."""


@dataclass(frozen=True)
class Usage:
    """One worker's steps, mean seconds by phase."""

    rank: int
    seconds: float
    phases: dict[str, float]
    busy: float  # share of the step in which it computed
    words_per_second: float  # target words of its own


def usages(record: Record) -> list[Usage]:
    found = []
    for rank, steps in record.measured.workers.items():
        if not len(steps):
            continue
        total = float(steps.seconds.sum())
        phases = {name: float(getattr(steps, name).mean()) for name in PHASES}
        words = float(np.nansum(steps.target_words))
        found.append(Usage(rank, total / len(steps), phases, float(steps.compute.sum()) / total, words / total))
    return found


def answer(record: Record, found: Bottleneck | None, seen: Machines, duration: Duration) -> Answer:
    used = usages(record)
    if not used or found is None:
        return Answer(4, QUESTION, "not measured", "No step outside the warm-up was measured.", "unknown")
    busy = float(np.mean([one.busy for one in used]))
    waits = {name: float(np.mean([one.phases[name] / one.seconds for one in used])) for name in ("input", "merge")}
    text = (
        f"The {plural(len(used), 'worker')} on {record.device.upper()} computed during {share(busy)} of a step; "
        f"{share(waits['merge'])} was waiting for gradients and other workers, {share(waits['input'])} waiting for input."
    )
    if found.lockstep:
        who = f"worker {found.slowest} computes longest" if found.steady else "the slowest worker varies"
        text += f" Imbalance costs {share(found.cost(IMBALANCE))} of a step ({who})."
    if record.device == "cuda":
        text += " A GPU that waits inside a communication kernel shows as busy in other monitors, but not here."
    figures = [*_busy(record, found, duration, used), *_arithmetic(record), *_sampled(seen)]
    tone: Tone = "good" if busy >= FULL else "mind"
    return Answer(4, QUESTION, f"{share(busy)} busy", text, tone, figures, [_chart(used)])


def _busy(record: Record, found: Bottleneck, duration: Duration, used: list[Usage]) -> list[Figure]:
    what = "forward + backward + update over the step's seconds: mean"
    how = record.measured.how(what, "each worker's own phase clock")
    figures = [told(f"busy, worker {one.rank}", one.busy, share, how) for one in used[:MOST_WORKERS]]
    if len(used) > MOST_WORKERS:
        figures.append(told("busy, least of all workers", min(one.busy for one in used), share, how))
    if duration.wall:
        computing = sum(duration.parts[phase] for phase in ("forward", "backward", "update"))
        how = "the same over the wall time, which includes start, evaluations and checkpoints"
        figures.append(told("busy of the wall time, worker 0", computing / duration.wall, share, how))
    if found.lockstep:
        than = "that of the others" if found.steady else "the mean of all"
        how = f"compute time of the slowest worker minus {than}, over the step; {found.how}"
        figures.append(told("imbalance", found.cost(IMBALANCE), share, how))
        how = f"share of steps in which it waited least; {plural(found.workers, 'worker')}"
        figures.append(told(f"worker {found.slowest} came last", found.slowest_share, share, how))
    return figures


def _arithmetic(record: Record) -> list[Figure]:
    """Achieved FLOP/s, when the run recorded what a word costs."""
    found = arithmetic(list(record.workers.values()), words_per_second(record), record.unit, record.last_setting)
    if found.flops_per_second is None or found.flops_per_word is None:
        return [missing("achieved FLOP/s", "the journal does not say how many FLOPs a word takes")]
    how = f"{number(found.flops_per_word / 1e6)} MFLOP per {record.unit[:-1]} (forward and backward) times {record.unit}/s"
    figures = [told("achieved, all workers", found.flops_per_second, flops, how)]
    if found.mfu is not None and found.peak_flops is not None:
        how = f"of {flops(found.peak_flops)}: the fastest matrix product of each worker, measured in the run, added up"
        figures.append(told("share of the peak (MFU)", found.mfu, share, how))
    return figures


def _sampled(seen: Machines) -> list[Figure]:
    if not seen.cpu and not seen.hosts:
        return [missing("processor, memory, GPU counters", "the journal has no system samples")]
    figures = []
    for rank, cores in list(seen.cpu.items())[:MOST_WORKERS]:
        how = "mean of the system samples; spinning while waiting counts as use"
        figures.append(told(f"processor cores used, worker {rank}", cores, number, how))
    if seen.resident:
        how = "largest resident memory of any worker, system samples"
        figures.append(told("memory of a worker", max(seen.resident.values()), megabytes, how))
    for host in list(seen.hosts.values())[:MOST_HOSTS]:
        if host.cores_busy:
            how = f"mean of {count(len(host.cores_busy))} samples of {host.cores} cores, all programs"
            figures.append(told(f"cores busy on {host.name}", float(np.mean(host.cores_busy)), share, how))
        for index, gpu in host.gpus.items():
            figures += _gpu(gpu, f"{gpu.name} {index} on {host.name}")
    return figures


def _gpu(gpu: Gpu, name: str) -> list[Figure]:
    figures = []
    if gpu.utilisation:
        how = (
            f"the driver's figure, mean of {count(len(gpu.utilisation))} samples: waiting inside a kernel counts as use"
        )
        figures.append(told(f"{name}: utilisation", float(np.mean(gpu.utilisation)), share, how))
    if gpu.sm_activity:
        how = f"share of multiprocessors with work, mean of {count(len(gpu.sm_activity))} samples"
        figures.append(told(f"{name}: SM activity", float(np.mean(gpu.sm_activity)), share, how))
    if gpu.memory_used:
        figures.append(told(f"{name}: memory", max(gpu.memory_used), megabytes, "maximum of all samples"))
    return figures


def _chart(used: list[Usage]) -> charts.Chart:
    shown = used[:MOST_WORKERS]
    labels = [f"worker {one.rank}" for one in shown]
    parts = {
        name: ([one.phases[name] * 1e3 for one in shown], charts.PHASE_COLOURS[name])
        for name in ("forward", "backward", "update", "merge", "input")
    }
    says = "; ".join(f"worker {one.rank}: busy {share(one.busy)} of {milliseconds(one.seconds)}" for one in shown)
    title = "A step of every worker: computing, then waiting (merge, input)"
    return charts.stacked("utilisation", title, says, labels, parts, "milliseconds")
