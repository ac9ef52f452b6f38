import pytest
import torch

from lockstep.watch.clock import PHASES, PhaseClock


class ManualClock(PhaseClock):
    """A phase clock whose time is set by the test."""

    now = 0.0

    def stamp(self) -> float:
        return self.now


def start_clock() -> ManualClock:
    clock = ManualClock(torch.device("cpu"))
    clock.start()
    return clock


def spend(clock: ManualClock, phase: str, seconds: float) -> None:
    clock.now += seconds
    clock.mark(phase)


def test_a_mark_ends_a_phase() -> None:
    clock = start_clock()
    for phase, seconds in zip(PHASES, (1.0, 2.0, 4.0, 8.0, 16.0), strict=True):
        spend(clock, phase, seconds)
    assert clock.finish() == (31.0, dict(zip(PHASES, (1.0, 2.0, 4.0, 8.0, 16.0), strict=True)))


def test_a_phase_that_is_marked_twice_is_summed() -> None:
    clock = start_clock()
    for phase, seconds in [("forward", 1.0), ("backward", 2.0), ("forward", 4.0), ("backward", 8.0)]:
        spend(clock, phase, seconds)
    seconds, phases = clock.finish()
    assert (seconds, phases["forward"], phases["backward"]) == (15.0, 5.0, 10.0)


def test_phases_never_marked_are_zero() -> None:
    clock = start_clock()
    spend(clock, "input", 1.0)
    assert clock.finish()[1] == {"input": 1.0, "forward": 0.0, "backward": 0.0, "merge": 0.0, "update": 0.0}


def test_moved_seconds_change_the_phases_and_not_the_step() -> None:
    clock = start_clock()
    spend(clock, "backward", 10.0)
    clock.move("backward", "merge", 3.0)
    clock.move("backward", "merge", 1.0)
    seconds, phases = clock.finish()
    assert (seconds, phases["backward"], phases["merge"]) == (10.0, 6.0, 4.0)


def test_a_phase_never_becomes_negative() -> None:
    clock = start_clock()
    spend(clock, "backward", 2.0)
    clock.move("backward", "merge", 5.0)
    seconds, phases = clock.finish()
    assert (seconds, phases["backward"], phases["merge"]) == (2.0, 0.0, 2.0)


def test_start_resets_marks_and_moves() -> None:
    clock = start_clock()
    spend(clock, "forward", 5.0)
    clock.move("forward", "merge", 1.0)
    clock.now += 100.0
    clock.start()
    spend(clock, "forward", 2.0)
    seconds, phases = clock.finish()
    assert (seconds, phases["forward"], phases["merge"]) == (2.0, 2.0, 0.0)


def test_on_the_real_clock_the_phases_add_up_to_the_step() -> None:
    clock = PhaseClock(torch.device("cpu"))
    for _ in range(3):
        clock.start()
        for phase in (*PHASES, "forward", "backward"):
            sum(range(1000))
            clock.mark(phase)
        clock.move("backward", "merge", 1e-6)
        seconds, phases = clock.finish()
        assert sum(phases.values()) == pytest.approx(seconds, rel=1e-9)
        assert min(phases.values()) >= 0
        assert seconds > 0


def test_the_time_between_two_stamps_is_their_difference() -> None:
    clock = PhaseClock(torch.device("cpu"))
    begin, end = clock.stamp(), clock.stamp()
    assert isinstance(begin, float)
    assert isinstance(end, float)
    assert clock.between(begin, end) == end - begin >= 0
