"""How much of a training its evaluations take, and which settings make them take less."""

import math
from dataclasses import dataclass

from lockstep.train.train_settings import TrainSettings

FAIR_SHARE = 0.1
"""Evaluations may take this share of the time before the person is told."""
LEAST_SECONDS = 1.0
"""Nobody waits for evaluations that took less than this together."""
LEAST_EXAMPLES = 100
"""A score of fewer sentences says little: that is not suggested."""


@dataclass
class EvaluationCost:
    """Adds up the seconds of steps and evaluations since the launch."""

    settings: TrainSettings
    steps: int = 0
    step_seconds: float = 0.0
    evaluations: int = 0
    evaluation_seconds: float = 0.0
    examples: int = 0  # scored in the last evaluation; 0: not known
    is_told: bool = False

    def add_step(self, seconds: float) -> None:
        self.steps += 1
        self.step_seconds += seconds

    def add_evaluation(self, seconds: float, examples: int) -> None:
        self.evaluations += 1
        self.evaluation_seconds += seconds
        self.examples = examples

    def advise(self) -> str | None:
        """Returns, once, a sentence about evaluations that take too long, with settings that help."""
        share = self.evaluation_seconds / ((self.step_seconds + self.evaluation_seconds) or 1.0)
        is_early = self.evaluations < 2 or self.steps == 0 or self.evaluation_seconds < LEAST_SECONDS
        if self.is_told or is_early or share <= FAIR_SHARE or self.settings.evaluate_every is None:
            return None
        self.is_told = True
        return (
            f"Evaluations take {share:.0%} of the time so far, {self.evaluation_seconds / self.evaluations:.1f} s each. "
            f"To make it about a tenth, stop and start again with {' or '.join(self._suggest())}."
        )

    def _suggest(self) -> list[str]:
        assert self.settings.evaluate_every is not None
        seconds_per_step = self.step_seconds / self.steps
        seconds = self.evaluation_seconds / self.evaluations
        times_steps = FAIR_SHARE / (1 - FAIR_SHARE)  # an evaluation may take this part of the steps before it
        rarer = min(self.settings.steps, -_round_down(-seconds / (seconds_per_step * times_steps)))
        fewer = _round_down(self.examples * self.settings.evaluate_every * seconds_per_step * times_steps / seconds)
        is_useful = LEAST_EXAMPLES <= fewer < self.examples
        return [f"train.evaluate_every={rarer}"] + [f"train.evaluate_sentences={fewer}"] * is_useful


def _round_down(value: float) -> int:
    """Rounds towards minus infinity, to two significant digits: 1,380 -> 1,300, -1,380 -> -1,400."""
    unit = 10 ** max(0, math.floor(math.log10(abs(value) or 1.0)) - 1)
    return math.floor(value / unit) * unit
