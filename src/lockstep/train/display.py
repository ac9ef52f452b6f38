"""What a person sees of a run while it trains: a terminal, and TensorBoard."""

import torch

from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Line, StepLine
from lockstep.tasks.task import Scores, Task
from lockstep.train.evaluation_cost import EvaluationCost
from lockstep.train.precision import is_emulated
from lockstep.train.train_settings import TrainSettings
from lockstep.watch.console import ConsoleProgress
from lockstep.watch.eta import Eta
from lockstep.watch.sampler import to_scalars
from lockstep.watch.tensorboard_writer import TensorBoardWriter

EXAMPLES = {"words": "sentences", "images": "images"}
"""What is evaluated, by the unit in which a task counts."""


class Display:
    """The terminal and TensorBoard of a run; the primary worker has one."""

    def __init__(self, run: RunDirectory, task: Task, workers: int, settings: TrainSettings, start: int) -> None:
        self._task, self._workers, self._steps = task, workers, settings.steps
        every = settings.steps if settings.checkpoint_every == "auto" else settings.checkpoint_every
        eta = Eta(settings.steps, settings.evaluate_every, every)
        self._board = TensorBoardWriter(run.tensorboard, start)
        self._progress = ConsoleProgress(run.console, eta, start, task.unit)
        self._reached, self._cost = start, EvaluationCost(settings)

    def say(self, sentence: str, style: str = "") -> None:
        self._progress.print_line(sentence, style)

    def announce_start(self, step: int, parameters: int, strategy: str, precision: str, device: torch.device) -> None:
        start = f"Continuing from step {step:,}" if step else "Starting"
        workers, threads = self._workers, torch.get_num_threads()
        emulated = " (emulated: this CPU has no bf16 products, fp32 is faster)" * is_emulated(precision, device)
        scaled = " with loss scaling" * (precision == "fp16")
        self.say(
            f"{start}: {parameters:,} parameters, {workers} worker{'s' * (workers > 1)} ({strategy}), "
            f"{threads} thread{'s' * (threads > 1)} each, {precision}{emulated}{scaled}, {device.type}"
        )

    def step(self, line: StepLine) -> None:
        """Shows the speed of all workers. Independent workers are assumed to be as fast as this one."""
        own = line["scope"] == "worker"
        rate = (line["words"]["target"] * self._workers if own else line["global_target_words"]) / line["seconds"]
        self._reached, loss = line["step"], line["loss"]
        self._cost.add_step(line["seconds"])
        values = {"learning_rate": line["lr"], f"{self._task.unit}_per_second": rate, "grad_norm": line["grad_norm"]}
        values |= {f"phase/{name}": seconds / line["seconds"] for name, seconds in line["phases"].items()}
        self._board.add_scalars(self._reached, {"train_loss": loss} | values)
        self._progress.step(self._reached, loss if loss == loss else None, rate, line["seconds"])

    def evaluating(self, done: int, total: int) -> None:
        self._progress.evaluating(done, total, EXAMPLES.get(self._task.unit, "examples"))

    def evaluation(self, step: int, scores: Scores, seconds: float, best: bool, scored: int) -> None:
        named = {"eval_loss" if name == "loss" else name: value for name, value in scores.values.items()}
        self._board.add_scalars(step, named)
        figures = [f"loss {scores.values['loss']:.3f}"] if "loss" in scores.values else []
        figures += [f"{name} {scores.values[name]:.2f}" for name in {self._task.metric} - {"loss"}]
        shown = f"step {step:,}: {', '.join(figures)}"
        limited = f", {scores.limited:,} limited by search.max_words" if scores.limited else ""
        self.say(f"{shown}{' (best so far)' if best else ''}, {seconds:.1f} s{limited}", "green" if best else "")
        self._cost.add_evaluation(seconds, scored)
        self._progress.expect_longer_evaluations(scores.growth_seconds)
        advice = self._cost.advise()
        if advice and step < self._steps:
            self.say(advice, "yellow")

    def sample(self, line: Line) -> None:
        """Called by the sampler's thread. TensorBoard opens with the first step, which it must not delay."""
        if self._board.is_open:
            self._board.add_scalars(self._reached, to_scalars(line))

    def close(self) -> None:
        self._progress.close()
        self._board.close()
