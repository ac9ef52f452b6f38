import math

import pytest

from lockstep.train.save_interval import FIRST_STEPS, SaveSchedule, choose_seconds
from lockstep.train.stop_signal import CLOSING_SECONDS, TimeLimit
from lockstep.train.train_settings import TrainSettings


def lose(interval: float, save: float, restart: float, failure: float) -> float:
    """The share of the time that saves and failures take, when a failure undoes half of an interval."""
    return save / interval + (interval / 2 + restart) / failure


@pytest.mark.parametrize(("save", "restart", "failure"), [(0.1, 10, 86_400), (5, 60, 3600), (0.5, 300, 7200)])
def test_no_other_interval_loses_much_less(save: float, restart: float, failure: float) -> None:
    chosen = choose_seconds(save, restart, failure)
    best = min(lose(chosen * factor / 100, save, restart, failure) for factor in range(5, 1000))
    assert lose(chosen, save, restart, failure) < 1.02 * best


def test_the_formula_of_young_for_a_cheap_save() -> None:
    assert choose_seconds(0.1, 0.0, 86_400) == pytest.approx(math.sqrt(2 * 0.1 * 86_400), rel=0.01)


def test_saves_never_follow_each_other_so_fast_that_one_waits_for_another() -> None:
    assert choose_seconds(0.1, 0.0, 10.0, background=30.0) == 60.0
    assert choose_seconds(100.0, 0.0, 1.0) == 100.0


def test_a_fixed_interval_counts_from_the_first_step_of_the_run() -> None:
    schedule = SaveSchedule(TrainSettings(checkpoint_every=5))
    schedule.continue_from(7, None)
    assert [step for step in range(8, 21) if schedule.is_due(step)] == [10, 15, 20]


def test_an_automatic_interval_is_chosen_from_measurements_and_kept_on_resume() -> None:
    schedule = SaveSchedule(TrainSettings(checkpoint_every="auto", failure_hours=1.0))
    schedule.continue_from(0, None)
    assert schedule.choose() is None
    assert (schedule.is_due(FIRST_STEPS - 1), schedule.is_due(FIRST_STEPS)) == (False, True)
    for _ in range(3):
        schedule.add_step(0.5)
    schedule.add_save(0.2, 0.0)
    chosen = schedule.choose()
    assert chosen is not None
    seconds = choose_seconds(0.2, chosen["restart_seconds"], 3600.0)
    assert chosen["every"] == round(seconds / 0.5)
    schedule.continue_from(40, int(chosen["every"]))
    due = 40 + int(chosen["every"])
    assert (schedule.is_due(due - 1), schedule.is_due(due)) == (False, True)


def test_a_time_limit_leaves_room_for_two_steps_and_the_save(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 3600.0 - CLOSING_SECONDS)
    limit = TimeLimit(1.0, launch_begin=0.0)
    assert limit.is_near(save_seconds=0.0)
    monkeypatch.setattr("time.time", lambda: 3580.0 - CLOSING_SECONDS)
    limit.add_step(4.0)
    assert not limit.is_near(save_seconds=10.0)
    assert limit.is_near(save_seconds=12.0)
    assert not TimeLimit(None, 0.0).is_near(1e9)
