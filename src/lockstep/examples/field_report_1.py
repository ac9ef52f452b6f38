"""Field report 1: 60.88 million parameters on two nodes with two V100 each, 1.71 s a step over "1 Gbit/s".

The report does not say what a step consisted of. This module computes what its figures allow.
"""

from dataclasses import replace
from typing import TypedDict

import numpy as np

from lockstep.examples.explanation import Explanation, Section
from lockstep.explain.formatting import count, number
from lockstep.lab.plan.cluster import Cluster, load_cluster
from lockstep.lab.plan.costs import LinkModel, Wiring
from lockstep.lab.plan.planned_job import Choice, PlannedJob
from lockstep.lab.plan.profile import ModelShape
from lockstep.lab.plan.step_model import Forecast, forecast

STEP, OBJECTS = 1.710, 36_501.0
"""Seconds of a step; source and target tokens per second."""
STEPS, WORKERS = 50_000, 4
GIGABIT = 125e6
"""Bytes per second of 1 Gbit/s."""
REACHED = {"30 %": 0.30, "55 %": 0.55, "80 %": 0.80}
"""Shares of a V100's fp32 peak that the run may have reached."""
NOMINAL = 0.88, 1.05
"""The range of Gbit/s that a link called "1 Gbit/s" can have for data."""
READINGS = (  # what the run may have done: name, bytes of a gradient value, algorithm, exchanges per step
    ("fp32, flat ring", 4, "ring", 1.0),
    ("fp32, hierarchical", 4, "hierarchical", 1.0),
    ("fp32, flat ring, every second step", 4, "ring", 0.5),
    ("fp32, hierarchical, every second step", 4, "hierarchical", 0.5),
    ("16 bits, flat ring", 2, "ring", 1.0),
    ("16 bits, hierarchical", 2, "hierarchical", 1.0),
)


class Changes(TypedDict, total=False):
    """Fields of a Choice."""

    strategy: str
    gradients: str
    accumulate: int
    every: int


SETTINGS: dict[str, tuple[Changes, int]] = {  # differences from the run, and workers
    "as it was": ({}, WORKERS),
    "bf16 gradients": ({"gradients": "bf16"}, WORKERS),
    "accumulation 4": ({"accumulate": 4}, WORKERS),
    "bf16 and accumulation 4": ({"gradients": "bf16", "accumulate": 4}, WORKERS),
    "DiLoCo, every 50 steps": ({"strategy": "local", "every": 50}, WORKERS),
    "DiLoCo, every 500 steps": ({"strategy": "local", "every": 500}, WORKERS),
    "one node with 2 GPUs": ({}, 2),
}


def explain(shape: ModelShape) -> Explanation:
    cluster = load_cluster("field-report-1")
    begin = (
        f"{count(shape.parameters)} parameters, 2 nodes x 2 V100, a link of 1 Gbit/s: {STEP:.2f} s per step, "
        f'{count(OBJECTS)} source and target tokens per second, GPUs "100 % utilised". What did a step consist of?'
    )
    sections = [_explain_computing(shape), _explain_rates(shape), _explain_batch(), _explain_options(shape, cluster)]
    return Explanation("Field report 1", begin, sections)


def compute_seconds(shape: ModelShape, share: float) -> float:
    """Returns the seconds of forward and backward of one V100 at this share of its fp32 peak. Half of the tokens are target
    words."""
    target_words = STEP * OBJECTS / 2 / WORKERS
    return shape.flops_per_word * target_words / (share * 15.7e12)


def _explain_computing(shape: ModelShape) -> Section:
    rows = []
    for name, share in REACHED.items():
        seconds = compute_seconds(shape, share)
        rows.append((name, f"{number(seconds, 2)} s", f"{number(STEP - seconds, 3)} s"))
    flops = shape.flops_per_word * STEP * OBJECTS / 2
    return Section(
        "How much of the step was arithmetic?",
        f"A step took {number(flops / 1e12, 3)} TFLOP, a quarter of them on each V100 (15.7 TFLOP/s in fp32), if the model "
        "computed no padding.",
        ("share of the peak", "computing", "rest of the step"),
        rows,
        "So most of the step was not arithmetic. The utilisation of 100 % does not contradict this: a GPU that "
        "waits inside a communication kernel counts as busy. Padding would increase the time of computing; the report "
        "does not say how much padding there was.",
    )


def _explain_rates(shape: ModelShape) -> Section:
    """Returns the rate that the link needs for each reading, with and without overlap with the backward pass."""
    seconds = compute_seconds(shape, REACHED["55 %"])
    forward, rows = shape.forward_share * seconds, []
    for name, size, algorithm, often in READINGS:
        sent = often * count_crossing_bytes(shape.parameters * size, algorithm)
        low, high = sent / (STEP - forward), sent / (STEP - seconds)
        gbit = 8 * low / 1e9, 8 * high / 1e9
        rows.append(
            (
                name,
                f"{sent / 1e6:,.1f} MB",
                f"{sent / GIGABIT:.2f} s",
                f"{gbit[0]:.2f} to {gbit[1]:.2f}",
                judge_rate(gbit),
            )
        )
    return Section(
        "Which rates, gradient sizes and algorithms fit 1.71 s?",
        "The data that crosses the link of a node in a step, its time at 1 Gbit/s, and the rate that the link needs: with "
        "full overlap with the backward pass, and with none.",
        ("gradients", "data per step", "at 1 Gbit/s", "Gbit/s needed", "possible at 1 Gbit/s?"),
        rows,
        "The figures do not decide between these. Full fp32 gradients in every step need more than 1 Gbit/s. The "
        "recipe trained in fp32, but it may have sent gradients in 16 bits. The report does not say either whether "
        "the gradient of the shared embedding was sent in full, or as the rows that were used (gathered and not "
        "summed). One figure would have decided it: the bytes that a node sent in a step.",
    )


def count_crossing_bytes(size: float, algorithm: str) -> float:
    """Returns the bytes that leave a node in an all-reduce. A flat ring of four workers crosses the link of a node once in
    each direction. A hierarchical one is a ring of two nodes."""
    members = WORKERS if algorithm == "ring" else 2
    return 2 * (members - 1) / members * size


def judge_rate(gbit: tuple[float, float]) -> str:
    if gbit[0] > NOMINAL[1]:
        return f"no: at least {number(gbit[0], 2)} Gbit/s"
    return "yes" if gbit[1] >= NOMINAL[0] else f"yes, if the link reached at most {gbit[1]:.0%} of 1 Gbit/s"


def _explain_batch() -> Section:
    tokens = STEP * OBJECTS
    rows = []
    for pairs in (128, 256):
        each = tokens / WORKERS / pairs
        typical = "long for this text" if each > 90 else "usual for this text"
        rows.append((f"{pairs}", f"{each:.0f}", f"{each / 2:.0f}", typical))
    return Section(
        "Which batch?",
        f"{OBJECTS:,.0f} x {STEP:.2f} = {tokens:,.0f} tokens per step.",
        ("pairs per GPU", "tokens per pair", "per side", ""),
        rows,
        "256 pairs (the default of the recipe, or 128 with two micro-batches) fits sentences of usual length. 128 fits if "
        "the tokens include padding. The figures do not decide between these.",
    )


def _explain_options(shape: ModelShape, cluster: Cluster) -> Section:
    """Predicts other settings, for three of the readings."""
    readings = [("fp32", "ring"), ("fp32", "hierarchical"), ("fp16", "ring")]
    names = {"fp32": "fp32", "fp16": "16 bits", "ring": "flat ring", "hierarchical": "hierarchical"}
    heads, columns = ["setting"], list[list[float]]()
    for gradients, algorithm in readings:
        job, link = _fit_link(shape, cluster, algorithm, gradients)
        wiring = replace(cluster.wiring, between=link, algorithm=algorithm)
        reading = Choice(gradients=gradients)
        baseline = _predict_speed(job, reading, wiring)
        heads.append(f"{names[gradients]}, {names[algorithm]} at {8 * link.bytes_per_second / 1e9:.2f} Gbit/s")
        others = [(replace(reading, **changes), workers) for changes, workers in SETTINGS.values()]
        columns.append([_predict_speed(job, choice, wiring, workers) / baseline for choice, workers in others])
    rows = []
    for index, setting in enumerate(SETTINGS):
        hours = [STEPS * STEP / 3600 / column[index] for column in columns]
        rows.append((setting, *(f"{column[index]:.2f}x, {h:.1f} h" for column, h in zip(columns, hours, strict=True))))
    return Section(
        "What would have helped?",
        "Predictions of the planner: speed-up over the run as it was, and hours for the data of its 50,000 steps. "
        "V100s are at 55 % of their peak, and the rate of the link is set so that the planner predicts 1.71 s for the "
        "run as it was.",
        heads,
        rows,
        "With accumulation a step has four times the tokens: fewer and larger updates, which may need another "
        "learning rate. With DiLoCo workers train independently between synchronizations; the effect on quality has "
        "to be measured. bf16 gradients are rounded to about three digits, and gain nothing if gradients were sent in "
        "16 bits already. Field report 2 assumed that one machine with 2 GPUs was faster. The planner agrees for "
        "every reading.",
    )


def _fit_link(shape: ModelShape, cluster: Cluster, algorithm: str, gradients: str) -> tuple[PlannedJob, LinkModel]:
    """Returns the job, and the link with which the planner predicts the measured step."""
    assert cluster.device is not None
    words = STEP * OBJECTS / 2 / WORKERS
    profile = cluster.device.estimate_profile(shape, words, "fp32")
    job = PlannedJob(replace(profile, spread=0.0), words, per_worker=True)
    low, high = GIGABIT / 10, GIGABIT * 10
    for _ in range(60):  # bisection: a step is shorter at a higher rate
        rate = (low * high) ** 0.5
        link = replace(cluster.wiring.between, bytes_per_second=rate)
        wiring = replace(cluster.wiring, between=link, algorithm=algorithm)
        step = _forecast(job, Choice(gradients=gradients), wiring).step[0]
        low, high = (rate, high) if step > STEP else (low, rate)
    return job, link


def _forecast(job: PlannedJob, choice: Choice, wiring: Wiring, workers: int = WORKERS) -> Forecast:
    return forecast(job, choice, wiring, np.array([float(workers)]), (0.0, 0.0, 0.0))


def _predict_speed(job: PlannedJob, choice: Choice, wiring: Wiring, workers: int = WORKERS) -> float:
    return float(_forecast(job, choice, wiring, workers).words_per_second[0])
