"""The appendix of a report: workers, evaluations, launches, settings, versions, and what could not be read."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
import yaml

from lockstep.explain.evidence import Evidence
from lockstep.explain.formatting import count, number, plural, precise, seconds, timestamp
from lockstep.explain.pages.charts import pick_evenly
from lockstep.explain.reading.journal_file import get_seconds
from lockstep.explain.reading.json_access import get_dict
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import PHASES

MOST_ROWS = 60


class AppendixFacts(TypedDict):
    """The appendix in the JSON of a report."""

    tables: dict[str, list[dict[str, str]]]
    versions: dict[str, str]
    notes: list[str]


@dataclass(frozen=True)
class Table:
    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""
    words: bool = False  # the cells are words, aligned left, and not figures


@dataclass(frozen=True)
class Appendix:
    tables: list[Table]
    config: str
    environment: str
    versions: list[tuple[str, str]]
    notes: list[str] = field(default_factory=list)

    def facts(self) -> AppendixFacts:
        tables = {
            table.title: [dict(zip(table.heads, row, strict=True)) for row in table.rows] for table in self.tables
        }
        return {"tables": tables, "versions": dict(self.versions), "notes": self.notes}


def make_appendix(evidence: Evidence) -> Appendix:
    record = evidence.record
    tables = [_list_workers(evidence), _list_evaluations(record), _list_launches(record)]
    versions = get_dict(record.environment.get("versions"))
    environment = {name: value for name, value in record.environment.items() if name != "versions"}
    return Appendix(
        [table for table in tables if table.rows],
        yaml.safe_dump(record.config, sort_keys=False, allow_unicode=True) if record.config else "",
        json.dumps(environment, indent=2, ensure_ascii=False) if environment else "",
        [(name, str(version)) for name, version in versions.items()],
        _list_notes(record),
    )


def _list_workers(evidence: Evidence) -> Table:
    """Tabulates the last step of every worker and the phases of its mean step."""
    record, usage = evidence.record, evidence.usage
    rows = []
    for worker in usage:
        steps = record.measured.workers[worker.rank].step
        numbers = (f"worker {worker.rank}", count(len(steps)), count(steps.max()))
        rows.append((*numbers, *_format_phases(worker.phases, worker.seconds), count(worker.words_per_second)))
    if len(usage) > 1:
        means = {name: float(np.mean([worker.phases[name] for worker in usage])) for name in PHASES}
        mean_step = float(np.mean([worker.seconds for worker in usage]))
        speed = float(np.mean([worker.words_per_second for worker in usage]))
        rows.append(("mean", "", "", *_format_phases(means, mean_step), count(speed)))
    heads = (
        "",
        "steps",
        "last step",
        "forward",
        "backward",
        "computation",
        "merge",
        "update",
        "input",
        "total",
        f"{record.unit.split()[-1]}/s",
    )
    note = (
        f"Milliseconds, {record.measured.describe('mean', 'each worker')}. Computation is forward plus backward; merge is "
        f"the exposed part of the exchange; {record.unit} are those of the worker itself."
    )
    return Table("A step of each worker", heads, rows, note if rows else "")


def _format_phases(phases: dict[str, float], total: float) -> list[str]:
    """Returns milliseconds of forward, backward, both together, merge, update, input and the step."""
    forward, backward = phases["forward"], phases["backward"]
    parts = [forward, backward, forward + backward, phases["merge"], phases["update"], phases["input"], total]
    return [number(value * 1e3) for value in parts]


def _list_evaluations(record: Record) -> Table:
    evaluations = record.evaluations
    names = list(dict.fromkeys(name for line in evaluations for name in line["scores"]))
    rows = []
    for place in pick_evenly(len(evaluations), MOST_ROWS):
        line = evaluations[place]
        scores = [line["scores"].get(name) for name in names]
        texts = [precise(value) if isinstance(value, int | float) else "-" for value in scores]
        rows.append((count(line["step"]), *texts, seconds(get_seconds(line))))
    signature = str(evaluations[-1].get("signature") or "") if evaluations else ""
    note = f"sacreBLEU's signature: {signature}" if signature else ""
    return Table("Evaluations", ("step", *names, "took"), rows, note)


def _list_launches(record: Record) -> Table:
    rows = []
    for launch in record.launches:
        steps = (
            f"{count(launch.first_step)} to {count(launch.last_step or 0)}" if launch.first_step is not None else "none"
        )
        end = launch.reason or ("running" if launch is record.launches[-1] and record.state == "running" else "cut off")
        start = "" if launch.resumed is None else f"from step {count(launch.resumed)}"
        setting = f"{plural(launch.workers, 'worker')}, {launch.strategy_text}, {launch.facts.get('precision', '')}"
        rows.append(
            (
                str(launch.attempt),
                timestamp(launch.begin),
                seconds(launch.end - launch.begin),
                setting,
                steps,
                start,
                end,
            )
        )
    return Table("Launches", ("launch", "began", "took", "setting", "steps", "resumed", "ended"), rows, words=True)


def _list_notes(record: Record) -> list[str]:
    """Returns what could not be read, and other facts that affect the figures."""
    _ = record.config, record.data, record.environment, record.choices, record.checkpoints  # reading them adds notes
    notes = list(dict.fromkeys(record.notes))
    if record.damaged_lines:
        lines = "line was" if record.damaged_lines == 1 else "lines were"
        notes.append(f"{count(record.damaged_lines)} damaged journal {lines} skipped.")
    without = record.run_line.get("without")
    if without:
        notes.append(f"This run left out {', '.join(without)} to measure time: its model is unusable.")
    skipped = int((record.primary.steps.applied == 0).sum())
    if skipped:
        notes.append(f"{plural(skipped, 'step')} had a gradient that was not finite and changed nothing.")
    if record.measured.partial:
        notes.append(
            "Step times, network and utilisation cover only the launches with the last setting (workers, servers, "
            "strategy, precision, threads)."
        )
    return notes
