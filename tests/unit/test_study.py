"""The arithmetic of a study: speed is measured by the clock, and lost speed-up is attributed to the right causes."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lockstep.config import RunConfig
from lockstep.errors import LockstepError
from lockstep.lab.study.causes import NAMES, Attribution, attribute
from lockstep.lab.study.cells import Cell, check_links, complete_strategy
from lockstep.lab.study.compare_studies import compare
from lockstep.lab.study.results import analyse
from lockstep.lab.study.sample import PARTS, TrialSample, measure, take_median
from lockstep.lab.study.study_file import lock_folder, open_study, read_study
from lockstep.lab.study.study_page import write_study
from studies import GAP, MATRIX, PLAIN, WARMUP, Phases, always, make_journals, make_study


def measure_alone() -> TrialSample:
    return measure(make_journals(1, lambda rank, step: PLAIN), WARMUP)


def measure_replicas(workers: int = 2, slower: float = 0.0) -> TrialSample:
    return measure(make_journals(workers, lambda r, s: PLAIN | {"forward": 0.04 + slower}, "worker"), WARMUP)


def attribute_phases(phases: Phases, workers: int = 2, slower: float = 0.0, **more: Any) -> Attribution:
    return attribute(
        measure(make_journals(workers, phases), WARMUP), measure_replicas(workers, slower), measure_alone(), **more
    )


def check_sum(attribution: Attribution) -> bool:
    return sum(attribution.by_cause.values()) + attribution.rest == pytest.approx(attribution.lost, abs=1e-9)


def test_speed_is_words_per_second_of_wall_time_without_warmup() -> None:
    def slow_start(rank: int, step: int) -> dict[str, float]:
        return PLAIN | {"forward": 5.0} if step <= WARMUP else PLAIN

    sample = measure(make_journals(2, slow_start), WARMUP)
    assert sample.step == pytest.approx(0.1 + GAP)
    assert sample.words_per_second == pytest.approx(200 / (0.1 + GAP))
    assert sample.total == pytest.approx(20 * (0.1 + GAP))
    assert sample.parts["other"] == pytest.approx(GAP)
    assert sum(sample.parts.values()) == pytest.approx(sample.step)
    assert set(sample.parts) == set(PARTS)


def test_independent_workers_add_up_and_their_parts_sum_to_a_step() -> None:
    """Worker 1 takes twice as long; neither waits for the other."""
    sample = measure(make_journals(2, lambda r, s: PLAIN | {"forward": 0.04 + 0.102 * r}, "worker"), WARMUP)
    assert sample.words_per_second == pytest.approx(100 / 0.102 + 100 / 0.204)
    assert sample.total == pytest.approx(20 * sample.step), "not only while both were busy"
    assert sum(sample.parts.values()) == pytest.approx(sample.step)
    assert sample.parts["work"] == pytest.approx(0.09), "a fair share is that of the other worker"
    assert sample.parts["imbalance"] == pytest.approx(2 * 100 / sample.words_per_second - 0.102)
    assert sample.parts["other"] == pytest.approx(GAP)


def test_without_communication_workers_may_run_one_after_the_other() -> None:
    first, second = make_journals(2, lambda rank, step: PLAIN)
    later = [line | {"time": line["time"] + 100.0} for line in second]
    sample = measure([first, later], WARMUP, silent=True)
    assert sample.words_per_second == pytest.approx(200 / (0.1 + GAP))
    assert sample.parts["other"] == pytest.approx(GAP)


def test_synchronizing_local_workers_is_communication_and_waiting_for_them_is_imbalance() -> None:
    """They synchronize every fifth step for 50 ms. Worker 0 waits for worker 1, whose steps are 10 ms longer."""

    def phases(rank: int, step: int) -> dict[str, float]:
        own = PLAIN | {"forward": 0.04 + 0.01 * rank}
        return own | {"merge": 0.05 + 0.05 * (1 - rank)} if step % 5 == 0 else own

    attribution = attribute(measure(make_journals(2, phases, "worker"), WARMUP), measure_replicas(), measure_alone())
    assert check_sum(attribution)
    unit = 2 / (0.1 + GAP + 0.01 + 0.01)
    assert attribution.by_cause["communication"] == pytest.approx(0.01 * unit, rel=0.05)
    assert attribution.by_cause["imbalance"] == pytest.approx(0.01 * unit, rel=0.05)


def test_waiting_for_a_worker_whose_input_is_late_is_input() -> None:
    """As replicas do, which run at most a few steps ahead of each other."""
    sample = measure(make_journals(2, lambda r, s: PLAIN | ({"input": 0.1} if r else {"merge": 0.1}), "worker"), WARMUP)
    assert sample.parts["input"] == pytest.approx(0.1)
    assert sample.parts["imbalance"] == pytest.approx(0.0)
    assert sample.parts["merge"] == pytest.approx(0.0)


def test_asynchronous_workers_do_not_wait_for_each_other() -> None:
    """Asynchronous servers: worker 1 is slower, and each worker takes its own shares."""
    lines = make_journals(2, lambda r, s: PLAIN | {"merge": 0.05, "forward": 0.04 + 0.05 * r}, "worker")
    for rank, worker in enumerate(lines):
        for line in worker:
            line |= {"step": 2 * line["step"] + rank, "part": rank}
    sample = measure(lines, 2 * WARMUP)
    assert sample.parts["merge"] == pytest.approx(0.05)
    assert sample.parts["imbalance"] > 0.01
    assert sum(sample.parts.values()) == pytest.approx(sample.step)


def test_the_verdict_reports_input_that_slows_one_worker_alone(tmp_path: Path) -> None:
    assert not any("Even one worker" in sentence for sentence in analyse(make_study(tmp_path)).verdict)
    study = make_study(tmp_path)
    study.trials = [
        replace(trial, sample=replace(trial.sample, phases=trial.sample.phases | {"input": 0.05}))
        for trial in study.trials
    ]
    assert any("Even one worker" in sentence for sentence in analyse(study).verdict)


def test_a_trial_of_warmup_only_is_refused() -> None:
    with pytest.raises(LockstepError, match="too short"):
        measure(make_journals(2, lambda rank, step: PLAIN, steps=5), WARMUP)


@pytest.mark.parametrize(
    ("cause", "phases", "slower"),
    [
        ("communication", lambda r, s: PLAIN | {"merge": 0.1}, 0.0),
        ("contention", lambda r, s: PLAIN | {"forward": 0.14}, 0.1),
        ("input", lambda r, s: PLAIN | {"input": 0.1}, 0.0),
        ("input", lambda r, s: PLAIN | ({"input": 0.1} if r else {"merge": 0.1}), 0.0),
        ("imbalance", lambda r, s: PLAIN | ({"forward": 0.14} if r else {"merge": 0.1}), 0.0),
        ("imbalance", lambda r, s: PLAIN | ({"forward": 0.19} if s % 2 == r else {"merge": 0.15}), 0.05),
        ("communication", lambda r, s: PLAIN | {"backward": 0.15}, 0.0),  # sending takes the cores
        ("update", lambda r, s: PLAIN | {"update": 0.11}, 0.0),
    ],
)
def test_the_largest_cause_is_what_slows_the_workers_down(cause: str, phases: Phases, slower: float) -> None:
    attribution = attribute_phases(phases, slower=slower)
    assert check_sum(attribution)
    assert attribution.is_explained
    assert attribution.largest_cause == cause


def test_a_cause_is_measured_in_units_of_speedup() -> None:
    """A step of twice the length on two workers: no faster than one, all of it lost to the exchange."""
    attribution = attribute_phases(lambda r, s: PLAIN | {"merge": 0.1 + GAP})
    assert attribution.speedup == pytest.approx(1.0)
    assert attribution.by_cause["communication"] == pytest.approx(1.0)
    assert attribution.rest == pytest.approx(0.0, abs=1e-9)


def test_a_servers_update_is_not_counted_twice() -> None:
    phases: Phases = lambda r, s: PLAIN | {"merge": 0.03, "update": 0.0}  # noqa: E731
    attribution = attribute_phases(phases, update_is_remote=True)
    assert attribution.by_cause["update"] == 0.0
    assert attribution.by_cause["communication"] * attribution.speedup == pytest.approx(
        0.02 / (0.1 + GAP) * attribution.speedup**2
    )
    assert check_sum(attribution)


def test_a_small_loss_has_no_cause() -> None:
    assert attribute_phases(lambda r, s: PLAIN | {"merge": 0.001}).largest_cause is None


def test_batches_of_other_sizes_are_compared_per_word() -> None:
    larger = measure(make_journals(2, lambda r, s: {k: 2 * v for k, v in PLAIN.items()}, words=200), WARMUP)
    attribution = attribute(larger, measure_replicas(), measure_alone())
    assert attribution.speedup == pytest.approx(2.0, rel=0.02)
    assert abs(attribution.by_cause["contention"]) < 1e-9
    assert abs(attribution.by_cause["communication"]) < 1e-9


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_parts_of_the_median_round_sum_to_its_step(count: int) -> None:
    rounds = [measure(make_journals(2, partial(always, PLAIN | {"merge": 0.01 * n})), WARMUP) for n in range(count)]
    chosen = take_median(rounds)
    assert sum(chosen.parts.values()) == pytest.approx(chosen.step)
    assert chosen.parts["merge"] == pytest.approx(0.01 * (count - 1) / 2)


def test_every_worker_count_has_its_reference_cells() -> None:
    cells = MATRIX.list_cells()
    assert len(cells) == len(set(cells)) == len({cell.key for cell in cells})
    for batch in (500, 1000):
        assert Cell(1, "alone", "none", batch) in cells
        assert Cell(1, "alone", "none", batch, "input") in cells
        for workers in (2, 4):
            assert [c.link for c in cells if (c.workers, c.strategy_name, c.batch) == (workers, "replicas", batch)] == [
                "none"
            ]
            for link in ("none", "1gbit"):
                assert Cell(workers, "local:every=10", link, batch) in cells
            assert Cell(workers, "allreduce", "none", batch, "input") in cells
            assert Cell(workers, "allreduce", "none", batch, "communication") in cells


def test_a_cell_lists_its_settings() -> None:
    cell = Cell(2, "server:mode=async:servers=1", "none", 500)
    settings = cell.list_overrides("words")
    assert cell.servers == 1
    assert {"batch.words=500", "batch.per=worker", "strategy.name=server", "strategy.mode=async"} <= set(settings)
    assert "strategy.name=auto" in Cell(1, "alone", "none", 500).list_overrides("words")


def make_config(**strategy: Any) -> RunConfig:
    return RunConfig.model_validate({"data": {"grammar": {}}, "batch": {"words": 500}, "strategy": strategy})


def test_a_strategy_is_completed_from_options_and_config() -> None:
    assert complete_strategy("server", make_config(), 2, 20) == "server:servers=2"
    assert complete_strategy("server", make_config(name="server", servers=1), None, 20) == "server:servers=1"
    assert complete_strategy("server", make_config(), None, 20) == "server"
    assert complete_strategy("local", make_config(), None, 20) == "local:every=10"
    assert complete_strategy("local:every=5", make_config(), None, 20) == "local:every=5"
    assert complete_strategy("local", make_config(name="local", every=4), None, 20) == "local:every=4"


@pytest.mark.parametrize(
    "word", ["single", "auto", "local:every=7", "local:every=0", "allreduce:", "server:servers=x", "a:b", "alone"]
)
def test_what_is_not_a_strategy_is_refused(word: str) -> None:
    with pytest.raises(LockstepError) as caught:
        Cell(2, complete_strategy(word, make_config(), None, 20), "none", 1).list_overrides("words")
    assert caught.value.code == 2


def test_links_are_rates_and_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    check_links(["none"], ["resilient"])
    with pytest.raises(LockstepError, match="fast"):
        check_links(["fast"], [])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(LockstepError, match="needs root"):
        check_links(["none", "1gbit"], [])
    monkeypatch.setattr("os.geteuid", lambda: 0)
    check_links(["1.5gbit"], ["allreduce"])
    with pytest.raises(LockstepError, match="resilient"):
        check_links(["1gbit"], ["allreduce", "resilient"])


def test_the_verdict_names_the_largest_cause_of_the_fastest_setting(tmp_path: Path) -> None:
    results = analyse(make_study(tmp_path, strategies=("allreduce",)))
    assert results.cause == "communication"
    assert "4 workers (allreduce)" in results.verdict[0]
    assert NAMES["communication"] in results.verdict[0]
    assert "Independent replicas" in results.verdict[1]
    losses = {row.cell: row.loss for row in results.rows if row.loss is not None}
    assert losses[Cell(2, "replicas", "none", 500)].median.largest_cause is None
    waiting = losses[Cell(2, "allreduce", "none", 500)]
    low, high = waiting.find_spread("communication")
    assert low <= waiting.median.by_cause["communication"] <= high


def test_rounds_that_disagree_about_the_largest_cause_are_reported(tmp_path: Path) -> None:
    study = make_study(tmp_path, strategies=("allreduce",))
    assert "disagree" not in analyse(study).verdict[0]
    late = measure(make_journals(4, lambda rank, step: PLAIN | {"input": 0.05}), WARMUP)
    study.trials = [
        replace(trial, sample=late) if trial.cell.strategy_name == "allreduce" and trial.round == 0 else trial
        for trial in study.trials
    ]
    assert analyse(study).verdict[0].endswith("The rounds disagree about the largest cause.")
    assert analyse(study).cause == "communication"


def test_oversubscribed_threads_are_reported(tmp_path: Path) -> None:
    assert not any("oversubscribed" in note for note in analyse(make_study(tmp_path, workers=(1, 2))).notes)
    assert any("oversubscribed" in note for note in analyse(make_study(tmp_path, threads=2)).notes)


def test_page_and_text_include_every_cell(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    page, text = write_study(study, analyse(study))
    for cell in study.matrix.list_cells():
        assert cell.label in page.read_text()
        assert f"| {cell.label} |" in text.read_text()
    assert "| 2 allreduce | 0.65 |" in text.read_text()


def test_one_worker_alone_has_tables_and_no_loss(tmp_path: Path) -> None:
    study = make_study(tmp_path, workers=(1,))
    results = analyse(study)
    assert results.cause is None
    page, _ = write_study(study, results)
    assert "Lost speed-up by cause" not in page.read_text()


def test_a_study_is_read_back_as_it_was_stored(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    study.save(analyse(study).as_dict())
    again = read_study(tmp_path / "study.json")
    assert again == study
    assert json.loads((tmp_path / "study.json").read_text())["results"]["rows"]
    assert analyse(again).as_dict() == analyse(study).as_dict()


def test_damaged_and_missing_studies_are_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LockstepError, match="has no study"):
        read_study(tmp_path)
    for text in ("{", "[]", '{"format": 1}', '{"format": 9, "trials": []}'):
        (tmp_path / "study.json").write_text(text)
        with pytest.raises(LockstepError, match=r"study\.json"):
            read_study(tmp_path)


def test_a_study_continues_with_more_rounds_but_not_with_other_settings(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    study.save()
    more = replace(study.matrix, rounds=5).as_dict()
    assert len(open_study(tmp_path, study.settings | {"matrix": more}, {}).trials) == len(study.trials)
    with pytest.raises(LockstepError, match="matrix.threads was 1 and is now 2"):
        open_study(tmp_path, study.settings | {"matrix": replace(study.matrix, threads=2).as_dict()}, {})


def test_a_folder_is_locked_by_one_study_and_leftovers_are_removed(tmp_path: Path) -> None:
    (tmp_path / "trials" / "old").mkdir(parents=True)
    with lock_folder(tmp_path) as trials:
        assert not list(trials.iterdir())
        with pytest.raises(LockstepError, match="Another study"), lock_folder(tmp_path):
            pass
        assert trials.exists()
    assert not trials.exists()


def test_two_studies_are_compared_cell_by_cell(tmp_path: Path) -> None:
    first, second = make_study(tmp_path / "a"), make_study(tmp_path / "b", slower=0.1)
    comparison = compare(first, second)
    assert comparison.settings == {"job.peak": (0.0, 0.1)}
    pair = next(pair for pair in comparison.pairs if pair.first.cell == Cell(2, "replicas", "none", 500))
    assert pair.ratio == pytest.approx(0.103 / 0.203)
    assert pair.spread[0] < pair.ratio < pair.spread[1]
    differences, cells = comparison.make_tables()
    assert list(differences.rows) == [("job.peak", "0.0", "0.1")]
    assert len(cells.rows) == len(first.matrix.list_cells())
    assert json.dumps(comparison.as_dict())


def test_studies_of_one_batch_each_are_compared_across_batches(tmp_path: Path) -> None:
    first = make_study(tmp_path / "a")
    second = make_study(tmp_path / "b")
    second.settings["matrix"]["batches"] = [1000]
    second.trials = [replace(trial, cell=replace(trial.cell, batch=1000)) for trial in second.trials]
    comparison = compare(first, second)
    assert len(comparison.pairs) == len(first.matrix.list_cells())
    assert "batch 500 / 1,000" in comparison.make_tables()[1].rows[0][0]


def test_an_unfinished_study_is_not_compared(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    study.finished = False
    with pytest.raises(LockstepError, match="not finished"):
        compare(study, study)
