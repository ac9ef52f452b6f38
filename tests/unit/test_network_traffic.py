"""What the interfaces carry, and a network that has become slow."""

from pathlib import Path

import pytest

from lockstep.heartbeat import Heartbeat
from lockstep.launch import network_traffic
from lockstep.launch.job_watch import JobWatch
from lockstep.launch.network_traffic import NetworkTraffic, count_bytes
from lockstep.launch.process_state import ProcessState
from lockstep.launch.stall_watch import View

TABLE = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 999999    10    0    0    0     0          0         0  999999    10    0    0    0     0       0          0
  eth0: 1000      10    0    0    0     0          0         0    4000    10    0    0    0     0       0          0
  eth1: 500       10    0    0    0     0          0         0     700    10    0    0    0     0       0          0
"""


def test_bytes_of_real_interfaces_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_traffic, "INTERFACES", tmp_path / "dev")
    assert count_bytes() is None
    (tmp_path / "dev").write_text(TABLE)
    assert count_bytes() == 4700


def fill(*megabytes: float) -> NetworkTraffic:
    """Traffic of so many megabytes in each second."""
    traffic, count = NetworkTraffic(), 0.0
    traffic.add(0.0, 0)
    for second, carried in enumerate(megabytes, start=1):
        count += 1e6 * carried
        traffic.add(float(second), int(count))
    return traffic


@pytest.mark.parametrize(
    ("megabytes", "is_slow"),
    [
        ([10] * 5 + [0.12] * 10, True),
        ([10] * 20, False),
        ([10] * 5 + [0.002] * 10, False),  # what monitors say to each other, over a dead link
        ([0.12] * 20, False),
    ],
)
def test_a_network_that_carries_far_less_than_before_is_slow(megabytes: list[float], is_slow: bool) -> None:
    assert fill(*megabytes).is_slow == is_slow


@pytest.mark.parametrize(
    ("phase", "carried", "expected"),
    [
        ("merge", 0.12, "The connection between h1 and h2 is slow: the exchange of step 7 is still under way"),
        ("merge", 0.0, "cause unknown"),
        ("forward", 0.12, "cause unknown"),
    ],
)
def test_an_exchange_over_a_slow_network_is_named_and_nobody_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, carried: float, expected: str
) -> None:
    watch = JobWatch(tmp_path, stall_seconds=20, start_seconds=300)
    watch.traffic, watch.hosts = fill(*[10] * 5, *[carried] * 10), ("h1", "h2")
    monkeypatch.setattr(network_traffic, "count_bytes", lambda: None)
    now = 1000.0
    beats = {rank: Heartbeat(7, 3, phase, now - 15, 0.2) for rank in (0, 1)}
    stall = watch.judge(View(beats, {rank: ProcessState("S") for rank in beats}, dict.fromkeys(beats, 0)), now)
    assert stall is not None
    assert expected in stall.sentence
    assert stall.rank is None
    assert stall.is_moving == ("slow" in expected)
    monkeypatch.setattr("time.monotonic", lambda: now + 3600)
    assert watch.is_over() != stall.is_moving
