"""The data behind the answers: workers, launches, evaluations, settings, versions, and what could not be read."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import yaml

from lockstep.explain.answers.utilisation import usages
from lockstep.explain.formatting import count, fine, moment, number, plural, seconds
from lockstep.explain.pages.charts import evenly
from lockstep.explain.reading.journal_file import took
from lockstep.explain.reading.record import Record

MOST_ROWS = 60


@dataclass(frozen=True)
class Table:
    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""
    words: bool = False  # rather than figures: read from the left


@dataclass(frozen=True)
class Appendix:
    tables: list[Table]
    config: str
    environment: str
    versions: list[tuple[str, str]]
    notes: list[str] = field(default_factory=list)


def collect(record: Record) -> Appendix:
    tables = [_workers(record), _evaluations(record), _launches(record), _faults(record)]
    versions = record.environment.get("versions")
    listed = [(str(name), str(value)) for name, value in versions.items()] if isinstance(versions, dict) else []
    environment = {name: value for name, value in record.environment.items() if name != "versions"}
    return Appendix(
        [table for table in tables if table.rows],
        yaml.safe_dump(record.config, sort_keys=False, allow_unicode=True) if record.config else "",
        json.dumps(environment, indent=2, ensure_ascii=False) if environment else "",
        listed,
        _notes(record),
    )


def _workers(record: Record) -> Table:
    """The last step of every worker and the phases of its mean step."""
    used = usages(record)
    names = ("forward", "backward", "merge", "update", "input")
    rows = []
    for one in used:
        own = [one.phases[name] for name in names]
        computed = one.phases["forward"] + one.phases["backward"]
        steps = record.measured.workers[one.rank].step
        numbers = (f"worker {one.rank}", count(len(steps)), count(steps.max()))
        rows.append((*numbers, *_ms([*own[:2], computed, *own[2:], one.seconds]), count(one.words_per_second)))
    if len(used) > 1:
        means = {name: float(np.mean([one.phases[name] for one in used])) for name in names}
        parts = [means["forward"], means["backward"], means["forward"] + means["backward"]]
        parts += [means["merge"], means["update"], means["input"], float(np.mean([one.seconds for one in used]))]
        rows.append(("mean", "", "", *_ms(parts), count(float(np.mean([one.words_per_second for one in used])))))
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
        f"Milliseconds, {record.measured.how('mean', 'each worker')}. Computation is forward plus backward; merge is the "
        f"exposed part of the exchange; {record.unit} are those of the worker itself."
    )
    return Table("A step of each worker", heads, rows, note if rows else "")


def _ms(values: list[float]) -> list[str]:
    return [number(value * 1e3) for value in values]


def _evaluations(record: Record) -> Table:
    evaluations = record.evaluations
    names = list(dict.fromkeys(name for line in evaluations for name in line["scores"]))
    rows = []
    for place in evenly(len(evaluations), MOST_ROWS):
        line = evaluations[place]
        scores = [line["scores"].get(name) for name in names]
        shown = [fine(value) if isinstance(value, int | float) else "-" for value in scores]
        rows.append((count(line["step"]), *shown, seconds(took(line))))
    signature = str(evaluations[-1].get("signature") or "") if evaluations else ""
    note = f"sacreBLEU's signature: {signature}" if signature else ""
    return Table("Evaluations", ("step", *names, "took"), rows, note)


def _launches(record: Record) -> Table:
    rows = []
    for launch in record.launches:
        steps = (
            f"{count(launch.first_step)} to {count(launch.last_step or 0)}" if launch.first_step is not None else "none"
        )
        end = launch.reason or ("running" if launch is record.launches[-1] and record.state == "running" else "cut off")
        start = "" if launch.resumed is None else f"from step {count(launch.resumed)}"
        setting = f"{plural(launch.workers, 'worker')}, {launch.way}, {launch.facts.get('precision', '')}"
        rows.append(
            (str(launch.attempt), moment(launch.begin), seconds(launch.end - launch.begin), setting, steps, start, end)
        )
    return Table("Launches", ("launch", "began", "took", "setting", "steps", "resumed", "ended"), rows, words=True)


def _faults(record: Record) -> Table:
    rows = []
    for line in record.primary.of("fault")[:MOST_ROWS]:
        detail = line.get("detail") or (f"step {line['step']}" if "step" in line else "")
        rows.append((moment(float(line["time"])), str(line.get("what", "")), str(detail)))
    return Table("Faults", ("when", "what", "detail"), rows, words=True)


def _notes(record: Record) -> list[str]:
    """What could not be read, and other facts that affect the figures."""
    _ = record.config, record.data, record.environment, record.choices, record.saved
    notes = list(dict.fromkeys(record.notes))
    if record.damaged_lines:
        have = "line was" if record.damaged_lines == 1 else "lines were"
        notes.append(f"{count(record.damaged_lines)} damaged journal {have} skipped.")
    without = record.launch.get("without")
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


def facts(found: Appendix) -> dict[str, Any]:
    tables = {table.title: [dict(zip(table.heads, row, strict=True)) for row in table.rows] for table in found.tables}
    return {"tables": tables, "versions": dict(found.versions), "notes": found.notes}
