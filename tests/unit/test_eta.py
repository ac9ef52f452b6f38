"""The announced remaining time of runs whose durations are made up."""

import random

import pytest

from lockstep.watch.eta import Eta, format_duration


def parse_duration(text: str) -> float:
    seconds = 0.0
    for part in text.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds


def run(
    eta: Eta, now: list[float], evaluation_seconds: float, save_seconds: float, seed: int = 1
) -> list[tuple[float, str]]:
    """Lives through a run with these durations, varied at random; returns the time after each step and what was announced.
    Its last entry is the end of the run."""
    draw, announced = random.Random(seed), list[tuple[float, str]]()
    for step in range(1, eta.steps + 1):
        seconds = draw.uniform(0.3, 0.7)
        now[0] += seconds + 0.02  # what lies between two steps
        eta.step(step, seconds)
        announced.append((now[0], eta.describe()))
        is_last = step == eta.steps
        if eta.evaluate_every is not None and (step % eta.evaluate_every == 0 or is_last):
            now[0] += draw.uniform(0.9, 1.1) * evaluation_seconds
        if step % eta.checkpoint_every == 0 or is_last:
            now[0] += draw.uniform(0.9, 1.1) * save_seconds
    return [*announced, (now[0], "0:00")]


def test_evaluations_that_will_take_longer_are_expected_to() -> None:
    """An untrained model ends its translations early: its first evaluations say little about the later ones."""
    now = [0.0]
    eta = Eta(40, 10, 1000, lambda: now[0])
    for step in range(1, 22):
        now[0] += 1.0
        eta.step(step, 1.0)
        if step in (10, 20):
            now[0] += 2.0
            eta.growth_seconds = 8.0
    assert eta.describe() == format_duration(19 + 2 * 10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("steps", "evaluate_every", "checkpoint_every", "evaluation_seconds", "save_seconds"),
    [
        (2000, 500, 500, 120.0, 3.0),  # evaluations take a third of the time
        (2000, 100, 1000, 49.0, 0.5),  # half of it
        (1700, 425, 425, 3.0, 0.1),
        (1000, 300, 50, 60.0, 10.0),  # saves beside the evaluations, and a last step that is no multiple
        (1000, None, 100, 0.0, 30.0),
    ],
)
def test_half_way_the_eta_is_within_a_fifth_of_the_truth(
    steps: int,
    evaluate_every: int | None,
    checkpoint_every: int,
    evaluation_seconds: float,
    save_seconds: float,
    seed: int,
) -> None:
    now = [100.0]
    eta = Eta(steps, evaluate_every, checkpoint_every, lambda: now[0])
    announced = run(eta, now, evaluation_seconds, save_seconds, seed)
    end = announced[-1][0]
    for moment, text in announced[steps // 2 : steps - 50]:
        assert parse_duration(text) == pytest.approx(end - moment, rel=0.2)


def test_before_the_first_evaluation_it_says_what_is_not_known() -> None:
    now = [0.0]
    announced = [text for _, text in run(Eta(2000, 500, 500, lambda: now[0]), now, 60.0, 1.0)]
    assert all(text.endswith(" + 4 evaluations") for text in announced[:500])
    assert not any("evaluation" in text for text in announced[500:])
    now = [0.0]
    assert run(Eta(40, 100, 100, lambda: now[0]), now, 60.0, 1.0)[0][1].endswith(" + 1 evaluation")


def test_asynchronous_workers_may_evaluate_between_any_two_steps() -> None:
    """The step after which worker 0 evaluates need not be one of its own."""
    now = [0.0]
    eta = Eta(100, 10, 1000, lambda: now[0])
    for step in (7, 9, 12):  # after step 10 all are evaluated
        now[0] += 1.0 if step < 12 else 61.0
        eta.step(step, 1.0)
    assert eta.step_seconds == pytest.approx(1.0)
    assert eta.describe() == format_duration(88 + 9 * 60)


def test_durations_are_formatted_as_a_clock() -> None:
    assert [format_duration(seconds) for seconds in (59.9, 61, 3725)] == ["0:59", "1:01", "1:02:05"]
