"""A report separates what a step is made of from what could be gained, from the journals alone."""

from pathlib import Path

import pytest

from lockstep.explain.measures.bottleneck import Bottleneck, Verdict, find_bottleneck
from lockstep.explain.reading.record import Record
from lockstep.explain.report import make, render_page, render_text
from madeup import PLAIN, MadeUp, Phases

TWO = ["one", "two"]


def measure(run: MadeUp) -> Bottleneck:
    bottleneck = find_bottleneck(Record.open(run.folder))
    assert bottleneck is not None
    return bottleneck


def make_phases(compute: float, exchange: float = 0.0, given: float = 0.0) -> Phases:
    """Returns a step of 100 ms whose parts are given in percent."""
    return {"input": given / 1e3, "forward": compute / 1e3, "backward": 0.0, "merge": exchange / 1e3, "update": 0.0}


def write_run(folder: Path, phases: Phases, hosts: list[str] | None = None, scope: str = "global") -> MadeUp:
    run = MadeUp(folder, hosts=hosts or ["here"], scope=scope)
    run.launch(range(1, 41), phases=lambda rank, step: phases)
    return run


def test_a_step_that_mostly_computes_is_compute_bound_and_the_exchange_its_largest_avoidable_cost(
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path, make_phases(85, 10.1, 4.9))
    bottleneck = measure(run)
    assert bottleneck.sentence() == (
        "Compute-bound: 85.0 % of a step is computing. The largest avoidable cost is exchanging gradients between "
        "processes (10.1 %)."
    )
    assert (bottleneck.cause, bottleneck.verdict.bound_by, bottleneck.verdict.is_bottleneck) == (
        "compute",
        "compute",
        False,
    )
    report = make(run.folder)
    assert report.verdict[2] == bottleneck.sentence()
    fifth = report.answers[4]
    assert fifth.short == "no, 10.1 % of a step"
    assert fifth.text.startswith("No: 10.1 % of a step goes to exchanging gradients between processes of one machine.")
    assert "It is the largest avoidable cost; computing takes 85.0 %." in fifth.text
    (drawn,) = [chart for chart in fifth.charts if chart.name == "step-parts"]
    assert "exchange" in drawn.heads
    assert "network" not in drawn.heads
    for written in (render_text(report), render_page(report).partition("<script")[0]):
        assert "bottleneck is" not in written
    facts = report.facts()["bottleneck"]
    assert facts is not None
    assert facts["cause"] == "compute"
    assert facts["cost"] == pytest.approx(0.85)
    assert facts["costs"]["network"] == pytest.approx(0.101)
    assert facts["bound_by"] == "compute"
    assert facts["is_bottleneck"] is False
    assert facts["largest_avoidable"] == {"cause": "network", "cost": pytest.approx(0.101), "noise": pytest.approx(0)}


@pytest.mark.parametrize(
    ("phases", "hosts", "cause", "sentence", "fifth"),
    [
        (
            make_phases(70, 30),
            TWO,
            "network",
            "The bottleneck is the network: 30.0 % of a step goes to exchanging gradients, 70.0 % to computing.",
            "yes, 30.0 % of a step",
        ),
        (
            make_phases(74, 26),
            None,
            "network",
            "The bottleneck is the exchange between processes: 26.0 % of a step goes to exchanging "
            "gradients, 74.0 % to computing.",
            "the exchange between processes was, 26.0 % of a step",
        ),
        (
            make_phases(35, 40, 25),
            TWO,
            "network",
            "The bottleneck is the network: 40.0 % of a step goes to exchanging gradients, 35.0 % to computing, 25.0 % "
            "to waiting for the next batch.",
            "yes, 40.0 % of a step",
        ),
        (
            make_phases(30, 30, 40),
            TWO,
            "input",
            "The bottleneck is the input: 40.0 % of a step goes to waiting for the next batch, 30.0 % to computing, "
            "30.0 % to exchanging gradients.",
            "no, 30.0 % of a step",
        ),
        (
            make_phases(78, 0, 22),
            TWO,
            "compute",
            "Compute-bound: 78.0 % of a step is computing. The largest avoidable cost is waiting for the next batch "
            "(22.0 %).",
            "no, 0.0 % of a step",
        ),
        (
            make_phases(93, 5, 2),
            TWO,
            "compute",
            "Compute-bound: 93.0 % of a step is computing; exchanging gradients over the network is next with 5.0 %.",
            "no, 5.0 % of a step",
        ),
    ],
)
def test_only_a_quarter_of_a_step_is_called_the_bottleneck(
    tmp_path: Path, phases: Phases, hosts: list[str] | None, cause: str, sentence: str, fifth: str
) -> None:
    run = write_run(tmp_path, phases, hosts)
    assert measure(run).cause == cause
    assert measure(run).sentence() == sentence
    assert make(run.folder).answers[4].short == fifth


def test_imbalance_of_an_eighth_is_the_largest_avoidable_cost(tmp_path: Path) -> None:
    run = MadeUp(tmp_path, hosts=TWO)
    run.launch(range(1, 41), phases=lambda rank, step: make_phases(100 - 12 * (1 - rank), 12 * (1 - rank)))
    bottleneck = measure(run)
    assert bottleneck.sentence() == (
        "Compute-bound: 88.0 % of a step is computing. The largest avoidable cost is waiting for worker 1 (12.0 %). "
        "Worker 1 is the slowest in 100 % of the steps."
    )
    assert bottleneck.name == "compute"
    assert bottleneck.facts()["largest_avoidable"]["cause"] == "imbalance: worker 1"


def test_a_few_slow_steps_are_no_bottleneck(tmp_path: Path) -> None:
    """One exchange of 5 s in 35 steps is more than half of the time, and tells nothing about the other steps."""
    run = MadeUp(tmp_path, hosts=TWO)
    run.launch(range(1, 41), phases=lambda rank, step: make_phases(100, 5000 if step == 20 else 1))
    bottleneck = measure(run)
    assert bottleneck.cost("network") > 0.5
    assert not bottleneck.verdict.is_bottleneck
    assert bottleneck.cause == "compute"
    assert "bottleneck is" not in bottleneck.sentence()
    assert "varies too much between steps" in bottleneck.sentence()
    report = make(run.folder)
    assert report.answers[4].short.startswith("not certain, ")
    assert not any("Exchange" in one.what for one in report.advice)


def test_one_measured_step_proves_nothing(tmp_path: Path) -> None:
    run = MadeUp(tmp_path, hosts=TWO)
    run.launch(range(1, 7), phases=lambda rank, step: make_phases(40, 60))
    assert not measure(run).verdict.is_bottleneck


def test_workers_that_do_not_step_together_may_wait_for_each_other(tmp_path: Path) -> None:
    """Their journals cannot tell waiting for a slower worker from the exchange."""
    run = write_run(tmp_path, make_phases(60, 40), TWO, scope="worker")
    assert measure(run).sentence() == (
        "The bottleneck is the exchange with other workers: 40.0 % of a step goes to exchanging updates and "
        "waiting for other workers, 60.0 % to computing."
    )
    fifth = make(run.folder).answers[4]
    assert fifth.short == "possibly, 40.0 % of a step"
    assert "their journals cannot tell the two apart" in fifth.text


def test_no_claim_is_made_about_hosts_that_are_not_known(tmp_path: Path) -> None:
    run = write_run(tmp_path, make_phases(70, 30))
    (tmp_path / "environment.json").unlink()
    sentence = measure(run).sentence()
    assert "The bottleneck is the exchange: " in sentence
    assert "one machine" not in make(run.folder).answers[4].text


def test_workers_on_one_machine_may_have_their_servers_elsewhere(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 41), phases=lambda rank, step: make_phases(70, 30), servers=1, strategy="server")
    run.write(0, "link", interface="lo", link_bits=None, probe_bits=1e10, latency_seconds=1e-5)
    assert "The bottleneck is the exchange: " in measure(run).sentence()
    fifth = make(run.folder).answers[4]
    assert fifth.short == "the exchange was, 30.0 % of a step"
    assert "machine" not in fifth.text
    assert "hosts" not in fifth.text


def test_the_largest_part_is_the_bottleneck_when_it_is_avoidable() -> None:
    costs = {"compute": 0.24, "network": 0.26, "input": 0.25, "imbalance": 0.25}
    assert Verdict(costs).is_bottleneck
    assert Verdict(costs).bound_by == "network"
    sentence = Verdict({"compute": 0.4, "network": 0.2, "input": 0.2, "imbalance": 0.2}).sentence()
    assert "Compute-bound" not in sentence
    assert sentence.startswith("No clear bottleneck: 40.0 % of a step is computing.")


def test_a_slow_exchange_is_the_network(tmp_path: Path) -> None:
    run = MadeUp(tmp_path, hosts=TWO)
    run.launch(range(1, 41), phases=lambda rank, step: {**PLAIN, "merge": 0.105})
    bottleneck = measure(run)
    assert bottleneck.name == "network"
    assert bottleneck.cost("network") == pytest.approx(0.105 / 0.2)
    assert "52.5 %" in bottleneck.sentence()


def test_sums_of_batch_norm_are_distinguished_from_gradients(tmp_path: Path) -> None:
    """Half as many bytes of gradients would not make the sums shorter."""
    run = MadeUp(tmp_path)
    run.config(strategy={"gradients": "fp32"}, batch={"images": 256})
    sums = {"sums": {"count": 38, "seconds": 0.085, "bytes": 20_000}}
    run.launch(range(1, 41), phases=lambda rank, step: {**PLAIN, "merge": 0.105}, of_step=sums, unit="images")
    bottleneck = measure(run)
    assert (bottleneck.cost("network"), bottleneck.cost("sums")) == pytest.approx((0.105 / 0.2, 0.085 / 0.2))
    assert "synchronizing batch norm and exchanging gradients" in bottleneck.sentence()
    report = make(run.folder)
    assert "Of this, synchronizing batch norm takes 42.5 % of a step" in report.answers[4].text
    assert "and gradients take 10.0 %." in report.answers[4].text
    assert (
        "at 261 Mbit/s while gradients are in flight" in report.answers[4].text
    )  # 980,000 bytes in 20 ms + 10 ms hidden
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
    bottleneck = measure(run)
    assert bottleneck.name == "imbalance: worker 2"
    assert bottleneck.steady
    assert bottleneck.slowest_share == 1.0
    assert bottleneck.cost("network") == pytest.approx(0.005 / 0.160)
    assert bottleneck.cost("imbalance") == pytest.approx(0.060 / 0.160)  # against the other three
    assert "worker 2" in bottleneck.sentence()


def test_imbalance_is_not_steady_when_the_slowest_worker_varies(tmp_path: Path) -> None:
    def phases(rank: int, step: int) -> Phases:
        return {**PLAIN, "backward": 0.190} if step % 2 == rank else {**PLAIN, "merge": 0.145}

    run = MadeUp(tmp_path)
    run.launch(range(1, 46), phases=phases)
    bottleneck = measure(run)
    assert bottleneck.name == "imbalance", "no worker is blamed"
    assert not bottleneck.steady
    assert bottleneck.slowest_share == pytest.approx(0.5)
    assert "The slowest worker varies." in bottleneck.sentence()


def test_one_worker_with_late_input_is_input_and_not_imbalance(tmp_path: Path) -> None:
    def phases(rank: int, step: int) -> Phases:
        return {**PLAIN, "input": 0.050} if rank == 1 else {**PLAIN, "merge": 0.055}

    run = MadeUp(tmp_path)
    run.launch(range(1, 41), phases=phases)
    bottleneck = measure(run)
    assert bottleneck.name == "input"
    assert bottleneck.cost("input") == pytest.approx(0.050 / 0.150)
    assert bottleneck.cost("imbalance") == pytest.approx(0.0, abs=1e-9)


def test_small_costs_leave_a_step_compute_bound(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 41))
    bottleneck = measure(run)
    assert bottleneck.name == "compute"
    assert bottleneck.cost("compute") == pytest.approx(0.95)
    assert bottleneck.sentence() == (
        "Compute-bound: 95.0 % of a step is computing; exchanging gradients between processes is next with 5.0 %."
    )


def test_the_parts_add_up_to_the_step_of_the_last_worker(tmp_path: Path) -> None:
    def phases(rank: int, step: int) -> Phases:
        own = {**PLAIN, "forward": 0.04 + 0.01 * rank + 0.001 * (step % 5), "input": 0.002 * (step % 3)}
        return own | {"merge": 0.2 - sum(own.values())}

    run = MadeUp(tmp_path)
    run.launch(range(1, 61), workers=3, phases=phases)
    bottleneck = measure(run)
    assert bottleneck.compute + bottleneck.imbalance + bottleneck.input + bottleneck.network == pytest.approx(0.195)
    assert bottleneck.step == pytest.approx(0.195)


def test_warmup_steps_do_not_count(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 41), phases=lambda rank, step: {**PLAIN, "merge": 5.0} if step <= 5 else PLAIN)
    assert measure(run).name == "compute"


def test_one_worker_alone_has_no_network_and_no_imbalance(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 21), workers=1, phases=lambda rank, step: {**PLAIN, "merge": 0.0})
    bottleneck = measure(run)
    assert bottleneck.name == "compute"
    assert bottleneck.cost("network") == bottleneck.cost("imbalance") == 0.0
    assert bottleneck.sentence() == "Compute-bound: 100 % of a step is computing."


def test_workers_that_do_not_step_together_are_averaged(tmp_path: Path) -> None:
    run = MadeUp(tmp_path, scope="worker")
    run.launch(range(1, 41), phases=lambda rank, step: {**PLAIN, "merge": 0.0 if rank == 0 else 0.1})
    bottleneck = measure(run)
    assert not bottleneck.lockstep
    assert bottleneck.network == pytest.approx(0.05)


def test_a_run_of_warmup_only_has_no_verdict(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 5))
    assert find_bottleneck(Record.open(run.folder)) is None
