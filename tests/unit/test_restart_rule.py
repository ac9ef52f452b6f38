"""Who trains after a death: all again, fewer, or nobody."""

from pathlib import Path

import pytest

from lockstep import monitor_folder
from lockstep.errors import LockstepError
from lockstep.launch.deaths import Deaths, WorkerDied
from lockstep.run import environment_variables


def die(deaths: Deaths, step: int, place: int | None = None) -> str:
    """A worker has died while the furthest step was this one."""
    deaths.furthest_step = max(deaths.furthest_step, step)
    error = WorkerDied("Worker died.", "Start again.")
    error.place = place
    return deaths.add(error)


def test_all_start_again_until_no_restart_is_left() -> None:
    deaths = Deaths(2, workers=4, least_workers=4)
    assert die(deaths, 5).endswith("All start again from the last checkpoint (restart 1 of 2).")
    assert deaths.environment["LOCKSTEP_RESTARTS"] == "1"
    assert deaths.environment["LOCKSTEP_DEATH"].endswith(" Worker died.")
    assert die(deaths, 9).endswith("(restart 2 of 2).")
    with pytest.raises(WorkerDied, match="Worker died"):
        die(deaths, 12)


def test_three_deaths_at_one_step_end_the_launch_and_name_the_step() -> None:
    deaths = Deaths(9, workers=2, least_workers=2)
    die(deaths, 7)
    die(deaths, 7)
    with pytest.raises(LockstepError, match="Workers died 3 times at step 7"):
        die(deaths, 7)


def test_the_worker_that_keeps_dying_loses_its_place_and_gets_it_back() -> None:
    deaths = Deaths(3, workers=4, least_workers=2)
    assert "All start again" in die(deaths, 7, place=1)
    assert die(deaths, 7, place=1) == "Worker died. 3 workers continue without it from the last checkpoint."
    assert deaths.places == [0, 2, 3]
    assert deaths.is_reduced
    assert "(restart 1 of 3)" in die(deaths, 20, place=0), "the smaller team has restarts of its own"
    assert deaths.bring_back() == "All 4 workers train again, from the step that was reached."
    assert deaths.places == [0, 1, 2, 3]
    assert "LOCKSTEP_DEATH" not in deaths.environment


def test_without_restarts_the_first_death_takes_a_place_and_the_least_number_stays() -> None:
    deaths = Deaths(0, workers=3, least_workers=2)
    assert "2 workers continue" in die(deaths, 7)
    assert deaths.places == [0, 1], "nobody is to blame: the last one goes"
    with pytest.raises(WorkerDied):
        die(deaths, 9)


def test_a_worker_that_has_lost_another_one_waits_for_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container the monitor dies as soon as the last worker has ended."""
    monkeypatch.setattr(monitor_folder, "CAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(environment_variables, "monitor_folder", lambda: None)
    monitor_folder.await_cause()  # nobody watches
    monkeypatch.setattr(environment_variables, "monitor_folder", lambda: tmp_path / "start")
    monitor_folder.write_death(tmp_path / "start", 1.0, "Host h1 is lost.")
    monitor_folder.await_cause()
    monitor_folder.take_death(tmp_path / "start")
    monkeypatch.setattr(monitor_folder, "CAUSE_SECONDS", 0.1)
    monitor_folder.await_cause()  # nobody finds out
