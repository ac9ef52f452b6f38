"""How much of the time the devices computed. Waiting inside a kernel does not count, although GPU monitors count it."""

import numpy as np

from lockstep.explain.answer import Answer, Chart, Figure, Tone, make_figure, make_missing_figure
from lockstep.explain.evidence import Evidence
from lockstep.explain.formatting import count, flops, megabytes, milliseconds, number, plural, share
from lockstep.explain.measures.arithmetic import measure_arithmetic
from lockstep.explain.measures.bottleneck import IMBALANCE, Bottleneck
from lockstep.explain.measures.throughput import measure_words_per_second
from lockstep.explain.measures.worker_usage import WorkerUsage
from lockstep.explain.pages import charts
from lockstep.explain.reading.machines import Gpu, Machines
from lockstep.explain.reading.record import Record

QUESTION = "Were the devices fully utilised?"
FULL = 0.90
MOST_WORKERS, MOST_HOSTS = 16, 8
"""At most this number are shown one by one."""


def answer(evidence: Evidence) -> Answer:
    record, bottleneck, usage = evidence.record, evidence.bottleneck, evidence.usage
    if not usage or bottleneck is None:
        return Answer(QUESTION, "not measured", "No step outside the warm-up was measured.", "unknown")
    busy = float(np.mean([worker.busy for worker in usage]))
    waiting, late_input = (
        float(np.mean([worker.phases[phase] / worker.seconds for worker in usage])) for phase in ("merge", "input")
    )
    text = (
        f"The {plural(len(usage), 'worker')} on {record.device.upper()} computed during {share(busy)} of a step; "
        f"{share(waiting)} was waiting for gradients and other workers, {share(late_input)} waiting for input."
    )
    if bottleneck.lockstep:
        who = f"worker {bottleneck.slowest} computes longest" if bottleneck.steady else "the slowest worker varies"
        who += ", which may be due to other programs" if bottleneck.steady and bottleneck.disturbed else ""
        text += f" Imbalance costs {share(bottleneck.cost(IMBALANCE))} of a step ({who})."
    if record.device == "cuda":
        text += " A GPU that waits inside a communication kernel shows as busy in other monitors, but not here."
    figures = [
        *_list_busy_figures(evidence),
        *(_list_imbalance_figures(bottleneck) if bottleneck.lockstep else []),
        *_list_arithmetic_figures(record),
        *_list_sampled_figures(evidence.machines),
    ]
    tone: Tone = "good" if busy >= FULL else "mind"
    return Answer(QUESTION, f"{share(busy)} busy", text, tone, figures, [_draw_steps(usage)])


def _list_busy_figures(evidence: Evidence) -> list[Figure]:
    usage, wall = evidence.usage, evidence.wall_time
    what = "forward + backward + update over the step's seconds: mean"
    how = evidence.record.measured.describe(what, "each worker's own phase clock")
    figures = [make_figure(f"busy, worker {worker.rank}", worker.busy, share, how) for worker in usage[:MOST_WORKERS]]
    if len(usage) > MOST_WORKERS:
        least = min(worker.busy for worker in usage)
        figures.append(make_figure("busy, least of all workers", least, share, how))
    if wall.total:
        computing = sum(wall.parts[phase] for phase in ("forward", "backward", "update"))
        how = "the same over the wall time, which includes start, evaluations and checkpoints"
        figures.append(make_figure("busy of the wall time, worker 0", computing / wall.total, share, how))
    return figures


def _list_imbalance_figures(bottleneck: Bottleneck) -> list[Figure]:
    than = "that of the others" if bottleneck.steady else "the mean of all"
    how = f"compute time of the slowest worker minus {than}, over the step; {bottleneck.measured}"
    how_often = f"share of steps in which it waited least; {plural(bottleneck.workers, 'worker')}"
    return [
        make_figure("imbalance", bottleneck.cost(IMBALANCE), share, how),
        make_figure(f"worker {bottleneck.slowest} came last", bottleneck.slowest_share, share, how_often),
    ]


def _list_arithmetic_figures(record: Record) -> list[Figure]:
    """Returns the achieved FLOP/s, where the journal has the FLOPs of a word."""
    workers, speed = list(record.workers.values()), measure_words_per_second(record)
    arithmetic = measure_arithmetic(workers, speed, record.unit, record.comparable_attempts)
    if arithmetic.flops_per_second is None or arithmetic.flops_per_word is None:
        return [make_missing_figure("achieved FLOP/s", "the journal does not say how many FLOPs a word takes")]
    megaflop = number(arithmetic.flops_per_word / 1e6)
    how = f"{megaflop} MFLOP per {record.unit[:-1]} (forward and backward) times {record.unit}/s"
    figures = [make_figure("achieved, all workers", arithmetic.flops_per_second, flops, how)]
    if arithmetic.mfu is not None and arithmetic.peak_flops is not None:
        peak = flops(arithmetic.peak_flops)
        how = f"of {peak}: the fastest matrix product of each worker, measured in the run, added up"
        figures.append(make_figure("share of the peak (MFU)", arithmetic.mfu, share, how))
    return figures


def _list_sampled_figures(machines: Machines) -> list[Figure]:
    if not machines.cpu and not machines.hosts:
        return [make_missing_figure("processor, memory, GPU counters", "the journal has no system samples")]
    figures = []
    for rank, cores in list(machines.cpu.items())[:MOST_WORKERS]:
        how = "mean of the system samples; spinning while waiting counts as use"
        figures.append(make_figure(f"processor cores used, worker {rank}", cores, number, how))
    if machines.resident:
        how = "largest resident memory of any worker, system samples"
        figures.append(make_figure("memory of a worker", max(machines.resident.values()), megabytes, how))
    for host in list(machines.hosts.values())[:MOST_HOSTS]:
        if host.cores_busy:
            how = f"mean of {count(len(host.cores_busy))} samples of {host.cores} cores, all programs"
            figures.append(make_figure(f"cores busy on {host.name}", float(np.mean(host.cores_busy)), share, how))
        for index, gpu in host.gpus.items():
            figures += _list_gpu_figures(gpu, f"{gpu.name} {index} on {host.name}")
    return figures


def _list_gpu_figures(gpu: Gpu, name: str) -> list[Figure]:
    figures = []
    if gpu.utilisation:
        how = (
            f"the driver's figure, mean of {count(len(gpu.utilisation))} samples: waiting inside a kernel counts as use"
        )
        figures.append(make_figure(f"{name}: utilisation", float(np.mean(gpu.utilisation)), share, how))
    if gpu.sm_activity:
        how = f"share of multiprocessors with work, mean of {count(len(gpu.sm_activity))} samples"
        figures.append(make_figure(f"{name}: SM activity", float(np.mean(gpu.sm_activity)), share, how))
    if gpu.memory_used:
        figures.append(make_figure(f"{name}: memory", max(gpu.memory_used), megabytes, "maximum of all samples"))
    return figures


def _draw_steps(usage: list[WorkerUsage]) -> Chart:
    workers = usage[:MOST_WORKERS]
    labels = [f"worker {worker.rank}" for worker in workers]
    parts = {
        name: ([worker.phases[name] * 1e3 for worker in workers], charts.PHASE_COLOURS[name])
        for name in ("forward", "backward", "update", "merge", "input")
    }
    busy = (f"worker {one.rank}: busy {share(one.busy)} of {milliseconds(one.seconds)}" for one in workers)
    title = "A step of every worker: computing, then waiting (merge, input)"
    return charts.draw_stacked_bars("utilisation", title, "; ".join(busy), labels, parts, "milliseconds")
