"""The verdict of `lockstep prove`, on made-up trials."""

from pathlib import Path

import pytest

from lockstep.lab.prove import judge
from lockstep.lab.trial import Trial


def make_trials(*seconds: float, scope: str = "global") -> list[Trial]:
    """Returns one trial with a worker for each of `seconds`, which is the time of all its steps."""
    scopes = {"scope": scope}
    return [
        Trial(
            Path(), [[{"step": n, "seconds": own, "warmup": n < 3} | scopes for n in range(1, 13)] for own in seconds]
        )
    ]


@pytest.mark.parametrize(
    ("without", "free", "bottleneck"),
    [
        (0.10, 0.10, "compute"),
        (0.07, 0.10, "network"),
        (0.10, 0.07, "input"),
        (0.12, 0.07, "input"),
        (0.134, 0.07, "not proven"),
        (0.095, 0.115, "not proven"),
    ],
)
def test_nothing_is_proven_by_trials_that_vary_more_than_anything_costs(
    without: float, free: float, bottleneck: str
) -> None:
    alone = {"full": make_trials(0.10, 0.10), "alone": make_trials(0.09)}
    proof = judge(alone | {"communication": make_trials(without, without), "input": make_trials(free, free)}, 2)
    assert proof.bottleneck == bottleneck
    assert ("vary more than anything costs" in proof.sentence) == (bottleneck == "not proven")
    assert (proof.verdict == "Nothing is proven.") == (bottleneck == "not proven")


@pytest.mark.parametrize(
    ("without", "link", "verdict"),
    [
        (
            0.088,
            None,
            "Compute-bound: 88.0 % of a step is computing. The largest avoidable cost is exchanging gradients between "
            "processes (12.0 %).",
        ),
        (
            0.07,
            None,
            "The bottleneck is the exchange between processes: 30.0 % of a step goes to exchanging gradients, 70.0 % to "
            "computing.",
        ),
        (
            0.07,
            "1gbit",
            "The bottleneck is the network: 30.0 % of a step goes to exchanging gradients, 70.0 % to computing.",
        ),
        (
            0.095,
            None,
            "Compute-bound: 95.0 % of a step is computing; exchanging gradients between processes is next with 5.0 %.",
        ),
        (0.102, None, "Compute-bound: 100 % of a step is computing."),
    ],
)
def test_a_proof_uses_the_words_of_a_report(without: float, link: str | None, verdict: str) -> None:
    full = make_trials(0.10, 0.10)
    trials = {"full": full, "communication": make_trials(without, without), "input": full, "alone": make_trials(0.09)}
    proof = judge(trials, 2, link)
    assert proof.verdict == verdict
    assert proof.bottleneck == ("network" if "bottleneck" in verdict else "compute")


def test_costs_that_count_time_twice_leave_the_share_of_computing_open() -> None:
    """The input of worker 1 is late: without communication it is late too, which looks like imbalance."""
    found = {"full": make_trials(0.2, 0.2), "communication": make_trials(0.05, 0.2), "input": make_trials(0.05, 0.05)}
    proof = judge(found | {"alone": make_trials(0.05)}, 2)
    assert sum(proof.costs.values()) == pytest.approx(1.5)
    assert "computing" not in proof.verdict
    assert "all costs add up to 150% of a step, so they overlap or the trials vary too much" in proof.sentence


@pytest.mark.parametrize(("scope", "bottleneck"), [("global", "imbalance: worker 1"), ("worker", "compute")])
def test_imbalance_costs_nothing_where_workers_do_not_step_together(scope: str, bottleneck: str) -> None:
    trials = {name: make_trials(0.10, 0.20, scope=scope) for name in ("full", "communication", "input")}
    if scope == "global":
        trials["full"] = trials["input"] = make_trials(0.20, 0.20)
    assert judge(trials | {"alone": make_trials(0.09)}, 2).bottleneck == bottleneck
