"""What to change, ranked by predicted gain. Every prediction is computed from this run's own figures."""

from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from lockstep.explain.evidence import Evidence
from lockstep.explain.formatting import count, share
from lockstep.explain.measures.bottleneck import (
    AVOIDABLE,
    COMPUTE,
    IMBALANCE,
    INPUT,
    NETWORK,
    Bottleneck,
    estimate_noise,
)
from lockstep.explain.measures.convergence import LEARNING, TRAINED, ScoreSeries
from lockstep.explain.measures.curves import estimate_scatter
from lockstep.explain.measures.loss_gap import OVERFITTING, LossGap
from lockstep.explain.measures.wall_time import WallTime
from lockstep.explain.reading.journal_file import get_seconds
from lockstep.explain.reading.json_access import get_dict, get_number
from lockstep.explain.reading.machines import list_link_probes
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import PHASES

WORTH_SAYING = 0.03
"""Smaller predicted gains are left out."""
HALVES = ("allreduce", "sharded", "resilient")
"""Strategies that can send gradients in half as many bytes."""
ENOUGH_EVALUATIONS = 8
"""From this number on, half of the evaluations still make a curve."""
LARGEST_BATCH = 0.1
"""A larger share of the training set is never proposed as a batch: an epoch would have fewer than ten steps."""
WALL_TIME, VALIDATION_LOSS = "wall time", "validation loss"


class AdviceFacts(TypedDict):
    """A proposed change in the JSON of a report."""

    what: str
    gain: float | None
    interval: tuple[float, float] | None
    of: str
    why: str


@dataclass(frozen=True)
class Advice:
    """One proposed change. `gain` is a share of `gain_of`, or None when it cannot be predicted. `noise` is how far it may
    be off to both sides; `asymmetric` replaces it where the two sides differ."""

    what: str
    gain: float | None
    gain_of: str
    why: str
    noise: float = 0.0
    asymmetric: tuple[float, float] | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The range of the gain; None when no gain is predicted."""
        if self.gain is None:
            return None
        return self.asymmetric or (max(0.0, self.gain - self.noise), min(1.0, self.gain + self.noise))

    @property
    def gain_text(self) -> str:
        if self.gain is None or self.interval is None:
            return "not predicted"
        low, high = map(share, self.interval)
        return f"{share(self.gain)} ({low} to {high}) of the {self.gain_of}"

    def facts(self) -> AdviceFacts:
        facts: AdviceFacts = {
            "what": self.what,
            "gain": self.gain,
            "interval": self.interval,
            "of": self.gain_of,
            "why": self.why,
        }
        return facts


def list_advice(evidence: Evidence) -> list[Advice]:
    """Returns changes with a gain of at least WORTH_SAYING, the largest first, and then those without a prediction. A cost
    within the noise predicts no gain."""
    record, wall, bottleneck = evidence.record, evidence.wall_time, evidence.bottleneck
    advice = [*_advise_on_learning(evidence), *_advise_on_wall_time(record, wall), *_advise_on_settings(record)]
    if bottleneck is not None and wall.total:
        training = sum(wall.parts[phase] for phase in PHASES) / wall.total
        advice += _advise_on_step(record, bottleneck, training)
    worth = [one for one in advice if one.gain is None or one.gain >= WORTH_SAYING]
    return sorted(worth, key=lambda one: -(one.gain if one.gain is not None else -1.0))


def _advise_on_step(record: Record, bottleneck: Bottleneck, training: float) -> list[Advice]:
    """Returns changes that shorten a step. `training` is the share of the wall time that steps take."""
    verdict = bottleneck.verdict
    costs = {part: bottleneck.cost(part) if verdict.is_certain(part) else 0.0 for part in AVOIDABLE}
    noise = {part: verdict.noise.get(part, 0.0) * training for part in AVOIDABLE}
    advice = _advise_on_bytes(record, bottleneck, costs[NETWORK], training)
    larger = _double_batch(record)
    if bottleneck.workers > 1 and larger is not None:
        what = f"Exchange half as often: {larger}."
        cost = f"{share(costs[NETWORK])} of a step goes to {verdict.activity(NETWORK)}"
        why = f"{cost}. Larger batches change how a model learns: check the score."
        advice.append(Advice(what, costs[NETWORK] * training / 2, WALL_TIME, why, noise[NETWORK] / 2))
    if bottleneck.disturbed:
        why = "Other programs used the cores while this run trained, so its figures do not say which worker is slow."
        advice.append(Advice("Train with nothing else running on the machine.", None, "", why))
    elif bottleneck.workers > 1:
        advice += _advise_on_imbalance(record, bottleneck, costs[IMBALANCE] * training, noise[IMBALANCE])
    what = "Speed up the input: a faster disk, or fewer other programs on the machine."
    why = f"Waiting for the next batch costs {share(costs[INPUT])} of a step."
    advice.append(Advice(what, costs[INPUT] * training, WALL_TIME, why, noise[INPUT]))
    if record.device == "cuda" or len(set(record.hosts)) > 1:
        gain = bottleneck.cost(COMPUTE) * training / 2
        why = (
            "With the same global batch, compute time halves; exchange, input and imbalance are assumed not to change."
        )
        what = f"Use twice as many workers ({2 * bottleneck.workers})."
        least = max(0.0, gain - sum(costs.values()) * training)  # if exchange, input and imbalance double
        advice.append(Advice(what, gain, WALL_TIME, why, asymmetric=(least, gain + sum(noise.values()) / 2)))
    return advice


def _double_batch(record: Record) -> str | None:
    """Returns the setting that doubles the batch; None where such a batch is too much of the training set."""
    train = get_dict(get_dict(record.data.get("sets")).get("train"))
    workers = len(record.hosts) if record.setting("batch.per") == "worker" else 1
    for name, total in {"words": "target_words", "sentences": "lines", "images": "images"}.items():
        size, available = record.setting(f"batch.{name}"), get_number(train.get(total))
        if isinstance(size, int):
            is_too_large = available is not None and 2 * size * workers > LARGEST_BATCH * available
            return None if is_too_large else f"batch.{name}={2 * size}"
    return "a larger batch"


def _advise_on_bytes(record: Record, bottleneck: Bottleneck, network: float, training: float) -> list[Advice]:
    strategy = record.run_line.get("strategy")
    mixes_sums = strategy == "sharded" and record.unit == "images"  # its exchange contains synchronizing batch norm
    if mixes_sums or strategy not in HALVES or record.setting("strategy.gradients") != "fp32":
        return []
    cost = min(network - bottleneck.cost("sums"), _estimate_wire_share(record, bottleneck))
    why = f"This halves the bytes sent, and sending them takes {share(cost)} of a step."
    noise = bottleneck.verdict.noise.get(NETWORK, 0.0) * training / 2
    return [Advice("Send gradients as bf16: strategy.gradients=bf16.", cost * training / 2, WALL_TIME, why, noise)]


def _estimate_wire_share(record: Record, bottleneck: Bottleneck) -> float:
    """Returns the least time that sending the bytes of a step takes at the rate that a probe reached, as a share of the
    step. Sending less can only save a part of this."""
    probes = [line.get("probe_bits") for line in list_link_probes(record)]
    rates = [float(rate) for rate in probes if isinstance(rate, int | float)]
    sent = float(np.nan_to_num(record.measured.primary.bytes_sent).mean())
    return 8 * sent / rates[-1] / bottleneck.step if rates and rates[-1] > 0 and bottleneck.step else 1.0


def _advise_on_imbalance(record: Record, bottleneck: Bottleneck, gain: float, noise: float) -> list[Advice]:
    if record.setting("batch.balance") is False and record.unit != "images":
        why = "All workers wait for the one with the longest sentences."
        return [Advice("Divide the work evenly: batch.balance=true.", gain, WALL_TIME, why, noise)]
    if bottleneck.steady and bottleneck.slowest is not None:
        hosts = record.hosts
        where = f" on {hosts[bottleneck.slowest]}" if bottleneck.slowest < len(hosts) else ""
        why = "It computes longer than the others on the same work: another program, a slower device, or throttling."
        return [Advice(f"Make worker {bottleneck.slowest}{where} as fast as the others.", gain, WALL_TIME, why, noise)]
    why = (
        "The slowest worker varies. Differences between workers average out in larger batches, roughly with the "
        "square root of the size."
    )
    saved, larger = 1 - 0.5**0.5, _double_batch(record)
    if larger is None:
        return []
    return [Advice(f"Even out the work: {larger}.", gain * saved, WALL_TIME, why, noise * saved)]


def _advise_on_wall_time(record: Record, wall: WallTime) -> list[Advice]:
    """Returns changes that shorten what happens between steps."""
    if not wall.total:
        return []
    advice = []
    evaluations, checkpoints = (wall.parts[part] / wall.total for part in ("evaluation", "checkpoints"))
    every = record.setting("train.evaluate_every")
    if isinstance(every, int) and every < record.last_step and len(record.evaluations) >= ENOUGH_EVALUATIONS:
        why = f"Evaluation took {share(evaluations)} of the wall time."
        what = f"Evaluate half as often: train.evaluate_every={2 * every}."
        advice.append(Advice(what, evaluations / 2, WALL_TIME, why, _find_noise(record, "evaluation") / wall.total / 2))
    every = record.setting("train.checkpoint_every")
    if isinstance(every, int) and every < record.last_step:
        why = f"Checkpoints took {share(checkpoints)} of the wall time. A killed run then loses up to twice as many steps."
        what = f"Save half as often: train.checkpoint_every={2 * every}."
        advice.append(Advice(what, checkpoints / 2, WALL_TIME, why, _find_noise(record, "checkpoint") / wall.total / 2))
    if wall.redone > 0:
        redone = wall.redone / wall.total
        why = (
            f"{share(redone)} of the wall time was lost in launches that were killed and had to be computed again. Saving "
            "twice as often would halve that."
        )
        what = "Save more often: a smaller train.checkpoint_every."
        most = max(0.0, redone - checkpoints)  # kills come at random moments
        advice.append(Advice(what, redone / 2 - checkpoints, WALL_TIME, why, asymmetric=(0.0, most)))
    return advice


def _find_noise(record: Record, kind: str) -> float:
    """Returns by how many seconds the sum of such events would differ if they happened again."""
    seconds = np.array([get_seconds(line) for line in record.primary.select_events(kind)])
    return estimate_noise(seconds) * len(seconds) if len(seconds) else 0.0


def _advise_on_learning(evidence: Evidence) -> list[Advice]:
    record, convergence, gap = evidence.record, evidence.convergence, evidence.loss_gap
    loss = convergence.loss
    if gap.verdict == OVERFITTING and gap.best is not None:
        return [_advise_against_overfitting(record, gap, count(gap.steps[gap.best]))]
    if convergence.verdict == LEARNING:
        return _advise_to_continue(record, loss, convergence.rate_spent)
    if convergence.verdict == TRAINED and len(loss.values) >= ENOUGH_EVALUATIONS:
        first = int(np.flatnonzero(loss.values <= loss.values.min() + loss.worth)[0])
        enough, before = loss.steps[first], loss.steps[first - 1] if first else 0.0  # it was reached in between
        saved, most = (1.0 - float(step / loss.steps[-1]) for step in (enough, before))
        why = f"From step {count(enough)} on, the validation loss was within 1 % of its best."
        return [
            Advice(
                "Stop earlier next time: fewer train.steps, or train.patience=3.",
                saved,
                WALL_TIME,
                why,
                asymmetric=(saved, most),
            )
        ]
    return []


def _advise_against_overfitting(record: Record, gap: LossGap, best: str) -> Advice:
    more = "text, a larger model.dropout"
    if record.setting("data.images"):
        more = "images, a data.augment.cutout of a quarter to half their width, a larger optimizer.weight_decay"
    what = f"Use more {more}, or stop near step {best}."
    why = f"The validation loss was lowest at step {best}; training beyond it made the loss worse."
    noise = 2 * estimate_scatter(gap.validation) / float(gap.validation.min())
    return Advice(what, gap.rise / (1 + gap.rise), VALIDATION_LOSS, why, noise)


def _advise_to_continue(record: Record, loss: ScoreSeries, rate_spent: bool) -> list[Advice]:
    goal = record.setting("train.steps")
    if loss.curve is None or not loss.values[-1] or not isinstance(goal, int):
        return []
    is_unfinished = record.last_step < goal
    factor = goal / record.last_step if is_unfinished else 2.0
    gain = loss.curve.predict_change(factor).scale(-1 / float(loss.values[-1]))
    if is_unfinished:
        what = f"Continue training to the goal, step {count(goal)}."
    elif rate_spent:
        what = f"Train twice as long, train.steps={2 * goal}, in a new run: here the learning rate has decayed to zero."
    else:
        what = f"Train twice as long: resume with train.steps={2 * goal}."
    why = f"Extrapolated from {len(loss.values)} evaluations; the range is an 80 % interval."
    return [
        Advice(
            what, gain.value, VALIDATION_LOSS, why, asymmetric=(min(gain.low, gain.value), max(gain.high, gain.value))
        )
    ]


def _advise_on_settings(record: Record) -> list[Advice]:
    advice = []
    if record.run_line.get("emulated"):
        why = "This hardware does not support the configured precision: it is emulated and slower than fp32."
        advice.append(Advice("Use train.precision=fp32 here.", None, "", why))
    threads = record.run_line.get("threads")
    cores = next(iter(record.environment_of_workers), {}).get("cores")
    if isinstance(threads, int) and isinstance(cores, int) and record.hosts and record.device == "cpu":
        here = record.hosts.count(record.hosts[0])
        fewer = max(1, cores // here)
        if here * threads > cores and fewer < threads:
            why = f"{here} workers with {threads} threads each oversubscribe {cores} cores."
            advice.append(Advice(f"Use fewer threads: train.threads={fewer}.", None, "", why))
    return advice
