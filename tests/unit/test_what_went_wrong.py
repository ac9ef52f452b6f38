"""The report's section about faults: made-up journals of workers and monitors."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from lockstep.explain.report import make, render_page, render_text
from lockstep.explain.what_went_wrong import WhatWentWrong
from lockstep.launch.fault_log import FaultLog
from madeup import MadeUp

STOPPED = (
    "Worker 1 (process 7) has stood still for 10 s, in backward of step 20: it is stopped (SIGSTOP) (established)."
)
KILLED = (
    "Worker 0 (process 9) was killed by SIGKILL in forward of step 33, which a person or a program sent (supported)."
)


def note(run: MadeUp, what: str, rank: int | None, **facts: Any) -> None:
    """Adds a line to the monitor's file."""
    line = {"kind": "fault", "time": run.now, "what": what, "rank": rank, "host": "here"} | facts
    with (run.folder / "journal" / "monitor-here.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def explain(run: MadeUp) -> WhatWentWrong:
    section = make(run.folder).faults
    assert section is not None
    return section


def test_a_run_without_faults_has_no_section(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 41))
    report = make(run.folder)
    assert report.faults is None
    assert report.facts()["faults"] is None
    assert "What went wrong" not in render_text(report) + render_page(report)


def test_a_worker_that_continues_costs_the_time_it_stood_still(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 21), stop=None)
    begin = run.now
    run.now += 10
    note(run, "stall", 1, since=begin, evidence="established", sentence=STOPPED)
    run.now += 5
    note(run, "continues", 1, since=begin, evidence="established", sentence=STOPPED)
    run.launch(range(21, 41), attempt=1)
    section = explain(run)
    (row,) = section.rows
    assert (row.title, row.evidence) == ("Worker 1 stood still: its process was stopped", "established")
    assert (row.detail, row.action) == (STOPPED, "It continued by itself, and nothing was done.")
    assert row.cost == "15.0 s lost"
    assert section.summary.startswith("1 fault was noticed. It cost about 15.0 s, ")
    assert section.advice == [
        "Find out who stops processes there: a debugger, a batch system that suspends jobs, or a person (SIGSTOP)."
    ]


def write_restarted(run: MadeUp, what: str, sentence: str, stood: float) -> None:
    """A launch of 30 steps that ends with a fault, and one that resumes from step 20."""
    run.launch(range(1, 31), stop=None)
    begin = run.now
    run.now += stood
    if stood:
        note(run, "stall", 1, since=begin, evidence="established", sentence=sentence)
        note(run, "ended", 1, since=begin, evidence="established", sentence=sentence)
    else:
        note(run, what, 1, evidence="supported", sentence=sentence)
    run.now += 1
    run.launch(range(21, 22), attempt=2, resumed=20, stop=None)
    run.write(0, "fault", what="restarted", detail=sentence, seconds=3.1)
    run.launch(range(22, 41), attempt=2)


@pytest.mark.parametrize(
    ("what", "sentence", "stood", "title"),
    [
        ("died", KILLED, 0.0, "Worker 1 died: somebody killed its process"),
        ("ended", STOPPED, 20.0, "Worker 1 stood still and was ended: its process was stopped"),
    ],
)
def test_a_restart_costs_the_pause_and_the_steps_that_are_computed_again(
    tmp_path: Path, what: str, sentence: str, stood: float, title: str
) -> None:
    run = MadeUp(tmp_path)
    write_restarted(run, what, sentence, stood)
    (incident,) = explain(run).incidents
    assert incident.repeated == 10
    assert incident.lost == pytest.approx(stood + 3.1 + 10 * 0.1)
    (row,) = explain(run).rows
    assert row.title == title
    assert row.action == "All workers were started again from the checkpoint of step 20."
    assert row.cost.endswith(" lost, 10 steps computed again")
    text, page = render_text(make(run.folder)), render_page(make(run.folder))
    assert f"| {title} |" in text
    assert "10 steps were computed again" in text
    assert title in page
    assert 'href="#faults"' in page


def test_what_several_monitors_say_of_one_end_is_one_fault(tmp_path: Path) -> None:
    run = MadeUp(tmp_path, hosts=["here", "there"])
    run.launch(range(1, 31), stop=None)
    begin, sentence = run.now, "Host there is lost: its monitor has not been heard for 10 s (supported)."
    run.now += 10
    note(run, "host lost", None, host="there", since=begin, evidence="supported", sentence=sentence)
    note(run, "ended", 0, evidence=None, sentence=f"Worker 0 was ended. {sentence}")
    run.launch(range(21, 22), attempt=2, resumed=20, stop=None)
    run.write(0, "fault", what="restarted", detail=f"Worker 0 was ended. {sentence}", seconds=3.0)
    run.launch(range(22, 41), attempt=2)
    (incident,) = explain(run).incidents
    assert (incident.who, incident.what, incident.repeated) == ("host there", "was not heard any more", 10)
    assert incident.lost == pytest.approx(10 + 3.0 + 1.0)


def test_a_slow_worker_costs_its_share_of_the_time(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 41))
    begin, facts = run.now - 100, {"share": 0.25, "slower": 0.5, "evidence": "supported"}
    sentence = "Worker 1 has been 50 % slower than the others: other programs use its cores (supported)."
    note(run, "slow worker", 1, since=begin, sentence=sentence, **facts)
    note(run, "slow worker ends", 1, since=begin, sentence=sentence, **facts)
    (row,) = explain(run).rows
    assert (row.title, row.cost) == (
        "Worker 1 was slower than the others: other programs used its cores",
        "25.0 s lost",
    )


def test_a_launch_that_ends_without_a_word_is_a_fault(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 31), stop=None)
    run.now += 500
    run.launch(range(21, 41), attempt=2, resumed=20)
    (incident,) = explain(run).incidents
    assert (incident.what, incident.evidence, incident.repeated) == ("The training was cut off", "unknown", 10)
    assert incident.lost == pytest.approx(1.0), "nobody lost the time in which nobody wanted to train"
    assert incident.action == "It was started again from the checkpoint of step 20."


def test_a_restart_without_a_monitor_and_repeated_faults_have_one_row_each(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 31), stop=None)
    run.launch(range(21, 22), attempt=2, resumed=20, stop=None)
    run.write(0, "fault", what="restarted", detail=KILLED, seconds=3.0)
    for step in (22, 25, 29):
        run.write(0, "fault", what="gradient not finite, update skipped", step=step)
    run.launch(range(22, 41), attempt=2)
    died, skipped = explain(run).incidents
    assert (died.what, died.repeated) == ("A worker died", 10)
    assert (skipped.what, skipped.detail, skipped.lost) == (
        "gradient not finite, update skipped",
        "3 times, steps 22 to 29",
        None,
    )


def test_the_moment_of_a_stall_survives_the_journal(tmp_path: Path) -> None:
    """Other figures are journalled with seven digits, which are hours of a moment."""
    begin = time.time()
    FaultLog(tmp_path).write("stall", STOPPED, rank=1, since=time.monotonic() - 5.0)
    (file,) = tmp_path.glob("monitor-*.jsonl")
    line = json.loads(file.read_text())
    assert begin - 5.1 < line["since"] < time.time() - 4.9


def test_a_hostile_sentence_changes_neither_page_nor_terminal(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 41))
    note(run, "stall", 1, since=run.now - 9, evidence="<b>", sentence="</script><script>alert(1)</script>\x1b[31m|")
    report = make(run.folder)
    assert "<script>alert" not in render_page(report)
    assert "\x1b" not in render_text(report)
