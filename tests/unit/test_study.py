"""The arithmetic of a study: speed by the clock, shares of the loss that add up under the right names."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lockstep.config import RunConfig
from lockstep.errors import LockstepError
from lockstep.lab.study.cells import Cell, check_links, strategy_word
from lockstep.lab.study.compare_studies import compare
from lockstep.lab.study.results import find
from lockstep.lab.study.sample import PARTS, TrialSample, measure, middle
from lockstep.lab.study.shares import NAMES, Shares, divide
from lockstep.lab.study.study_file import begin, held, read_study
from lockstep.lab.study.study_page import write
from studies import GAP, MATRIX, PLAIN, WARMUP, Phases, always, journals, made_up


def alone() -> TrialSample:
    return measure(journals(1, lambda rank, step: PLAIN), WARMUP)


def replicas(workers: int = 2, slower: float = 0.0) -> TrialSample:
    return measure(journals(workers, lambda r, s: PLAIN | {"forward": 0.04 + slower}, "worker"), WARMUP)


def shares(phases: Phases, workers: int = 2, slower: float = 0.0, **more: Any) -> Shares:
    return divide(measure(journals(workers, phases), WARMUP), replicas(workers, slower), alone(), **more)


def adds_up(found: Shares) -> bool:
    return sum(found.by_cause.values()) + found.rest == pytest.approx(found.lost, abs=1e-9)


def test_speed_is_words_by_the_clock_without_the_warmup() -> None:
    def slow_start(rank: int, step: int) -> dict[str, float]:
        return PLAIN | {"forward": 5.0} if step <= WARMUP else PLAIN

    sample = measure(journals(2, slow_start), WARMUP)
    assert sample.step == pytest.approx(0.1 + GAP)
    assert sample.words_per_second == pytest.approx(200 / (0.1 + GAP))
    assert sample.total == pytest.approx(20 * (0.1 + GAP))
    assert sample.parts["other"] == pytest.approx(GAP)
    assert sum(sample.parts.values()) == pytest.approx(sample.step)
    assert set(sample.parts) == set(PARTS)


def test_workers_of_their_own_speed_are_added_up_and_their_parts_still_make_a_step() -> None:
    """Worker 1 takes twice as long; neither waits for the other."""
    sample = measure(journals(2, lambda r, s: PLAIN | {"forward": 0.04 + 0.102 * r}, "worker"), WARMUP)
    assert sample.words_per_second == pytest.approx(100 / 0.102 + 100 / 0.204)
    assert sample.total == pytest.approx(20 * sample.step), "not only while both were busy"
    assert sum(sample.parts.values()) == pytest.approx(sample.step)
    assert sample.parts["work"] == pytest.approx(0.09), "a fair share is that of the other worker"
    assert sample.parts["imbalance"] == pytest.approx(2 * 100 / sample.words_per_second - 0.102)
    assert sample.parts["other"] == pytest.approx(GAP)


def test_without_communication_workers_may_run_one_after_the_other() -> None:
    first, second = journals(2, lambda rank, step: PLAIN)
    later = [line | {"time": line["time"] + 100.0} for line in second]
    sample = measure([first, later], WARMUP, silent=True)
    assert sample.words_per_second == pytest.approx(200 / (0.1 + GAP))
    assert sample.parts["other"] == pytest.approx(GAP)


def test_meetings_of_workers_that_train_alone_are_communication_and_waiting_is_imbalance() -> None:
    """They meet every fifth step for 50 ms; worker 0 waits for worker 1, which computes 10 ms longer in each."""

    def phases(rank: int, step: int) -> dict[str, float]:
        own = PLAIN | {"forward": 0.04 + 0.01 * rank}
        return own | {"merge": 0.05 + 0.05 * (1 - rank)} if step % 5 == 0 else own

    found = divide(measure(journals(2, phases, "worker"), WARMUP), replicas(), alone())
    assert adds_up(found)
    unit = 2 / (0.1 + GAP + 0.01 + 0.01)
    assert found.by_cause["communication"] == pytest.approx(0.01 * unit, rel=0.05)
    assert found.by_cause["imbalance"] == pytest.approx(0.01 * unit, rel=0.05)


def test_waiting_for_a_worker_whose_input_is_late_is_input() -> None:
    """As replicas do, which run at most a few steps ahead of each other."""
    found = measure(journals(2, lambda r, s: PLAIN | ({"input": 0.1} if r else {"merge": 0.1}), "worker"), WARMUP)
    assert found.parts["input"] == pytest.approx(0.1)
    assert found.parts["imbalance"] == pytest.approx(0.0)
    assert found.parts["merge"] == pytest.approx(0.0)


def test_shares_that_are_taken_as_they_come_are_pushed_without_waiting_for_anybody() -> None:
    """Asynchronous servers: worker 1 is slower, and each has shares of its own."""
    lines = journals(2, lambda r, s: PLAIN | {"merge": 0.05, "forward": 0.04 + 0.05 * r}, "worker")
    for rank, worker in enumerate(lines):
        for line in worker:
            line |= {"step": 2 * line["step"] + rank, "part": rank}
    found = measure(lines, 2 * WARMUP)
    assert found.parts["merge"] == pytest.approx(0.05)
    assert found.parts["imbalance"] > 0.01
    assert sum(found.parts.values()) == pytest.approx(found.step)


def test_input_that_holds_back_one_worker_alone_is_told(tmp_path: Path) -> None:
    assert not any("Even one worker" in sentence for sentence in find(made_up(tmp_path)).verdict)
    study = made_up(tmp_path)
    study.trials = [
        replace(trial, sample=replace(trial.sample, phases=trial.sample.phases | {"input": 0.05}))
        for trial in study.trials
    ]
    assert any("Even one worker" in sentence for sentence in find(study).verdict)


def test_a_trial_of_warmup_only_is_refused() -> None:
    with pytest.raises(LockstepError, match="too short"):
        measure(journals(2, lambda rank, step: PLAIN, steps=5), WARMUP)


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
def test_what_holds_the_workers_back_gets_its_name(cause: str, phases: Phases, slower: float) -> None:
    found = shares(phases, slower=slower)
    assert adds_up(found)
    assert found.explained
    assert found.cause == cause


def test_a_share_is_its_part_of_the_lost_speedup() -> None:
    """A step of twice the length on two workers: no faster than one, all of it lost to the exchange."""
    found = shares(lambda r, s: PLAIN | {"merge": 0.1 + GAP})
    assert found.speedup == pytest.approx(1.0)
    assert found.by_cause["communication"] == pytest.approx(1.0)
    assert found.rest == pytest.approx(0.0, abs=1e-9)


def test_a_servers_update_is_not_counted_twice() -> None:
    phases: Phases = lambda r, s: PLAIN | {"merge": 0.03, "update": 0.0}  # noqa: E731
    found = shares(phases, update_is_remote=True)
    assert found.by_cause["update"] == 0.0
    assert found.by_cause["communication"] * found.speedup == pytest.approx(0.02 / (0.1 + GAP) * found.speedup**2)
    assert adds_up(found)


def test_hardly_any_loss_has_no_cause() -> None:
    assert shares(lambda r, s: PLAIN | {"merge": 0.001}).cause is None


def test_shares_of_other_sizes_are_compared_word_by_word() -> None:
    larger = measure(journals(2, lambda r, s: {k: 2 * v for k, v in PLAIN.items()}, words=200), WARMUP)
    found = divide(larger, replicas(), alone())
    assert found.speedup == pytest.approx(2.0, rel=0.02)
    assert abs(found.by_cause["contention"]) < 1e-9
    assert abs(found.by_cause["communication"]) < 1e-9


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_median_round_still_adds_up(count: int) -> None:
    rounds = [measure(journals(2, partial(always, PLAIN | {"merge": 0.01 * n})), WARMUP) for n in range(count)]
    chosen = middle(rounds)
    assert sum(chosen.parts.values()) == pytest.approx(chosen.step)
    assert chosen.parts["merge"] == pytest.approx(0.01 * (count - 1) / 2)


def test_every_row_to_compare_with_is_there_for_every_worker_count() -> None:
    cells = MATRIX.cells()
    assert len(cells) == len(set(cells)) == len({cell.key for cell in cells})
    for batch in (500, 1000):
        assert Cell(1, "alone", "none", batch) in cells
        assert Cell(1, "alone", "none", batch, "input") in cells
        for workers in (2, 4):
            assert [c.link for c in cells if (c.workers, c.name, c.batch) == (workers, "replicas", batch)] == ["none"]
            for link in ("none", "1gbit"):
                assert Cell(workers, "local:every=10", link, batch) in cells
            assert Cell(workers, "allreduce", "none", batch, "input") in cells
            assert Cell(workers, "allreduce", "none", batch, "communication") in cells


def test_a_cell_tells_its_settings() -> None:
    cell = Cell(2, "server:mode=async:servers=1", "none", 500)
    settings = cell.overrides("words")
    assert cell.servers == 1
    assert {"batch.words=500", "batch.per=worker", "strategy.name=server", "strategy.mode=async"} <= set(settings)
    assert "strategy.name=auto" in Cell(1, "alone", "none", 500).overrides("words")


def config(**strategy: Any) -> RunConfig:
    return RunConfig.model_validate({"data": {"grammar": {}}, "batch": {"words": 500}, "strategy": strategy})


def test_a_word_says_all_that_it_leaves_to_others() -> None:
    assert strategy_word("server", config(), 2, 20) == "server:servers=2"
    assert strategy_word("server", config(name="server", servers=1), None, 20) == "server:servers=1"
    assert strategy_word("server", config(), None, 20) == "server"
    assert strategy_word("local", config(), None, 20) == "local:every=10"
    assert strategy_word("local:every=5", config(), None, 20) == "local:every=5"
    assert strategy_word("local", config(name="local", every=4), None, 20) == "local:every=4"


@pytest.mark.parametrize(
    "word", ["single", "auto", "local:every=7", "local:every=0", "allreduce:", "server:servers=x", "a:b", "alone"]
)
def test_words_that_mean_nothing_are_refused(word: str) -> None:
    with pytest.raises(LockstepError) as caught:
        Cell(2, strategy_word(word, config(), None, 20), "none", 1).overrides("words")
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


def test_the_verdict_names_the_largest_share_of_the_fastest_setting(tmp_path: Path) -> None:
    found = find(made_up(tmp_path, strategies=("allreduce",)))
    assert found.cause == "communication"
    assert "4 workers (allreduce)" in found.verdict[0]
    assert NAMES["communication"] in found.verdict[0]
    assert "Independent replicas" in found.verdict[1]
    losses = {row.cell: row.loss for row in found.rows if row.loss is not None}
    assert losses[Cell(2, "replicas", "none", 500)].shares.cause is None
    waiting = losses[Cell(2, "allreduce", "none", 500)]
    low, high = waiting.spread("communication")
    assert low <= waiting.shares.by_cause["communication"] <= high


def test_rounds_that_disagree_about_the_largest_share_are_reported(tmp_path: Path) -> None:
    study = made_up(tmp_path, strategies=("allreduce",))
    assert "disagree" not in find(study).verdict[0]
    late = measure(journals(4, lambda rank, step: PLAIN | {"input": 0.05}), WARMUP)
    study.trials = [
        replace(trial, sample=late) if trial.cell.name == "allreduce" and trial.round == 0 else trial
        for trial in study.trials
    ]
    assert find(study).verdict[0].endswith("The rounds disagree about which part is the largest.")
    assert find(study).cause == "communication"


def test_oversubscribed_threads_are_told(tmp_path: Path) -> None:
    assert not any("oversubscribed" in note for note in find(made_up(tmp_path, workers=(1, 2))).notes)
    assert any("oversubscribed" in note for note in find(made_up(tmp_path, threads=2)).notes)


def test_page_and_text_hold_every_cell(tmp_path: Path) -> None:
    study = made_up(tmp_path)
    page, text = write(study, find(study))
    for cell in study.matrix.cells():
        assert cell.label in page.read_text()
        assert f"| {cell.label} |" in text.read_text()
    assert "| 2 allreduce | 0.65 |" in text.read_text()


def test_one_worker_alone_has_tables_and_no_loss(tmp_path: Path) -> None:
    study = made_up(tmp_path, workers=(1,))
    found = find(study)
    assert found.cause is None
    page, _ = write(study, found)
    assert "Where the missing speed-up went" not in page.read_text()


def test_a_study_is_read_back_as_it_was_stored(tmp_path: Path) -> None:
    study = made_up(tmp_path)
    study.save(find(study).facts())
    again = read_study(tmp_path / "study.json")
    assert again == study
    assert json.loads((tmp_path / "study.json").read_text())["results"]["rows"]
    assert find(again).facts() == find(study).facts()


def test_damaged_and_missing_studies_end_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LockstepError, match="holds no study"):
        read_study(tmp_path)
    for text in ("{", "[]", '{"format": 1}', '{"format": 9, "trials": []}'):
        (tmp_path / "study.json").write_text(text)
        with pytest.raises(LockstepError, match=r"study\.json"):
            read_study(tmp_path)


def test_other_settings_are_not_mixed_in_but_more_rounds_are(tmp_path: Path) -> None:
    study = made_up(tmp_path)
    study.save()
    more = replace(study.matrix, rounds=5).facts()
    assert len(begin(tmp_path, study.settings | {"matrix": more}, {}).trials) == len(study.trials)
    with pytest.raises(LockstepError, match="matrix.threads was 1 and is now 2"):
        begin(tmp_path, study.settings | {"matrix": replace(study.matrix, threads=2).facts()}, {})


def test_a_folder_is_for_one_study_at_a_time_and_leftovers_go(tmp_path: Path) -> None:
    (tmp_path / "trials" / "old").mkdir(parents=True)
    with held(tmp_path) as trials:
        assert not list(trials.iterdir())
        with pytest.raises(LockstepError, match="Another study"), held(tmp_path):
            pass
        assert trials.exists()
    assert not trials.exists()


def test_two_studies_side_by_side(tmp_path: Path) -> None:
    first, second = made_up(tmp_path / "a"), made_up(tmp_path / "b", slower=0.1)
    found = compare(first, second)
    assert found.settings == {"job.peak": (0.0, 0.1)}
    pair = next(pair for pair in found.pairs if pair.first.cell == Cell(2, "replicas", "none", 500))
    assert pair.ratio == pytest.approx(0.103 / 0.203)
    assert pair.spread[0] < pair.ratio < pair.spread[1]
    differences, cells = found.tables()
    assert list(differences.rows) == [("job.peak", "0.0", "0.1")]
    assert len(cells.rows) == len(first.matrix.cells())
    assert json.dumps(found.facts())


def test_studies_of_one_batch_each_are_compared_across_batches(tmp_path: Path) -> None:
    first = made_up(tmp_path / "a")
    second = made_up(tmp_path / "b")
    second.settings["matrix"]["batches"] = [1000]
    second.trials = [replace(trial, cell=replace(trial.cell, batch=1000)) for trial in second.trials]
    found = compare(first, second)
    assert len(found.pairs) == len(first.matrix.cells())
    assert "batch 500 / 1,000" in found.tables()[1].rows[0][0]


def test_an_unfinished_study_is_not_compared(tmp_path: Path) -> None:
    study = made_up(tmp_path)
    study.finished = False
    with pytest.raises(LockstepError, match="not finished"):
        compare(study, study)
