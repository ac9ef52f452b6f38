"""The figures of a report are those of a plain reading of its journals: line by line with `json`, without columns."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from long_report import make_run

from lockstep.explain.reading.record import Record
from lockstep.explain.report import ReportFacts, make
from lockstep.run.journal import Line

STEPS, WORKERS = 10_000, 3
DAMAGE = b'{"kind":"step","step":7,"time":1.0}\n\xff\xfe\n\n[1]\n{"kind":"step","step":9,"phases":null}\n'
"""Four lines that are no entries, and an empty one."""


@dataclass
class PlainJournal:
    standing: dict[int, Line]  # by step
    written: list[Line]  # all step lines
    events: list[Line]
    damaged: int

    @property
    def timed(self) -> list[Line]:
        return [line for _, line in sorted(self.standing.items()) if not line["warmup"]]


def read_plainly(path: Path) -> PlainJournal:
    journal = PlainJournal({}, [], [], 0)
    for raw in filter(None, path.read_bytes().split(b"\n")):
        try:
            line = json.loads(raw)
            if line["kind"] == "step":
                journal.standing[line["step"]] = line | {"merge": line["phases"]["merge"]}
                journal.written.append(line)
                continue
        except (ValueError, KeyError, TypeError):
            journal.damaged += 1
            continue
        if line["kind"] == "resume":
            journal.standing = {step: one for step, one in journal.standing.items() if step <= line["step"]}
        journal.events.append(line)
    return journal


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two launches, with 2,000 repeated steps and damaged lines at three places of every journal."""
    folder = tmp_path_factory.mktemp("long")
    make_run(folder / "run", STEPS, WORKERS)
    for path in (folder / "run" / "journal").iterdir():
        lines = path.read_bytes().splitlines(keepends=True)
        for place in (100, 5000, 9000):
            lines[place] = lines[place][:200] + b"\n" + DAMAGE + lines[place]
        path.write_bytes(b"".join(lines) + lines[-2][:50])
    return folder / "run"


@pytest.fixture(scope="module")
def journals(run: Path) -> list[PlainJournal]:
    return [read_plainly(path) for path in sorted((run / "journal").iterdir())]


@pytest.fixture(scope="module")
def facts(run: Path) -> ReportFacts:
    return make(run).facts()


@pytest.fixture(scope="module")
def figures(facts: ReportFacts) -> dict[str, float | None]:
    return {figure["name"]: figure["value"] for answer in facts["answers"] for figure in answer["figures"]}


def collect(lines: Iterable[Line], name: str) -> np.typing.NDArray[np.float64]:
    return np.array([line[name] for line in lines], np.float64)


def test_counts_and_means(facts: ReportFacts, figures: dict[str, float | None], journals: list[PlainJournal]) -> None:
    first, summary = journals[0], facts["summary"]
    assert (summary["step"], len(first.written), len(first.standing)) == (STEPS, STEPS + 2000, STEPS)
    assert (summary["measured_steps"], summary["warmup_steps"]) == (len(first.timed), STEPS - len(first.timed))
    assert summary["damaged_lines"] == first.damaged == 17
    seconds = collect(first.timed, "seconds")
    assert summary["seconds_per_step"] == figures["mean"] == pytest.approx(seconds.mean(), rel=1e-12)
    assert figures["median"] == np.median(seconds)
    assert figures["95th percentile"] == np.quantile(seconds, 0.95)
    words = collect(first.timed, "global_target_words")
    assert summary["words_per_second"] == pytest.approx(words.sum() / seconds.sum(), rel=1e-12)
    assert summary["loss"] == first.standing[STEPS]["loss"]
    twice = collect(first.written, "seconds").sum() - collect(first.standing.values(), "seconds").sum()
    assert figures["computed twice"] == pytest.approx(twice, rel=1e-9)


def test_the_worker_that_waited_least(facts: ReportFacts, journals: list[PlainJournal]) -> None:
    slowest = [min(lines, key=lambda line: line["merge"]) for lines in zip(*(j.timed for j in journals), strict=True)]
    assert facts["bottleneck"] is not None
    step = np.mean([sum(line["phases"].values()) for line in slowest])
    assert facts["bottleneck"]["step_seconds"] == pytest.approx(step, rel=1e-9)
    network = collect(slowest, "merge").mean() / step
    assert facts["bottleneck"]["costs"]["network"] == pytest.approx(network, rel=1e-9)


def test_losses_before_evaluations(figures: dict[str, float | None], journals: list[PlainJournal]) -> None:
    losses = {step: line["loss"] for step, line in journals[0].standing.items()}
    assert figures["training loss"] == pytest.approx(np.mean([losses[step] for step in range(9001, 10001)]), rel=1e-12)
    evaluations = {line["step"]: line for line in journals[0].events if line["kind"] == "evaluation"}
    gap = evaluations[2000]["scores"]["loss"] - np.mean([losses[step] for step in range(1001, 2001)])
    assert figures["gap at the first evaluation"] == pytest.approx(gap, rel=1e-12)


def test_samples_of_the_machine(
    facts: ReportFacts, figures: dict[str, float | None], journals: list[PlainJournal]
) -> None:
    timed = journals[0].timed
    seconds, ends = collect(timed, "seconds"), collect(timed, "time")
    samples = [line for line in journals[0].events if line["kind"] == "system"]
    pairs, overlaps = list[tuple[float, float]](), list[float]()
    for line in samples:
        begin, end = line["time"] - line["seconds"], line["time"]
        before_end, before_begin = (np.clip(moment - ends + seconds, 0.0, seconds).sum() for moment in (end, begin))
        overlaps.append(before_end - before_begin)
        inside = seconds[(ends > begin) & (ends <= end)]
        if len(inside):
            pairs.append((line["network"]["lo"]["sent"], inside.mean()))
    others = np.average(collect(samples, "others"), weights=overlaps)
    assert facts["summary"]["others_share"] == pytest.approx(others, rel=1e-5), "ends are rounded: steps may overlap"
    correlation = np.corrcoef(np.array(pairs).T)[0, 1]
    assert figures["with the rate of lo on here"] == pytest.approx(correlation, rel=1e-9)


def test_rows_are_selected_by_masks_and_by_indices(run: Path) -> None:
    steps = Record.open(run).primary.all_steps
    even = steps.where(steps.step % 2 == 0)
    assert (len(even), even.step[:3].tolist()) == (len(steps) // 2, [2.0, 4.0, 6.0])
    assert even.where(np.array([2, 0])).loss.tolist() == steps.loss[[5, 1]].tolist()
    assert even.where(even.step < 6).compute.tolist() == steps.compute[[1, 3]].tolist()
    assert not hasattr(even, "speed")
