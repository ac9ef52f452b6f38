"""What to change, ranked by predicted gain. Every prediction is computed from this run's own figures."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.explain.answers.duration import Duration
from lockstep.explain.answers.overfitting import OVERFITTING, Overfitting
from lockstep.explain.answers.trained import LEARNING, TRAINED, Trained
from lockstep.explain.bottleneck import AVOIDABLE, IMBALANCE, INPUT, NETWORK, Bottleneck
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
    """One proposed change. `gain` is a share of what `of` names; None when it cannot be predicted."""

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
    """Changes with a gain of at least WORTH_SAYING, the largest first; those without a prediction come last. A cost within
    the noise predicts no gain."""
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
    verdict = found.verdict
    costs = {part: found.cost(part) if verdict.is_certain(part) else 0.0 for part in AVOIDABLE}
    network, imbalance, given = (costs[part] * training for part in (NETWORK, IMBALANCE, INPUT))
    counted = record.launch.get("strategy") != "sharded" or record.unit != "images"  # else sums of batch norm are in it
    if counted and record.launch.get("strategy") in HALVES and record.setting("strategy.gradients") == "fp32":
        cost = min(costs[NETWORK] - found.cost("sums"), _wire(record, found))
        why = f"This halves the bytes sent, and sending them takes {share(cost)} of a step."
        advice.append(Advice("Send gradients as bf16: strategy.gradients=bf16.", cost * training / 2, "wall time", why))
    if found.workers > 1:
        what = f"Exchange half as often: {twice}."
        goes = f"{share(costs[NETWORK])} of a step goes to {verdict.activity(NETWORK)}"
        why = f"{goes}. Larger batches change how a model learns: check the score."
        advice.append(Advice(what, network / 2, "wall time", why))
        if record.setting("batch.balance") is False and record.unit != "images":
            why = "All workers wait for the one with the longest sentences."
            advice.append(Advice("Divide the work evenly: batch.balance=true.", imbalance, "wall time", why))
        elif found.steady and found.slowest is not None:
            hosts = record.hosts
            where = f" on {hosts[found.slowest]}" if found.slowest < len(hosts) else ""
            why = (
                "It computes longer than the others on the same work: another program, a slower device, or throttling."
            )
            what = f"Make worker {found.slowest}{where} as fast as the others."
            advice.append(Advice(what, imbalance, "wall time", why))
        else:
            why = (
                "The slowest worker varies. Differences between workers average out in larger batches, roughly with the "
                "square root of the size."
            )
            advice.append(Advice(f"Even out the work: {twice}.", imbalance * (1 - 0.5**0.5), "wall time", why))
    what = "Speed up the input: a faster disk, or fewer other programs on the machine."
    why = f"Waiting for the next batch costs {share(costs[INPUT])} of a step."
    advice.append(Advice(what, given, "wall time", why))
    if record.device == "cuda" or len(set(record.hosts)) > 1:
        saved = found.cost("compute") * training / 2
        why = (
            "With the same global batch, compute time halves; exchange, input and imbalance are assumed not to change."
        )
        advice.append(Advice(f"Use twice as many workers ({2 * found.workers}).", saved, "wall time", why))
    return advice


def _wire(record: Record, found: Bottleneck) -> float:
    """The least time that sending a step's bytes takes at the rate that a probe reached, as a share of the step. Sending
    less can only save a part of this."""
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
        why = f"Evaluation took {share(evaluations)} of the wall time."
        what = f"Evaluate half as often: train.evaluate_every={2 * every}."
        advice.append(Advice(what, evaluations / 2, "wall time", why))
    every = record.setting("train.checkpoint_every")
    if isinstance(every, int) and every < record.reached:
        why = f"Checkpoints took {share(checkpoints)} of the wall time. A killed run then loses up to twice as many steps."
        what = f"Save half as often: train.checkpoint_every={2 * every}."
        advice.append(Advice(what, checkpoints / 2, "wall time", why))
    if duration.redone > 0:
        redone = duration.redone / duration.wall
        why = f"{share(redone)} of the wall time was lost in launches that were killed and had to be computed again."
        what = "Save more often: a smaller train.checkpoint_every."
        advice.append(
            Advice(what, redone / 2 - checkpoints, "wall time", f"{why} Saving twice as often would halve that.")
        )
    return advice


def _learning(record: Record, trained: Trained, overfitting: Overfitting) -> list[Advice]:
    loss, goal = trained.loss, record.setting("train.steps")
    if overfitting.verdict == OVERFITTING and overfitting.best is not None:
        best = count(overfitting.steps[overfitting.best])
        why = f"The validation loss was lowest at step {best}; training beyond it made the loss worse."
        more = "text, a larger model.dropout"
        if record.setting("data.images"):
            more = "images, a data.augment.cutout of a quarter to half their width, a larger optimizer.weight_decay"
        what = f"Use more {more}, or stop near step {best}."
        return [Advice(what, overfitting.rise / (1 + overfitting.rise), "validation loss", why)]
    if trained.verdict == LEARNING and loss.curve is not None and loss.values[-1] and isinstance(goal, int):
        unfinished = record.reached < goal
        factor = goal / record.reached if unfinished else 2.0
        gain = -loss.curve.change(factor).value / float(loss.values[-1])
        if unfinished:
            what = f"Continue training to the goal, step {count(goal)}."
        elif trained.rate_spent:
            what = f"Train twice as long, train.steps={2 * goal}, in a new run: here the learning rate has decayed to zero."
        else:
            what = f"Train twice as long: resume with train.steps={2 * goal}."
        return [Advice(what, gain, "validation loss", f"Extrapolated from {len(loss.values)} evaluations.")]
    if trained.verdict == TRAINED and len(loss.values) >= ENOUGH_EVALUATIONS:
        enough = loss.steps[np.flatnonzero(loss.values <= loss.values.min() + loss.worth)[0]]
        saved = 1.0 - float(enough / loss.steps[-1])
        why = f"From step {count(enough)} on, the validation loss was within 1 % of its best."
        return [Advice("Stop earlier next time: fewer train.steps, or train.patience=3.", saved, "wall time", why)]
    return []


def _settings(record: Record) -> list[Advice]:
    advice = []
    if record.launch.get("emulated"):
        why = "This hardware does not support the configured precision: it is emulated and slower than fp32."
        advice.append(Advice("Use train.precision=fp32 here.", None, "", why))
    threads = record.launch.get("threads")
    known = record.environment.get("workers")
    cores = known[0].get("cores") if isinstance(known, list) and known and isinstance(known[0], dict) else None
    if isinstance(threads, int) and isinstance(cores, int) and record.hosts and record.device == "cpu":
        here = record.hosts.count(record.hosts[0])
        if here * threads > cores and max(1, cores // here) < threads:
            why = f"{here} workers with {threads} threads each oversubscribe {cores} cores."
            advice.append(Advice(f"Use fewer threads: train.threads={max(1, cores // here)}.", None, "", why))
    return advice
