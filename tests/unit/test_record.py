"""Every run can be read: killed, empty, damaged, or resumed with another number of workers."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from lockstep.errors import LockstepError
from lockstep.explain.answers import duration
from lockstep.explain.evidence import Evidence
from lockstep.explain.measures.wall_time import measure_wall_time
from lockstep.explain.reading.record import Record
from lockstep.explain.report import make, render_text
from lockstep.explain.summary import summarise
from madeup import PLAIN, MadeUp


def test_a_folder_that_is_no_run_gives_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(LockstepError, match="is not a run: it has no journal") as error:
        Record.open(tmp_path)
    assert error.value.code == 2
    with pytest.raises(LockstepError, match="There is no run folder"):
        Record.open(tmp_path / "nowhere")


def test_steps_of_a_killed_launch_beyond_its_checkpoint_are_undone_in_every_worker(tmp_path: Path) -> None:
    """Four workers are killed at step 30, and two continue from step 20. The journals of workers 2 and 3 do not say so."""
    run = MadeUp(tmp_path)
    run.launch(range(1, 31), workers=4, stop=None, scores={10: {"loss": 3.0}, 30: {"loss": 2.0}})
    run.launch(range(21, 61), workers=2, attempt=2, resumed=20)
    record = Record.open(tmp_path)
    assert record.last_step == 60
    assert [len(worker.steps) for worker in record.workers.values()] == [60, 60, 20, 20]
    assert record.primary.steps.attempt.tolist() == [1.0] * 20 + [2.0] * 40
    assert [line["step"] for line in record.evaluations] == [10]
    assert len(record.primary.all_steps) == 70
    assert measure_wall_time(record).redone == pytest.approx(10 * 0.1)


def test_averages_are_of_the_launches_with_the_last_setting(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 31), workers=4, phases=lambda rank, step: {**PLAIN, "forward": 0.9}, stop="signal")
    run.launch(range(31, 61), workers=2, attempt=2, resumed=30, stop="signal")
    run.launch(range(61, 81), workers=2, attempt=3, resumed=60)
    measured = Record.open(tmp_path).measured
    assert list(measured.workers) == [0, 1]
    assert (measured.count, measured.warmup, measured.partial) == (40, 10, True)
    assert measured.primary.seconds.mean() == pytest.approx(0.1)
    assert "last setting only" in measured.describe()
    summary = summarise(tmp_path)
    assert summary.seconds_per_step == pytest.approx(0.1)
    assert summary.launches == 3


def test_a_launch_that_only_warmed_up_does_not_decide_the_setting(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 31), workers=2, stop="signal")
    run.launch(range(31, 33), workers=4, attempt=2, resumed=30)
    assert Record.open(tmp_path).measured.count == 25
    assert summarise(tmp_path).workers == 2


def test_of_equal_scores_the_one_with_the_lowest_loss_is_the_best(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    scores = {step: {"sacrebleu": 30.0, "loss": loss} for step, loss in ((5, 2.0), (10, 1.0), (15, 1.0), (20, 1.5))}
    run.launch(range(1, 31), scores=scores | {25: {"sacrebleu": 29.0, "loss": 0.5}})
    assert (summarise(tmp_path).best_score, summarise(tmp_path).best_step) == (30.0, 10)
    MadeUp(tmp_path / "nan").launch(range(1, 21), scores={5: {"sacrebleu": 30.0, "loss": math.nan}, 10: scores[10]})
    assert summarise(tmp_path / "nan").best_step == 10, "a loss that is no number is not the lowest"


def test_a_worker_that_died_early_counts_for_its_own_words_only(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 106))
    paths = [tmp_path / "journal" / f"worker-000{rank}.jsonl" for rank in (0, 1)]
    for path in paths:
        path.write_text(path.read_text().replace('"global"', '"worker"'))
    both = summarise(tmp_path).words_per_second or 0.0
    paths[1].write_text("".join(paths[1].read_text().splitlines(keepends=True)[:12]))
    assert summarise(tmp_path).words_per_second == pytest.approx(both / 2, rel=0.1)


def test_steps_with_other_settings_of_a_strategy_are_not_mixed_in(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.config(strategy={"name": "server", "mode": "async"})
    run.launch(range(1, 31), strategy="server", servers=1)
    run.launch(range(31, 61), strategy="server", servers=1, attempt=2, changed={"strategy.mode": ["sync", "async"]})
    run.launch(range(61, 101), strategy="server", servers=1, attempt=3, changed={"train.steps": [60, 100]})
    record = Record.open(tmp_path)
    assert record.comparable_attempts == (2, 3)
    assert [launch.strategy_text for launch in record.launches] == [
        "server sync on 1 server",
        *["server async on 1 server"] * 2,
    ]
    assert summarise(tmp_path).way == "server async on 1 server"
    assert "this is the time of one share" in make(tmp_path).answers[9].text


def test_damaged_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 21))
    path = tmp_path / "journal" / "worker-0000.jsonl"
    lines = path.read_text().splitlines()
    broken = json.loads(lines[6])
    spoiled = [
        lines[7][:40],
        "\x00\x00",
        json.dumps(broken | {"seconds": None}),
        json.dumps(broken | {"phases": {"input": 0}}),
        json.dumps(broken | {"step": "six"}),
        json.dumps({"kind": "step"}),
        json.dumps({"kind": "evaluation"}),
        json.dumps([1, 2]),
    ]
    path.write_text("\n".join([*lines[:6], *spoiled, *lines[8:]]) + "\n")
    record = Record.open(tmp_path)
    assert record.damaged_lines == len(spoiled)
    assert len(record.primary.steps) == 18
    assert "8 damaged journal lines were skipped" in render_text(make(tmp_path))


def test_events_with_missing_facts_do_not_stop_a_report(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 21))
    for kind in ("run", "resume", "evaluation", "checkpoint", "fault", "system", "link", "model", "upload", "stop"):
        run.write(0, kind)
    run.write(0, "evaluation", step=20, scores={"loss": None, "sacrebleu": "high"})
    run.write(0, "system", host=3, cores="many", network={"eth0": 5}, gpus=[7], process=None, memory=[])
    assert len(make(tmp_path).answers) == 11


@pytest.mark.parametrize("gone", ["config.yaml", "data.json", "environment.json", "choices.json"])
@pytest.mark.parametrize("how", ["missing", "damaged", "of another kind"])
def test_a_missing_or_damaged_file_is_noted(tmp_path: Path, gone: str, how: str) -> None:
    MadeUp(tmp_path).launch(range(1, 21))
    path = tmp_path / gone
    if how == "missing":
        path.unlink()
    else:
        path.write_text("{ [" if how == "damaged" else "[1, 2]")
    report = make(tmp_path)
    assert len(report.answers) == 11
    if how != "of another kind":
        assert any(gone in note for note in report.appendix.notes)


def test_a_run_without_any_step_can_be_reported(tmp_path: Path) -> None:
    MadeUp(tmp_path).launch(range(0), workers=2, stop=None)
    report = make(tmp_path)
    assert report.verdict[0] == "The run is cut off and has not taken a step with 2 workers (allreduce, fp32)."
    assert len(report.answers) == 11
    assert "has not taken a step" in render_text(report)


def test_a_run_that_died_before_its_first_line_can_be_reported(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    (run.folder / "choices.json").write_text("{}")
    report = make(tmp_path)
    assert len(report.answers) == 11
    assert any("no journal" in note for note in report.appendix.notes)


def test_a_run_killed_in_the_middle_is_cut_off_and_knows_what_is_left(tmp_path: Path) -> None:
    MadeUp(tmp_path).launch(range(1, 41), stop=None)
    record = Record.open(tmp_path)
    wall_time = measure_wall_time(record)
    assert record.state == "cut off"
    assert wall_time.steps_left == 60
    assert wall_time.pace == pytest.approx(0.1, rel=0.01)
    assert wall_time.eta == pytest.approx(6.0, rel=0.01)
    assert "60 of 100 steps would take about" in duration.answer(Evidence(record)).text


def test_the_parts_of_the_wall_time_add_up(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 31), scores={20: {"loss": 2.0}}, stop="signal")
    run.launch(range(31, 61), attempt=2, resumed=30)
    wall_time = measure_wall_time(Record.open(tmp_path))
    assert sum(wall_time.parts.values()) == pytest.approx(wall_time.total)
    assert wall_time.parts["forward"] == pytest.approx(60 * 0.04)
    assert wall_time.parts["evaluation"] == pytest.approx(1.5)
    assert wall_time.between == pytest.approx(60.0, abs=0.1)


def test_the_journal_of_another_worker_is_enough(tmp_path: Path) -> None:
    MadeUp(tmp_path).launch(range(1, 21))
    (tmp_path / "journal" / "worker-0000.jsonl").unlink()
    assert Record.open(tmp_path).last_step == 20
    assert len(make(tmp_path).answers) == 11


def test_losses_that_are_not_numbers_are_left_out(tmp_path: Path) -> None:
    MadeUp(tmp_path).launch(range(1, 21))
    path = tmp_path / "journal" / "worker-0000.jsonl"
    path.write_text(path.read_text().replace('"loss": ', '"loss": null, "was": '))
    assert np.isnan(Record.open(tmp_path).primary.steps.loss).all()
    assert len(make(tmp_path).answers) == 11
    assert summarise(tmp_path).loss is None


def test_steps_that_the_first_worker_missed_are_read_from_the_others_but_not_lost_ones(tmp_path: Path) -> None:
    """All workers die at step 30 and restart from step 20 in a new branch. Worker 0 dies at step 40 and does not return."""
    run = MadeUp(tmp_path)
    first, second = [("1.1", 0)], [("1.1", 0), ("1.5", 20)]
    for rank in (0, 1):
        run.write(rank, "resume", step=0, attempt=1, lineage=first)
    run.launch(range(1, 31), stop=None, of_step={"branch": "1.1"}, strategy="resilient")
    for rank in (0, 1):
        run.write(rank, "resume", step=20, attempt=1, lineage=second)
    run.launch(range(21, 41), stop=None, of_step={"branch": "1.5"}, strategy="resilient")
    last = json.loads((tmp_path / "journal" / "worker-0001.jsonl").read_text().splitlines()[-1])
    for number in range(41, 61):
        run.write(1, **(last | {"step": number, "time": last["time"] + 0.1 * (number - 40)}))
    run.now += 10.0
    run.write(1, "stop", step=60, reason="finished", signal=None)
    record = Record.open(tmp_path)
    assert record.primary.steps.step.tolist() == list(range(1, 61))
    assert [line["kind"] for line in record.primary.select_events("stop")] == ["stop"], (
        "worker 1 wrote the only `stop` line"
    )
    assert record.last_step == 60
    assert record.state == "finished"
    assert len(record.launches) == 1
    assert len(make(tmp_path).answers) == 11


def test_a_heal_undoes_later_steps_of_the_worker(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 31), workers=1, stop=None, strategy="resilient")
    run.write(0, "heal", step=25, attempt=1)
    run.launch(range(26, 28), workers=1, stop=None, strategy="resilient")
    assert Record.open(tmp_path).primary.steps.step.tolist() == list(range(1, 28))


def test_each_share_of_a_step_counts_as_one(tmp_path: Path) -> None:
    """Asynchronous servers: a worker may take two shares of the same step."""
    run = MadeUp(tmp_path, scope="worker")
    run.launch(range(1, 21), of_step={"part": 0, "staleness": 1})
    run.launch(range(1, 21), of_step={"part": 1, "staleness": 3})
    assert len(Record.open(tmp_path).primary.steps) == 40
    (late,) = [figure for figure in make(tmp_path).answers[4].figures if figure.name == "staleness"]
    assert late.value == pytest.approx(2.0)


def test_the_last_step_is_that_of_the_worker_that_went_furthest(tmp_path: Path) -> None:
    run = MadeUp(tmp_path, scope="worker")
    run.launch(range(1, 21))
    line = json.loads((tmp_path / "journal" / "worker-0001.jsonl").read_text().splitlines()[-2])
    run.write(1, **(line | {"step": 25}))
    assert Record.open(tmp_path).last_step == 25
    assert summarise(tmp_path).step == 25
