"""What `lockstep prove` calls proven, on made-up trials and on trials resampled from recorded steps."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from proofs import count_proven, read_recorded

from lockstep.errors import LockstepError
from lockstep.explain.ablation_proof import CostRange, JournalCost
from lockstep.explain.reading.steps import Column
from lockstep.explain.report import make, render_text
from lockstep.lab.proof_decision import Circumstances, decide, find_student_quantile
from lockstep.lab.prove import COMPARED, ORDERS, Proof, judge, prove
from lockstep.lab.trial import Trial
from madeup import PLAIN, MadeUp

AGREES = Circumstances()


def make_trials(rounds: int, *seconds: float, spread: float = 0.01, scope: str = "global") -> list[Trial]:
    """Returns a trial per round with a worker for each of `seconds`. A round is longer or shorter by up to `spread`."""
    factors = 1 + spread * np.cos(2.0 * np.arange(rounds) + len(seconds) + 10 * seconds[0])
    return [
        Trial(
            Path(),
            [
                [
                    {
                        "step": n,
                        "seconds": own * factor,
                        "warmup": n < 6,
                        "scope": scope,
                        "words": {"source": 9, "target": 10},
                    }
                    for n in range(1, 16)
                ]
                for own in seconds
            ],
        )
        for factor in factors
    ]


def prove_made_up(
    full: Sequence[float],
    without: Sequence[float],
    free: Sequence[float],
    known: Circumstances = AGREES,
    rounds: int = 6,
    spread: float = 0.01,
    link: str | None = None,
) -> Proof:
    kinds = {"full": full, "communication": without, "input": free}
    trials = {name: make_trials(rounds, *seconds, spread=spread) for name, seconds in kinds.items()}
    return judge(trials | {"alone": make_trials(2, 0.09)}, known, len(full), link)


SAME = (0.10, 0.10)
SLOW_EXCHANGE = (SAME, (0.07, 0.07), SAME)


def test_noise_is_not_called_a_proof_in_a_thousand_trials_without_a_difference() -> None:
    """The steps are of real runs: one beside other work, one beside a program that kept a core busy as well."""
    for steps in read_recorded().values():
        assert count_proven(steps, 1000, rounds=4, length=15, block=5) <= 10
    assert count_proven(read_recorded()["disturbed"], 300, rounds=6, length=15, block=15, seed=1) <= 3


def test_a_few_noisy_steps_prove_nothing() -> None:
    """Input seemed to cost 62 %, where the journal of the run had measured 0.2 %."""
    journal = {"input": JournalCost(0.002, 0.001)}
    proof = prove_made_up(SAME, SAME, (0.038, 0.038), Circumstances(0.0, journal))
    assert proof.bottleneck == "not proven"
    assert proof.costs["input"] == pytest.approx(0.62, abs=0.01)
    assert len(proof.contradictions) == 1
    assert "but the journal measured 0.2 %" in proof.contradictions[0]
    assert "A proof needs trials and journal to agree" in proof.sentence


def test_a_contradiction_about_a_smaller_cost_does_not_veto_a_proof() -> None:
    """Worker 1 takes three times as long; the trials with free input disagree with the journal."""
    full, without, free = (0.30, 0.30), (0.10, 0.30), (0.22, 0.22)
    journal = {
        "input": JournalCost(0.003, 0.001),
        "imbalance": JournalCost(0.66, 0.02),
        "network": JournalCost(0.0, 0.0),
    }
    proof = prove_made_up(full, without, free, Circumstances(0.0, journal))
    assert proof.bottleneck == "imbalance: worker 1"
    assert len(proof.contradictions) == 1
    assert "The trials say that the input costs 2" in proof.contradictions[0]
    assert "input" not in proof.sentence.partition(": ")[2].replace("with free input", "")


def test_a_contradiction_about_a_larger_cost_vetoes_a_proof() -> None:
    """The journal says that input takes most of a step, and the trials find nothing of it."""
    journal = {"input": JournalCost(0.6, 0.01), "network": JournalCost(0.3, 0.01)}
    proof = prove_made_up(*SLOW_EXCHANGE, Circumstances(0.0, journal))
    assert proof.bottleneck == "not proven"
    assert "A proof needs trials and journal to agree" in proof.sentence


@pytest.mark.parametrize(
    ("without", "free", "bottleneck"),
    [(SAME, SAME, "not proven"), ((0.07, 0.07), SAME, "network"), (SAME, (0.07, 0.07), "input")],
)
def test_a_cost_is_proven_when_the_rounds_agree_on_it(
    without: Sequence[float], free: Sequence[float], bottleneck: str
) -> None:
    proof = prove_made_up(SAME, without, free)
    assert proof.bottleneck == bottleneck
    assert bool(proof.needed) == (bottleneck == "not proven")
    if bottleneck != "not proven":
        interval = proof.intervals[bottleneck]
        assert interval is not None
        assert interval[0] < 0.30 < interval[1]
        assert "costs 30" in proof.sentence or "costs 29" in proof.sentence


def test_without_a_cost_the_proof_says_how_large_it_could_be() -> None:
    (needed,) = prove_made_up(SAME, SAME, SAME).needed
    assert needed.startswith("No cost reaches 5 %: none is more than ")


def test_rounds_that_vary_need_more_rounds() -> None:
    proof = prove_made_up(*SLOW_EXCHANGE, rounds=3, spread=0.15)
    assert proof.bottleneck == "not proven"
    assert "rounds would be needed" in proof.sentence or "use more --steps" in proof.sentence
    one = prove_made_up(*SLOW_EXCHANGE, rounds=1)
    assert one.bottleneck == "not proven"
    assert one.intervals["network"] is None
    assert "use --rounds 6" in one.sentence
    json.dumps(one.as_dict(), allow_nan=False)


def test_other_programs_keep_trials_from_proving_anything() -> None:
    busy = prove_made_up(*SLOW_EXCHANGE, known=Circumstances(0.45))
    assert busy.bottleneck == "not proven"
    assert "Other programs used 45 % of the cores during the trials" in busy.sentence
    unknown = prove_made_up(*SLOW_EXCHANGE, known=Circumstances(None))
    assert "It is not known whether other programs used the machine." in unknown.needed


@pytest.mark.parametrize(
    ("without", "link", "verdict"),
    [
        (
            0.088,
            None,
            "Compute-bound: 88.{} % of a step is computing. The largest avoidable cost is exchanging gradients",
        ),
        (0.07, None, "The bottleneck is the exchange between processes: "),
        (0.07, "1gbit", "The bottleneck is the network: "),
        (0.099, None, "Nothing is proven."),
    ],
)
def test_a_proof_uses_the_words_of_a_report(without: float, link: str | None, verdict: str) -> None:
    proof = prove_made_up(SAME, (without, without), SAME, link=link)
    assert proof.verdict.startswith(verdict.partition("{")[0])
    assert proof.bottleneck == (
        "network" if "bottleneck" in verdict else "compute" if "88" in verdict else "not proven"
    )


def test_a_worker_that_is_slow_in_every_round_is_named() -> None:
    proof = prove_made_up((0.20, 0.20), (0.10, 0.20), (0.20, 0.20))
    assert proof.bottleneck == "imbalance: worker 1"
    assert "waiting for worker 1 costs 50" in proof.sentence or "waiting for worker 1 costs 49" in proof.sentence


def test_imbalance_costs_nothing_where_workers_do_not_step_together() -> None:
    proof = prove_made_up((0.10, 0.20), (0.10, 0.20), (0.10, 0.20), Circumstances(lockstep=False))
    assert proof.costs["imbalance"] == 0.0
    assert proof.bottleneck == "not proven"


def make_rounds(draw: np.random.Generator, excess: Column) -> list[dict[str, Column]]:
    """Returns six rounds of noisy steps. `excess` [workers, steps] is what the work of each worker adds."""
    noise = [{kind: 0.1 * np.exp(0.3 * draw.standard_normal(excess.shape)) for kind in COMPARED} for _ in range(6)]
    return [
        {"communication": one["communication"] + excess, "full": one["full"], "input": one["full"]} for one in noise
    ]


def test_the_slowest_of_noisy_steps_is_not_imbalance_but_uneven_work_is() -> None:
    draw = np.random.default_rng(0)
    noisy = decide(make_rounds(draw, np.zeros((2, 60))), AGREES)
    assert noisy.costs["imbalance"].low < 0 < noisy.costs["imbalance"].high
    uneven = np.zeros((2, 60))
    uneven[np.arange(60) % 2, np.arange(60)] = 0.3  # the worker with more to do varies, but not between rounds
    known = decide(make_rounds(draw, uneven), AGREES)
    assert known.costs["imbalance"].low > 0
    assert known.slowest is None


def test_free_input_of_shorter_batches_saves_nothing() -> None:
    trials = {name: make_trials(6, *SAME) for name in ("full", "communication")}
    short = make_trials(6, 0.05, 0.05)
    for trial in short:
        for lines in trial.steps:
            for line in lines:
                line["words"] = {"source": 5, "target": 5}
    proof = judge(trials | {"input": short, "alone": trials["full"]}, AGREES, 2)
    assert proof.costs["input"] == pytest.approx(0.0, abs=0.03)


def test_every_kind_of_trial_takes_every_place_equally_often() -> None:
    for rounds in (ORDERS[:3], ORDERS):
        for place in range(3):
            assert sorted(order[place] for order in rounds) == sorted([0, 1, 2] * (len(rounds) // 3))
    assert len(set(ORDERS)) == len(ORDERS) == 6


@pytest.mark.parametrize(
    ("probability", "freedom", "quantile"),
    [(0.975, 1, 12.706), (0.975, 5, 2.571), (0.9995, 2, 31.599), (0.995, 30, 2.750)],
)
def test_quantiles_are_those_of_the_tables(probability: float, freedom: int, quantile: float) -> None:
    assert find_student_quantile(probability, freedom) == pytest.approx(quantile, rel=1e-3)


def write_run_with_proof(folder: Path, proof: Proof | dict[str, object]) -> Path:
    """Writes a run whose journal says: 5 % of a step is exchange, nothing is input."""
    run = MadeUp(folder)
    run.launch(range(1, 41), phases=lambda rank, step: PLAIN)
    facts = proof.as_dict() if isinstance(proof, Proof) else proof
    (folder / "proof.json").write_text(json.dumps(facts))
    return folder


def test_a_report_shows_journal_and_trials_where_they_contradict(tmp_path: Path) -> None:
    report = make(write_run_with_proof(tmp_path, prove_made_up(SAME, SAME, (0.038, 0.038))))
    assert report.bottleneck is not None
    assert report.verdict[-1].startswith(report.bottleneck.sentence())
    assert "The trials of `lockstep prove` contradict this: The trials say that the input costs 6" in report.verdict[-1]
    assert "The bottleneck is" not in report.verdict[-1]
    assert "Ablation: nothing is proven" in render_text(report)
    assert "Proven by ablation" not in render_text(report)


def test_a_report_adds_a_proof_that_agrees_to_the_sentence_of_the_journal(tmp_path: Path) -> None:
    proof = prove_made_up(SAME, (0.092, 0.092), SAME)
    report = make(write_run_with_proof(tmp_path, proof))
    assert report.bottleneck is not None
    assert report.verdict[-1] == f"{report.bottleneck.sentence()} Proven by ablation: {proof.sentence}."


def test_a_proof_of_an_earlier_version_proves_nothing(tmp_path: Path) -> None:
    old = {"step_seconds": 0.1, "costs": {"network": 0, "input": 0.62, "imbalance": 0}, "bottleneck": "input"}
    report = make(
        write_run_with_proof(tmp_path, old | {"sentence": "step 100 ms", "verdict": "The bottleneck is the input"})
    )
    assert report.bottleneck is not None
    assert report.verdict[-1] == report.bottleneck.sentence()
    assert "trials of an earlier version have no interval: step 100 ms." in render_text(report)


def test_an_interval_is_at_most_a_step_to_both_sides() -> None:
    rounds = [
        {"full": np.full((2, 9), full), "communication": np.full((2, 9), 1.0), "input": np.full((2, 9), 1.0)}
        for full in (0.5, 2.0)
    ]
    for cost in decide(rounds, AGREES).costs.values():
        assert -1.0 <= cost.low <= cost.value <= cost.high <= 1.0
    assert decide(rounds, AGREES).costs["network"].describe("input").endswith("vary too much for an interval)")


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.08, 0.16, "(8.0 % to 16.0 %)"),
        (0.08, 0.99999, "(at least 8.0 %, no upper bound)"),
        (-1.0, 0.16, "(at most 16.0 %)"),
    ],
)
def test_ends_that_bound_nothing_are_not_printed(low: float, high: float, text: str) -> None:
    assert CostRange(0.12, low, high).describe("input") == f"input costs 12.0 % of a step {text}"


def test_a_missing_folder_and_a_wrong_link_are_refused_before_any_round(tmp_path: Path) -> None:
    said = list[str]()
    with pytest.raises(LockstepError, match="does not exist"):
        prove(tmp_path / "nowhere", say=said.append)
    MadeUp(tmp_path).launch(range(1, 9))
    with pytest.raises(LockstepError, match="'fast' is not the rate of a link"):
        prove(tmp_path, link="fast", say=said.append)
    assert said == []
