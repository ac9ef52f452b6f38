"""What to change, ranked by what it is predicted to give. Every prediction is arithmetic on this run's own figures."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.explain.answers.duration import Duration
from lockstep.explain.answers.overfitting import OVERFITTING, Overfitting
from lockstep.explain.answers.trained import LEARNING, TRAINED, Trained
from lockstep.explain.bottleneck import IMBALANCE, INPUT, NETWORK, Bottleneck
from lockstep.explain.formatting import count, share
from lockstep.explain.reading.machines import links
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import PHASES

WORTH_SAYING = 0.03
HALVES = ("allreduce", "sharded", "resilient")
"""Strategies that can send gradients in half as many bytes."""
ENOUGH_EVALUATIONS = 8
"""Half of them still make a curve."""


@dataclass(frozen=True)
class Advice:
    """One change. `gain` is a share of what `of` names; None when nothing is known to predict it from."""

    what: str
    gain: float | None
    of: str
    why: str

    @property
    def gain_text(self) -> str:
        return "not predicted" if self.gain is None else f"{share(self.gain)} of the {self.of}"

    def facts(self) -> dict[str, Any]:
        return {"what": self.what, "gain": self.gain, "of": self.of, "why": self.why}


def rank(
    record: Record, duration: Duration, found: Bottleneck | None, trained: Trained, overfitting: Overfitting
) -> list[Advice]:
    """Those worth saying, the largest gain first, those without a prediction last."""
    all_of_it = [*_learning(record, trained, overfitting), *_wall(record, duration), *_settings(record)]
    if found is not None and duration.wall:
        training = sum(duration.parts[phase] for phase in PHASES) / duration.wall
        all_of_it += _step(record, found, training)
    worth = [one for one in all_of_it if one.gain is None or one.gain >= WORTH_SAYING]
    return sorted(worth, key=lambda one: -(one.gain if one.gain is not None else -1.0))


def _step(record: Record, found: Bottleneck, training: float) -> list[Advice]:
    advice = []
    budgets = {name: record.setting(f"batch.{name}") for name in ("words", "sentences", "images")}
    given_as = [f"batch.{name}={2 * size}" for name, size in budgets.items() if isinstance(size, int)]
    twice = given_as[0] if given_as else "a larger batch"
    network, imbalance, given = (found.cost(cause) * training for cause in (NETWORK, IMBALANCE, INPUT))
    counted = record.launch.get("strategy") != "sharded" or record.unit != "images"  # else sums of batch norm are in it
    if counted and record.launch.get("strategy") in HALVES and record.setting("strategy.gradients") == "fp32":
        cost = min(found.cost(NETWORK) - found.cost("sums"), _wire(record, found))
        why = f"It halves what is sent, and exchanging gradients takes {share(cost)} of a step."
        advice.append(Advice("Send gradients as bf16: strategy.gradients=bf16.", cost * training / 2, "wall time", why))
    if found.workers > 1:
        what = f"Send half as often: {twice}."
        why = f"The exchange costs {share(found.cost(NETWORK))} of a step. Larger steps learn differently: check the score."
        advice.append(Advice(what, network / 2, "wall time", why))
        if record.setting("batch.balance") is False and record.unit != "images":
            why = "Workers wait for the one with the longest sentences."
            advice.append(Advice("Deal out equal work: batch.balance=true.", imbalance, "wall time", why))
        elif found.steady and found.slowest is not None:
            hosts = record.hosts
            where = f" on {hosts[found.slowest]}" if found.slowest < len(hosts) else ""
            why = "It computes longer than the others at equal work: another program, a slower device, or heat."
            what = f"Make worker {found.slowest}{where} as fast as the others."
            advice.append(Advice(what, imbalance, "wall time", why))
        else:
            why = "Now this and now that worker comes last; differences even out in larger steps, about by the square root."
            advice.append(Advice(f"Even out the work: {twice}.", imbalance * (1 - 0.5**0.5), "wall time", why))
    what = "Bring the input in time: a faster disk, or fewer programs beside the training."
    why = f"Waiting for the next batch costs {share(found.cost(INPUT))} of a step."
    advice.append(Advice(what, given, "wall time", why))
    if record.device == "cuda" or len(set(record.hosts)) > 1:
        saved = found.cost("compute") * training / 2
        why = "At the same global batch computing halves; exchange, input and imbalance are taken as they are."
        advice.append(Advice(f"Twice the workers ({2 * found.workers}).", saved, "wall time", why))
    return advice


def _wire(record: Record, found: Bottleneck) -> float:
    """What a step needs at least to send its bytes at the rate that a probe reached, as a share of it; less to send saves
    a part of this and of nothing else."""
    rates = [float(line["probe_bits"]) for line in links(record) if isinstance(line.get("probe_bits"), int | float)]
    sent = float(np.nan_to_num(record.measured.primary.bytes_sent).mean())
    return 8 * sent / rates[-1] / found.step if rates and rates[-1] > 0 and found.step else 1.0


def _wall(record: Record, duration: Duration) -> list[Advice]:
    if not duration.wall:
        return []
    advice = []
    evaluations, checkpoints = (duration.parts[part] / duration.wall for part in ("evaluation", "checkpoints"))
    every = record.setting("train.evaluate_every")
    if isinstance(every, int) and every < record.reached and len(record.evaluations) >= ENOUGH_EVALUATIONS:
        why = f"Evaluations took {share(evaluations)} of the wall time."
        what = f"Evaluate half as often: train.evaluate_every={2 * every}."
        advice.append(Advice(what, evaluations / 2, "wall time", why))
    every = record.setting("train.checkpoint_every")
    if isinstance(every, int) and every < record.reached:
        why = f"Checkpoints took {share(checkpoints)} of the wall time. A killed run then loses up to twice the steps."
        what = f"Save half as often: train.checkpoint_every={2 * every}."
        advice.append(Advice(what, checkpoints / 2, "wall time", why))
    if duration.redone > 0:
        redone = duration.redone / duration.wall
        why = f"{share(redone)} was computed by launches that were killed, and had to be computed again."
        what = "Save more often: a smaller train.checkpoint_every."
        advice.append(Advice(what, redone / 2 - checkpoints, "wall time", f"{why} Twice the saves would halve that."))
    return advice


def _learning(record: Record, trained: Trained, overfitting: Overfitting) -> list[Advice]:
    loss, goal = trained.loss, record.setting("train.steps")
    if overfitting.verdict == OVERFITTING and overfitting.best is not None:
        best = count(overfitting.steps[overfitting.best])
        why = f"The validation loss was lowest at step {best}; training beyond it made the loss worse."
        more = "text, more model.dropout"
        if record.setting("data.images"):
            more = "images, a data.augment.cutout of a quarter to half their width, more optimizer.weight_decay"
        what = f"More {more}, or stop near step {best}."
        return [Advice(what, overfitting.rise / (1 + overfitting.rise), "validation loss", why)]
    if trained.verdict == LEARNING and loss.curve is not None and loss.values[-1] and isinstance(goal, int):
        unfinished = record.reached < goal
        factor = goal / record.reached if unfinished else 2.0
        gain = -loss.curve.change(factor).value / float(loss.values[-1])
        if unfinished:
            what = f"Let it go on to its goal, step {count(goal)}."
        elif trained.rate_spent:
            what = f"Train twice as long, train.steps={2 * goal}, in a new run: this one's learning rate has run out."
        else:
            what = f"Train twice as long: go on with train.steps={2 * goal}."
        return [Advice(what, gain, "validation loss", f"By the curve through {len(loss.values)} evaluations.")]
    if trained.verdict == TRAINED and len(loss.values) >= ENOUGH_EVALUATIONS:
        enough = loss.steps[np.flatnonzero(loss.values <= loss.values.min() + loss.worth)[0]]
        saved = 1.0 - float(enough / loss.steps[-1])
        why = f"From step {count(enough)} on the validation loss was within 1 % of its best."
        return [Advice("Stop earlier next time: fewer train.steps, or train.patience=3.", saved, "wall time", why)]
    return []


def _settings(record: Record) -> list[Advice]:
    advice = []
    if record.launch.get("emulated"):
        why = "This hardware has no such products: they are emulated, slower than fp32."
        advice.append(Advice("Use train.precision=fp32 here.", None, "", why))
    threads = record.launch.get("threads")
    known = record.environment.get("workers")
    cores = known[0].get("cores") if isinstance(known, list) and known and isinstance(known[0], dict) else None
    if isinstance(threads, int) and isinstance(cores, int) and record.hosts and record.device == "cpu":
        here = record.hosts.count(record.hosts[0])
        if here * threads > cores and max(1, cores // here) < threads:
            why = f"{here} workers with {threads} threads each share {cores} cores and take turns."
            advice.append(Advice(f"Fewer threads: train.threads={max(1, cores // here)}.", None, "", why))
    return advice
