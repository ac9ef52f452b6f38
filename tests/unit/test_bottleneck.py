"""What holds a step back is named from the journals alone, with its cost."""

from pathlib import Path

import pytest

from lockstep.explain.bottleneck import Bottleneck, find
from lockstep.explain.reading.record import Record
from lockstep.explain.report import make
from madeup import PLAIN, MadeUp, Phases


def found(run: MadeUp) -> Bottleneck:
    held_back = find(Record.open(run.folder))
    assert held_back is not None
    return held_back


def test_a_slow_exchange_is_the_network(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 41), phases=lambda rank, step: {**PLAIN, "merge": 0.105})
    held_back = found(run)
    assert held_back.name == "network"
    assert held_back.cost("network") == pytest.approx(0.105 / 0.2)
    assert "52.5 %" in held_back.sentence()


def test_sums_of_batch_norm_are_told_from_gradients(tmp_path: Path) -> None:
    """Half as many bytes of gradients would not make the sums shorter."""
    run = MadeUp(tmp_path)
    run.config(strategy={"gradients": "fp32"}, batch={"images": 256})
    sums = {"sums": {"count": 38, "seconds": 0.085, "bytes": 20_000}}
    run.launch(range(1, 41), phases=lambda rank, step: {**PLAIN, "merge": 0.105}, of_step=sums, unit="images")
    held_back = found(run)
    assert (held_back.cost("network"), held_back.cost("sums")) == pytest.approx((0.105 / 0.2, 0.085 / 0.2))
    assert "the sums of batch norm" in held_back.sentence()
    report = make(run.folder)
    assert "Of this, 42.5 % of a step goes to the small sums of batch norm" in report.answers[4].text
    assert "and 10.0 % to gradients." in report.answers[4].text
    assert "at 261 Mbit/s while gradients travel" in report.answers[4].text  # 980,000 bytes in 20 ms + 10 ms hidden
    (halved,) = [one for one in report.advice if "bf16" in one.what]
    assert halved.gain == pytest.approx(0.05 * 8 / 11)  # eight of eleven seconds were training
    run.write(0, "link", interface="eth0", link_bits=1e9, probe_bits=1e9, latency_seconds=1e-4)  # 1 MB in 8 ms of 200
    more = [one for one in make(run.folder).advice if "bf16" in one.what]
    assert not more, "not worth saying: the bytes need a 25th of a step"


def test_a_slow_worker_is_imbalance_and_not_network_though_the_others_wait(tmp_path: Path) -> None:
    """Worker 2 needs 60 ms longer in every step; the other three spend those in merge."""

    def phases(rank: int, step: int) -> Phases:
        return {**PLAIN, "forward": 0.100} if rank == 2 else {**PLAIN, "merge": 0.065}

    run = MadeUp(tmp_path)
    run.launch(range(1, 41), workers=4, phases=phases)
    held_back = found(run)
    assert held_back.name == "imbalance: worker 2"
    assert held_back.steady
    assert held_back.slowest_share == 1.0
    assert held_back.cost("network") == pytest.approx(0.005 / 0.160)
    assert held_back.cost("imbalance") == pytest.approx(0.060 / 0.160)  # against the other three
    assert "worker 2" in held_back.sentence()


def test_workers_that_take_turns_at_being_slow_are_imbalance_that_is_not_steady(tmp_path: Path) -> None:
    def phases(rank: int, step: int) -> Phases:
        return {**PLAIN, "backward": 0.110} if step % 2 == rank else {**PLAIN, "merge": 0.065}

    run = MadeUp(tmp_path)
    run.launch(range(1, 46), phases=phases)
    held_back = found(run)
    assert held_back.cause == "imbalance"
    assert not held_back.steady
    assert held_back.slowest_share == pytest.approx(0.5)


def test_one_worker_with_late_input_is_input_and_not_imbalance(tmp_path: Path) -> None:
    def phases(rank: int, step: int) -> Phases:
        return {**PLAIN, "input": 0.050} if rank == 1 else {**PLAIN, "merge": 0.055}

    run = MadeUp(tmp_path)
    run.launch(range(1, 41), phases=phases)
    held_back = found(run)
    assert held_back.name == "input"
    assert held_back.cost("input") == pytest.approx(0.050 / 0.150)
    assert held_back.cost("imbalance") == pytest.approx(0.0, abs=1e-9)


def test_small_costs_leave_compute_as_the_bottleneck(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 41))
    held_back = found(run)
    assert held_back.name == "compute"
    assert held_back.cost("compute") == pytest.approx(0.95)
    assert "network is next with 5.0 %" in held_back.sentence()


def test_the_parts_add_up_to_the_step_of_the_last_worker(tmp_path: Path) -> None:
    def phases(rank: int, step: int) -> Phases:
        own = {**PLAIN, "forward": 0.04 + 0.01 * rank + 0.001 * (step % 5), "input": 0.002 * (step % 3)}
        return own | {"merge": 0.2 - sum(own.values())}

    run = MadeUp(tmp_path)
    run.launch(range(1, 61), workers=3, phases=phases)
    held_back = found(run)
    assert held_back.compute + held_back.imbalance + held_back.input + held_back.network == pytest.approx(0.195)
    assert held_back.step == pytest.approx(0.195)


def test_warmup_steps_do_not_count(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 41), phases=lambda rank, step: {**PLAIN, "merge": 5.0} if step <= 5 else PLAIN)
    assert found(run).name == "compute"


def test_one_worker_alone_has_no_network_and_no_imbalance(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 21), workers=1, phases=lambda rank, step: {**PLAIN, "merge": 0.0})
    held_back = found(run)
    assert held_back.name == "compute"
    assert held_back.cost("network") == held_back.cost("imbalance") == 0.0


def test_workers_that_do_not_step_together_are_averaged(tmp_path: Path) -> None:
    run = MadeUp(tmp_path, scope="worker")
    run.launch(range(1, 41), phases=lambda rank, step: {**PLAIN, "merge": 0.0 if rank == 0 else 0.1})
    held_back = found(run)
    assert not held_back.lockstep
    assert held_back.network == pytest.approx(0.05)


def test_a_run_of_warmup_only_has_no_verdict(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 5))
    assert find(Record.open(run.folder)) is None
