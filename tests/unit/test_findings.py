"""What the doctor concludes from what machines say."""

from dataclasses import replace

import pytest

from lockstep.doctor.compare_machines import (
    Examined,
    compare_clocks,
    compare_corpora,
    compare_devices,
    compare_versions,
    judge_memory,
    judge_rates,
    judge_threads,
)
from lockstep.doctor.examine import list_pairs
from lockstep.doctor.finding import Finding, Level
from lockstep.doctor.judge_disks import DiskFacts, judge_disks, judge_sharing
from lockstep.doctor.judge_network import Connection, UsedInterface, choose_interface, judge_connections
from lockstep.hosts.machine_report import MachineReport

REPORT = MachineReport(
    host="node1",
    python="3.12.1",
    torch="2.13.0",
    lockstep="0.1.0",
    code="abc",
    clock=0.0,
    cores=8,
    quota=None,
    threads=None,
    free_memory=16_000_000_000,
    flags=["avx2"],
    gpus=[],
    driver="",
    interfaces={"lo": ["127.0.0.1"], "eth0": ["10.0.0.1"], "eth1": []},
    route="eth0",
    route_address="10.0.0.1",
    named_interface="",
    own_address="10.0.0.1",
    corpus="123",
)


def machines(*changes: dict[str, object], slots: int = 2) -> list[Examined]:
    return [
        Examined(f"n{number}", slots, replace(REPORT, **change))  # type: ignore[arg-type]
        for number, change in enumerate(changes, 1)
    ]


def bad(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(str(one.level), one.host) for one in findings if one.level != Level.PASS]


def test_the_machine_that_differs_from_most_is_named() -> None:
    (finding,) = compare_versions(machines({"torch": "2.12.0"}, {}, {}))
    assert (finding.level, finding.host) == (Level.FAIL, "n1")
    assert finding.sentence == "n1 has torch 2.12.0; n2 and n3 2.13.0."
    assert bad(compare_versions(machines({}, {"python": "3.11.0"}))) == [("warn", "n2")]
    assert bad(compare_versions(machines({"torch": "none"}, {"torch": "none"}))) == [("fail", "n1")]
    assert bad(compare_versions(machines({}, {}))) == []


@pytest.mark.parametrize(("ahead", "level"), [(0.4, None), (-2.0, "warn"), (60.0, "fail")])
def test_clocks_are_compared_within_what_the_answer_took(ahead: float, level: str | None) -> None:
    first, second = machines({}, {})
    findings = compare_clocks([first, replace(second, clock_offset=ahead, clock_error=0.1)])
    assert bad(findings) == ([] if level is None else [(level, "n2")])
    assert bad(compare_clocks([first, replace(second, clock_offset=ahead, clock_error=100.0)])) == []


@pytest.mark.parametrize(
    ("change", "level"),
    [
        ({}, None),
        ({"threads": 4}, None),
        ({"threads": 6}, "warn"),
        ({"quota": 2.0}, "fail"),
        ({"quota": 6.0}, "warn"),
        ({"threads": 1, "quota": 2.0}, None),
    ],
)
def test_more_threads_than_cores_are_named(change: dict[str, object], level: str | None) -> None:
    assert bad(judge_threads(machines({}, change))) == ([] if level is None else [(level, "n2")])


def test_machines_of_different_kinds_are_named() -> None:
    assert bad(compare_devices(machines({}, {}))) == []
    assert bad(compare_devices(machines({"gpus": ["V100"], "driver": "550"}, {}))) == [("fail", "")]
    assert bad(compare_devices(machines({"gpus": ["V100"]}, {"gpus": ["A100"]}))) == [("warn", "")]
    assert bad(compare_devices(machines({"flags": ["amx_bf16"]}, {}))) == [("warn", "n2")]


def test_memory_corpora_and_speed() -> None:
    assert bad(judge_memory(machines({}, {"free_memory": 1_500_000_000}))) == [("warn", "n2")]
    assert bad(compare_corpora(machines({}, {"corpus": "456"}, {"corpus": None}), "corpora/x")) == [
        ("fail", "n2"),
        ("warn", "n3"),
    ]
    assert bad(compare_corpora(machines({"corpus": None}, {}), "corpora/x")) == [("warn", "n1")]
    assert compare_corpora(machines({}, {}), None) == []
    assert bad(judge_rates({"n1": [10e9, 10e9], "n2": [10e9, 6e9], "n3": [3e9]})) == [("warn", "n2"), ("fail", "n3")]


@pytest.mark.parametrize(
    ("change", "wanted", "expected"),
    [
        ({}, None, UsedInterface("eth0", "10.0.0.1")),
        ({}, "eth0", UsedInterface("eth0", "10.0.0.1")),
        ({"named_interface": "eth7"}, None, "n1 has no interface eth7 (GLOO_SOCKET_IFNAME); it has lo"),
        ({}, "eth1", "eth1 on n1 has no address."),
        ({}, "lo", "lo on n1 reaches only n1 itself."),
        ({"route": None, "route_address": None}, None, "n1 does not know the name of the first machine"),
        ({"route": "lo", "route_address": "127.0.1.1"}, None, "leads to 127.0.1.1, which is n1 itself."),
    ],
)
def test_the_interface_is_chosen_or_the_mistake_is_named(
    change: dict[str, object], wanted: str | None, expected: UsedInterface | str
) -> None:
    chosen = choose_interface(machines(change)[0], wanted, several=True)
    if isinstance(expected, str):
        assert isinstance(chosen, Finding)
        assert expected in chosen.sentence
    else:
        assert chosen == expected


def connections(rates: dict[tuple[str, str], float]) -> list[Connection]:
    return [Connection(*pair, "10.0.0.1:4000", "exchanges", 0.0001, rate) for pair, rate in rates.items()]


def test_the_machine_whose_connections_are_all_slow_is_named_once() -> None:
    names = ("n1", "n2", "n3")
    rates = {(one, other): 1e7 if "n3" in (one, other) else 1e9 for one in names for other in names if one != other}
    (finding,) = judge_connections(connections(rates))
    assert (finding.level, finding.sentence) == (Level.FAIL, "The connection of n3 carries 10 Mbit/s only.")
    rates[("n1", "n3")] = 1e9
    assert {finding.host for finding in judge_connections(connections(rates))} == {"n2", "n3"}


def test_a_direction_that_works_is_said() -> None:
    blocked = Connection("n1", "n2", "10.0.0.2:4000", "exchanges", error="nothing answers")
    (finding,) = judge_connections([blocked, *connections({("n2", "n1"): 1e9})])
    assert finding.sentence.endswith("nothing answers. The other direction works: n2 reaches n1.")
    (finding, _) = judge_connections([blocked, replace(blocked, source="n2", target="n1")])
    assert "direction" not in finding.sentence


def test_disks() -> None:
    good = DiskFacts("/runs", 10**12, 5e8, 0.01)
    assert bad(judge_disks({"n1": good, "n2": replace(good, bytes_per_second=2e6)})) == [("fail", "n2")]
    assert bad(judge_disks({"n1": replace(good, free_bytes=10**9, rename_seconds=1.0)})) == [("warn", "n1")] * 2
    assert bad(judge_disks({"n1": good})) == []
    assert bad(judge_sharing("n1", {"n2": False, "n3": True})) == [("warn", "n2")]


def test_many_machines_are_not_all_connected_with_each_other() -> None:
    few, many = list_pairs(["a", "b", "c"], 29400), list_pairs([f"n{number}" for number in range(100)], 29400)
    assert len(few) == 2 + 6
    assert ("b", "a", 29400) in few
    assert len(many) == 99 + 200
    assert {pair[:2] for pair in many} >= {("n4", "n5"), ("n5", "n4"), ("n99", "n0")}
