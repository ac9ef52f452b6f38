"""The sentence about evaluations that take too long."""

import pytest

from lockstep.train.evaluation_cost import EvaluationCost
from lockstep.train.train_settings import TrainSettings


def live(settings: TrainSettings, step_seconds: float, evaluation_seconds: float, sentences: int) -> list[str]:
    """Returns what a run with these durations says."""
    cost, told = EvaluationCost(settings), list[str]()
    assert settings.evaluate_every is not None
    for step in range(1, settings.steps + 1):
        cost.add_step(step_seconds)
        if step % settings.evaluate_every == 0:
            cost.add_evaluation(evaluation_seconds, sentences)
            told += filter(None, [cost.advise()])
    return told


def test_it_is_said_once_after_two_evaluations_with_settings_that_help() -> None:
    (sentence,) = live(TrainSettings(steps=5000, evaluate_every=200), 0.1, 49.0, 1014)
    assert sentence.startswith("Evaluations take 71% of the time so far, 49.0 s each.")
    assert sentence.endswith("start again with train.evaluate_every=4500.")  # 45 sentences would be too few
    (sentence,) = live(TrainSettings(steps=5000, evaluate_every=1000), 0.1, 49.0, 1014)
    assert sentence.endswith("with train.evaluate_every=4500 or train.evaluate_sentences=220.")


@pytest.mark.parametrize(("every", "sentences"), [(4500, 1014), (1000, 220)])
def test_the_suggested_settings_are_enough(every: int, sentences: int) -> None:
    settings = TrainSettings(steps=20_000, evaluate_every=every)
    assert live(settings, 0.1, 49.0 * sentences / 1014, sentences) == []


def test_evaluations_that_take_a_tenth_are_fine() -> None:
    assert live(TrainSettings(steps=900, evaluate_every=90), 1.0, 9.9, 1000) == []
    assert live(TrainSettings(steps=90, evaluate_every=90), 1.0, 500.0, 1000) == [], "one evaluation is too few to tell"


def test_no_more_steps_are_suggested_than_the_run_has() -> None:
    (sentence,) = live(TrainSettings(steps=400, evaluate_every=100), 0.1, 49.0, 0)
    assert sentence.endswith("with train.evaluate_every=400.")
