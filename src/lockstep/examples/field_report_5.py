"""Field report 5: an LSTM on one to eight P100 in one machine, whose lost speed-up was attributed to communication."""

from dataclasses import replace

import numpy as np

from lockstep.examples.explanation import Explanation, Section
from lockstep.explain.formatting import count, number
from lockstep.lab.plan.cluster import load_cluster
from lockstep.lab.plan.costs import Wiring
from lockstep.lab.plan.planned_job import Choice, PlannedJob
from lockstep.lab.plan.profile import ModelShape, Point
from lockstep.lab.plan.step_model import forecast

GPUS = 8
FIRST, CORRECTED, PREFETCHED, REPLICAS = 1.76, 3.2, 5.5, 7.6
"""Speed-ups on 8 GPUs: as first published (experiment 4), without warm-up and with controlled threads, with prefetched
input, and of independent replicas."""
SENTENCE = 100
"""Words of every sentence in experiment 5."""
MEASURED = {128: (28_896.0, {2: 1.53, 3: 1.71, 4: 1.92}), 360: (39_021.0, {2: 1.78, 3: 2.26, 4: 2.56})}
"""Experiment 5: words per second of one GPU, and the speed-ups, by sentences per GPU."""


def explain(shape: ModelShape) -> Explanation:
    size = 4 * shape.parameters / 1e6
    begin = (
        f"{count(shape.parameters)} parameters ({number(size)} MB of fp32 gradients) on 1 to 8 P100 in one machine. "
        "The first study had no reference. Independent replicas, which exchange nothing, were later 7.6 times as fast "
        "as one GPU."
    )
    return Explanation("Field report 5", begin, [_explain_causes(), _explain_placement(shape)])


def _explain_causes() -> Section:
    lost = GPUS - FIRST
    causes = (
        ("method: warm-up was counted, host threads were oversubscribed", CORRECTED - FIRST),
        ("input: batches were not prefetched", PREFETCHED - CORRECTED),
        ("communication: the difference to independent replicas", REPLICAS - PREFETCHED),
        ("contention on the host: the loss of independent replicas", GPUS - REPLICAS),
    )
    rows = [(cause, f"{value:.2f}", f"{value / lost:.0%}") for cause, value in causes]
    return Section(
        "Lost speed-up of 8 GPUs by cause",
        f"8 GPUs were {FIRST:.2f} times as fast as one: {lost:.2f} of the ideal {GPUS} were lost.",
        ("cause", "speed-up lost", "share"),
        [*rows, ("total", f"{lost:.2f}", "100%")],
        "The figures are those of the report and of its follow-up, and assume that both trained the same job, which "
        "they do not say. Only the third row is communication, a third of the loss; the first study attributed all of "
        "it to communication. The reports do not divide the first row between warm-up and threads.",
    )


def _explain_placement(shape: ModelShape) -> Section:
    """Compares the measurements with one master copy, which is a parameter server, and with a ring all-reduce."""
    cluster = load_cluster("field-report-5")
    rows = []
    for sentences, (speed, measured) in MEASURED.items():
        words = float(sentences * SENTENCE)
        for gpus, speedup in measured.items():
            master = _predict_speedup(shape, cluster.wiring, words, speed, gpus, Choice("server", servers=1))
            ring = _predict_speedup(shape, cluster.wiring, words, speed, gpus, Choice())
            rows.append((f"{sentences}", f"{gpus}", f"{speedup:.2f}", f"{master:.2f}", f"{ring:.2f}"))
    return Section(
        "One master copy, or a ring?",
        "Speed-ups of experiment 5 (everything on GPUs, sentences of 100 words), and predictions with one master copy "
        "of the parameters and with a ring all-reduce. The planner uses its preset for PCIe 3 and the measured speed "
        "of one GPU.",
        ("sentences per GPU", "GPUs", "measured", "predicted, one master copy", "predicted, ring"),
        rows,
        "Two GPUs are nearly as fast as predicted with one master copy. Three and four are slower than predicted, so there "
        "was another loss; the oversubscribed threads, found months later, could explain it. A ring, or a master copy "
        "sharded over all GPUs, as the report advises, removes most of the waiting.",
    )


def _predict_speedup(shape: ModelShape, wiring: Wiring, words: float, speed: float, gpus: int, choice: Choice) -> float:
    device = load_cluster("field-report-5").device
    assert device is not None
    profile = device.estimate_profile(shape, words, "fp32")
    update = profile.points[0].update
    computing = words / speed - update
    forward = shape.forward_share * computing
    point = Point(words, forward, computing - forward, update, 0.0)
    job = PlannedJob(replace(profile, points=(point,), spread=0.0), words, per_worker=True)
    predicted = forecast(job, choice, wiring, np.array([float(gpus)]), (0.0, 0.0, 0.0))
    return float(predicted.words_per_second[0]) / speed
