"""Predictions of steps: against measurements, by hand, and by what must always hold."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.errors import LockstepError
from lockstep.lab.plan.cluster import load_cluster, parse_link
from lockstep.lab.plan.costs import LinkModel, Wiring
from lockstep.lab.plan.planned_job import STRATEGIES, Choice, PlannedJob
from lockstep.lab.plan.predict import USUAL, make_plan, recommend
from lockstep.lab.plan.profile import Point, Profile
from lockstep.lab.plan.step_model import Forecast, forecast
from planning import make_profile

GIGABIT = LinkModel("1gbit", 125e6)


def predict(choice: Choice, workers: float = 2, job: PlannedJob | None = None, link: LinkModel = GIGABIT) -> Forecast:
    return forecast(
        job or PlannedJob(make_profile(), 1000, True), choice, Wiring(link), np.array([workers]), (0.0, 0.0, 0.0)
    )


@pytest.mark.parametrize(
    ("choice", "measured"),
    [
        (Choice("allreduce"), 2.15),
        (Choice("allreduce", "bf16"), 1.12),
        (Choice("allreduce", "powersgd", rank=1), 0.69),
        (Choice("allreduce", "powersgd", rank=32), 1.02),
        (Choice("replicas"), 0.34),
    ],
)
def test_predictions_match_steps_measured_over_a_gigabit_within_a_tenth(choice: Choice, measured: float) -> None:
    """59 million parameters between two hosts, 0.34 s of computing."""
    job = PlannedJob(make_profile(59, forward=0.1, backward=0.2, update=0.04), 1000, True)
    assert predict(choice, 2, job, parse_link("1gbit")).step[0] == pytest.approx(measured, rel=0.1)


def test_an_all_reduce_matches_the_calculation_by_hand() -> None:
    """240 MB in buckets of 24 MB (six layers reach 25 MiB with a seventh: 28 MB), of which the first is ready after 7/60 of
    the backward pass."""
    prediction = predict(Choice("allreduce"))
    assert prediction.computing[0] == pytest.approx(0.34)
    assert prediction.exposed[0] == pytest.approx(0.2 * 7 / 60 + 240e6 / 125e6 - 0.2, abs=1e-6)
    assert prediction.bytes_sent[0] == 240e6


def test_a_colocated_server_matches_the_calculation_by_hand() -> None:
    """Two halves of 120 MB in packets of 24 MB; the second half of the model is ready first. Each server receives its half
    from one other worker and sends it back to one. The first packet of the first half is ready after 36 of 60 layers."""
    prediction = predict(Choice("server"))
    pushed = 0.2 * 36 / 60 + 120e6 / 125e6
    assert prediction.exposed[0] == pytest.approx(pushed - 0.2 + 120e6 / 125e6, abs=1e-6)
    assert prediction.computing[0] == pytest.approx(0.3 + 0.04 / 2)


def test_a_dedicated_server_takes_all_gradients_over_its_one_link() -> None:
    prediction = predict(Choice("server", servers=1), 4)
    assert prediction.exposed[0] == pytest.approx(0.2 * 6 / 60 + 4 * 240e6 / 125e6 - 0.2 + 4 * 240e6 / 125e6, rel=0.01)


def test_workers_that_step_together_wait_for_batch_norm_sums() -> None:
    """Three sums of 125 kB: a millisecond each, and two latencies."""
    link = LinkModel("1gbit", 125e6, latency_seconds=0.001)
    plain, norm = (PlannedJob(replace(make_profile(), sums=sums), 1000, True) for sums in ((), (125_000,) * 3))

    def more(choice: Choice, workers: float) -> float:
        return float(predict(choice, workers, norm, link).step[0] - predict(choice, workers, plain, link).step[0])

    for choice in (Choice("allreduce"), Choice("allreduce", "powersgd"), Choice("sharded"), Choice("server")):
        assert more(choice, 2) == pytest.approx(3 * (0.001 + 2 * 0.001))
        assert more(choice, 1) == 0
    for choice in (Choice("local"), Choice("replicas"), Choice("server", mode="async")):
        assert more(choice, 2) == 0
    assert not any(row.accumulate > 1 for row in make_plan(norm, load_cluster("office"), [4]).rows), (
        "training would refuse it"
    )
    assert any(row.accumulate > 1 for row in make_plan(plain, load_cluster("office"), [4]).rows)
    with pytest.raises(LockstepError, match="no micro-batches"):
        make_plan(norm, load_cluster("office"), [4], [Choice(accumulate=4)])
    sent = [predict(Choice("allreduce"), 2, job, link).bytes_sent[0] for job in (plain, norm)]
    assert sent[1] - sent[0] == 3 * 125_000


def test_local_workers_synchronize_once_per_round() -> None:
    one, ten = (predict(Choice("local", every=every)) for every in (1, 10))
    assert ten.exposed[0] == pytest.approx(240e6 / 125e6 / 10)
    assert one.exposed[0] == pytest.approx(10 * ten.exposed[0])


def test_accumulation_communicates_once_for_all_micro_batches() -> None:
    plain, four = predict(Choice()), predict(Choice(accumulate=4))
    assert four.words[0] == 4 * plain.words[0]
    assert four.step[0] == pytest.approx(plain.step[0] + 3 * 0.3)
    assert four.bytes_sent[0] == plain.bytes_sent[0]


def test_sharded_sends_the_documented_bytes() -> None:
    """fp32: 12 bytes a parameter times (W-1)/W, when layers are most of the model, but for the last one's second gather."""
    assert predict(Choice("sharded")).bytes_sent[0] == pytest.approx((12 * 60e6 - 4e6) / 2)


def test_an_async_server_is_bound_by_its_link_when_many_push_to_it() -> None:
    few, many = (predict(Choice("server", mode="async", servers=1), count) for count in (2, 64))
    assert many.step[0] > 10 * few.step[0]
    assert many.words_per_second[0] == pytest.approx(64 * 1000 / (64 * 240e6 / 125e6), rel=0.1)


def test_workers_divide_a_global_batch_but_not_a_batch_per_worker() -> None:
    shared, own = PlannedJob(make_profile(), 1000), PlannedJob(make_profile(), 1000, per_worker=True)
    assert predict(Choice("replicas"), 4, shared).computing[0] == pytest.approx(0.3 / 4 + 0.04)
    assert predict(Choice("replicas"), 4, own).words[0] == 4000


def test_two_batch_sizes_separate_the_fixed_cost_of_a_step() -> None:
    points = (Point(250, 0.05, 0.1, 0.04, 0.0), Point(1000, 0.11, 0.22, 0.04, 0.0))
    known = Profile(**vars(make_profile()) | {"points": points})
    forward, backward = known.compute_seconds(np.array([250.0, 500.0, 1.0]))
    assert forward[:2] == pytest.approx([0.05, 0.07])
    assert backward[2] > 0


def test_computing_is_slower_on_shared_cores_and_while_sending() -> None:
    job = PlannedJob(make_profile(), 1000, True, cores=2, contention={1: 1.0, 2: 1.1, 4: 2.2})
    assert predict(Choice("replicas"), 3, job).computing[0] == pytest.approx(1.65 * 0.34)
    assert predict(Choice("replicas"), 8, job).computing[0] == pytest.approx(4.4 * 0.34)
    busy = LinkModel("busy", 125e6, host_seconds_per_byte=2e-9)
    assert predict(Choice(), 4, job, busy).step[0] > predict(Choice(), 4, job).step[0]


def test_uneven_workers_wait_for_the_slowest() -> None:
    steady, uneven = (PlannedJob(make_profile(spread=spread), 1000, True) for spread in (0.0, 0.1))
    assert predict(Choice(), 16, steady).waiting[0] == 0
    assert predict(Choice(), 16, uneven).waiting[0] == pytest.approx(0.1 * 1.77 * 0.3, rel=0.02)
    assert predict(Choice("local", every=100), 16, uneven).waiting[0] < 0.006
    assert predict(Choice("replicas"), 16, uneven).waiting[0] == 0


@settings(deadline=None)
@given(
    st.sampled_from([choice for choice in USUAL if choice.strategy != "replicas"] + [Choice("server", servers=2)]),
    st.integers(2, 200),
    st.floats(1e5, 1e11),
    st.floats(0, 0.01),
)
def test_a_faster_link_never_makes_a_step_longer_and_no_step_is_shorter_than_its_computing(
    choice: Choice, workers: int, rate: float, latency: float
) -> None:
    slow = predict(choice, workers, link=LinkModel("slow", rate, latency))
    fast = predict(choice, workers, link=LinkModel("fast", 2 * rate, latency / 2))
    assert fast.step[0] <= slow.step[0] * (1 + 1e-9)
    assert fast.step[0] >= fast.computing[0] * (1 - 1e-9)
    assert slow.exposed[0] >= 0
    assert slow.overlapped[0] >= 0


@settings(deadline=None)
@given(st.integers(1, 300))
def test_half_the_bytes_never_take_longer(workers: int) -> None:
    assert predict(Choice("allreduce", "bf16"), workers).step[0] <= predict(Choice(), workers).step[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_worker_exchanges_nothing(strategy: str) -> None:
    prediction = predict(Choice(strategy), 1)
    assert (prediction.exposed[0], prediction.bytes_sent[0], prediction.waiting[0]) == (0, 0, 0)
    assert prediction.step[0] == pytest.approx(0.34)


def test_an_interval_contains_its_prediction_and_is_wide_for_a_device_that_was_not_measured() -> None:
    job = PlannedJob(make_profile(), 1000, True)
    known, scaled = (make_plan(job, load_cluster(name), [4], [Choice()]).rows[0] for name in ("office", "v100-nodes"))
    for row in (known, scaled):
        assert row.low < row.step_seconds < row.high
    replicas = [
        make_plan(job, load_cluster(name), [4], [Choice("replicas")]).rows[0] for name in ("office", "v100-nodes")
    ]
    assert replicas[1].high / replicas[1].low > 1.5 > replicas[0].high / replicas[0].low


def test_thousands_of_workers_are_planned_at_once() -> None:
    begin = time.process_time()
    plan = make_plan(PlannedJob(make_profile(), 1000, True), load_cluster("office"), range(1, 4097))
    assert time.process_time() - begin < 10.0
    assert len(plan.rows) == 4096 * len(USUAL)


def test_a_plan_with_steps_predicts_time_and_dollars() -> None:
    row = make_plan(
        PlannedJob(make_profile(), 1000, True), load_cluster("v100-nodes"), [2], [Choice("replicas")], steps=1000
    ).rows[0]
    assert row.seconds == pytest.approx(1000 * row.step_seconds)
    assert row.dollars == pytest.approx(2 * 3.06 * 340 / 3600, rel=0.01)


def test_on_a_slow_link_the_plan_recommends_faster_settings_and_names_their_effects() -> None:
    plan = make_plan(PlannedJob(make_profile(), 1000, True), load_cluster("office"), [8])
    (sentence,) = plan.recommendations
    assert sentence.startswith("On 1gbit with 8 workers, instead of ")
    for text in (
        "allreduce bf16 ",
        "allreduce bf16 accumulation 4",
        "fewer and larger updates",
        "local every 50",
        "drift apart",
    ):
        assert text in sentence


def test_on_a_fast_link_plain_allreduce_is_enough() -> None:
    plan = make_plan(PlannedJob(make_profile(), 1000, True), load_cluster("office"), [4], links=[parse_link("100gbit")])
    assert plan.recommendations == [recommend(plan.rows, "100gbit", 4)[0]]
    assert "plain allreduce is enough" in plan.recommendations[0]


def test_a_plan_warns_first_when_one_worker_alone_is_faster() -> None:
    links = [parse_link("1mbit")]
    plan = make_plan(PlannedJob(make_profile(), 1000, True), load_cluster("office"), [4], [Choice("allreduce")], links)
    assert plan.recommendations[0].startswith("Do not use 4 workers on 1mbit: one worker alone is ")
    assert plan.rows[0].speedup < 0.1


def test_prices_are_mentioned_only_where_they_are_shown() -> None:
    def list_notes(steps: int | None) -> str:
        job = PlannedJob(make_profile(), 1000, True)
        return " ".join(make_plan(job, load_cluster("v100-nodes"), [2], [Choice("replicas")], steps=steps).notes)

    assert "Prices" in list_notes(1000)
    assert "Prices" not in list_notes(None)
    assert "The plan assumes train.precision=fp32." in list_notes(None)


def test_the_table_shows_a_range_of_step_times_that_is_never_negative() -> None:
    from rich.console import Console

    from lockstep.cli.plan_tables import list_tables

    plan = make_plan(PlannedJob(make_profile(), 1000, True), load_cluster("v100-nodes"), [2], steps=1000)
    console = Console(width=80)
    with console.capture() as shown:
        console.print(list_tables(plan)[0])
    row = plan.rows[0]
    assert f"{1e3 * row.low:.0f}-{1e3 * row.high:.0f}" in shown.get()
    assert "+-" not in shown.get()


def test_a_strategy_is_written_as_in_a_study() -> None:
    assert Choice.parse("allreduce:gradients=bf16:accumulate=4") == Choice("allreduce", "bf16", accumulate=4)
    assert Choice.parse("server:mode=async:servers=2").name == "server async, 2 servers"


@pytest.mark.parametrize(
    "word",
    [
        "allreduse",
        "allreduce:gradients=int3",
        "local:every=0",
        "local:every=x",
        "server:mode=later",
        "local:gradients=powersgd",
        "allreduce:bucket",
        "",
    ],
)
def test_what_is_not_a_strategy_is_refused_with_a_remedy(word: str) -> None:
    with pytest.raises(LockstepError) as refused:
        Choice.parse(word)
    assert refused.value.code == 2
    assert refused.value.remedy


@pytest.mark.parametrize("workers", [[], [0], [10**6]])
def test_worker_counts_out_of_range_are_refused(workers: list[int]) -> None:
    with pytest.raises(LockstepError):
        make_plan(PlannedJob(make_profile(), 1000), load_cluster("office"), workers)
