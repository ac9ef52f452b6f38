"""What a study found: a row for every cell, where the lost speed-up went, and the verdict."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lockstep.explain.formatting import plural, share
from lockstep.lab.study.cells import ALONE, NO_LINK, YARDSTICK, Cell, Matrix, spoken
from lockstep.lab.study.sample import TrialSample, middle
from lockstep.lab.study.shares import NAMES, Loss, loss
from lockstep.lab.study.study_file import Study

BUSY = 0.5
"""A load above this before the study began is other programs' work."""


@dataclass(frozen=True)
class StudyRow:
    """A cell: its median round, and how far the rounds lie apart."""

    cell: Cell
    sample: TrialSample
    lowest: float  # words per second of the slowest round
    highest: float
    speedup: float  # against one worker alone with the same share of a step
    of_replicas: float | None  # against independent replicas
    loss: Loss | None  # of several workers that do everything

    @property
    def efficiency(self) -> float:
        return self.speedup / self.cell.workers

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"cell": asdict(self.cell), **self.sample.facts()}
        facts |= {"lowest": self.lowest, "highest": self.highest, "speedup": self.speedup}
        facts |= {"efficiency": self.efficiency, "of_replicas": self.of_replicas, "loss": None}
        if self.loss is not None:
            shares = self.loss.shares
            spread = {cause: list(self.loss.spread(cause)) for cause in NAMES}
            facts["loss"] = {"lost": shares.lost, "shares": shares.by_cause, "not_explained": shares.rest}
            facts["loss"] |= {"largest": shares.cause, "spread": spread, "is_consistent": self.loss.is_consistent}
        return facts


@dataclass(frozen=True)
class Results:
    rows: list[StudyRow]
    verdict: list[str]
    cause: str | None  # the name of the largest share in the fastest cell with the most workers
    notes: list[str]
    unit: str  # words or images

    def facts(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "cause": self.cause,
            "notes": self.notes,
            "unit": self.unit,
            "rows": [row.facts() for row in self.rows],
        }


def find(study: Study) -> Results:
    matrix = study.matrix
    rows = [_row(study, cell) for cell in matrix.cells()]
    unit = str(study.environment.get("unit") or "words")
    best = _best(rows, matrix)
    verdict = [_sentence(best, matrix)] if best else ["Only one worker was measured: there is no speed-up to explain."]
    cause = best.loss.shares.cause if best and best.loss else None
    return Results(rows, verdict + _beyond(rows, best), cause, _notes(study, matrix, rows), unit)


def _row(study: Study, cell: Cell) -> StudyRow:
    samples = study.samples(cell)
    alone = study.samples(Cell(1, ALONE, NO_LINK, cell.batch))
    sample, single = middle(samples), middle(alone)
    rates = [one.words_per_second for one in samples]
    rate, lost, ratio = sample.words_per_second, None, None
    if cell.workers > 1:
        replicas = study.samples(Cell(cell.workers, YARDSTICK, NO_LINK, cell.batch))
        ratio = rate / middle(replicas).words_per_second
        if cell.without == "nothing":
            lost = loss(samples, replicas, alone, update_is_remote=cell.name == "server")
    return StudyRow(cell, sample, min(rates), max(rates), rate / single.words_per_second, ratio, lost)


def _best(rows: Sequence[StudyRow], matrix: Matrix) -> StudyRow | None:
    """The fastest of those with the most workers; replicas only when there is nothing else."""
    most = [row for row in rows if row.loss is not None and row.cell.workers == max(matrix.workers)]
    real = [row for row in most if row.cell.strategy != YARDSTICK]
    return max(real or most, key=lambda row: row.speedup, default=None)


def _sentence(best: StudyRow, matrix: Matrix) -> str:
    assert best.loss is not None
    shares, cell = best.loss.shares, best.cell
    over = "" if cell.link == NO_LINK else f" over {cell.link}"
    at = f" at {cell.batch:,} {matrix.unit} a worker" if len(matrix.batches) > 1 else ""
    fast = f"{cell.workers} workers ({spoken(cell.strategy)}{over}{at}) are {shares.speedup:.2f} times as fast as one"
    if shares.cause is None:
        return f"{fast}, close to the ideal {cell.workers}."
    value = shares.by_cause[shares.cause]
    largest = f"{NAMES[shares.cause]}: {value:.2f} ({share(value / shares.lost)})"
    unsure = "" if best.loss.is_consistent else " The rounds disagree about which part is the largest."
    return f"{fast}. The largest part of the missing {shares.lost:.2f} is {largest}.{unsure}"


def _beyond(rows: Sequence[StudyRow], best: StudyRow | None) -> list[str]:
    """The speed-up of independent replicas, and the input that one worker alone waits for."""
    said: list[str] = []
    if best is None:
        return said
    batch, workers = best.cell.batch, best.cell.workers
    for row in rows:
        same = row.cell.batch == batch and row.cell.workers == workers
        if same and row.cell.strategy == YARDSTICK and best is not row and row.cell.without == "nothing":
            said.append(
                f"Independent replicas, which exchange nothing, are {row.speedup:.2f} times as fast as one worker: only "
                f"the difference to that is communication."
            )
    alone = next(row for row in rows if row.cell == Cell(1, ALONE, NO_LINK, batch))
    waits = alone.sample.phases["input"] / alone.sample.step
    if waits > 0.1:
        said.append(f"Even one worker alone waits for input, during {share(waits)} of a step.")
    return said


def _notes(study: Study, matrix: Matrix, rows: Sequence[StudyRow]) -> list[str]:
    cores, most = study.settings["machine"]["cores"], max(row.cell.workers + row.cell.servers for row in rows)
    job = study.settings["job"]
    notes = [
        f"Weak scaling: every worker has {' or '.join(f'{batch:,}' for batch in matrix.batches)} {matrix.unit} of each "
        f"step, so that the global batch grows with the workers.",
        f"{plural(matrix.threads, 'thread')} per worker in every cell, on {plural(cores, 'core')}: one worker alone has "
        f"no more than each of several.",
        f"{plural(matrix.steps, 'step')} measured after {matrix.warmup} of warm-up, in {plural(matrix.rounds, 'round')}; a "
        f"round runs every cell once. Figures are of each cell's median round.",
        _data(job),
    ]
    if matrix.threads * most > cores:
        notes.append(
            f"The threads are oversubscribed: up to {most} processes with {plural(matrix.threads, 'thread')} each share "
            f"{plural(cores, 'core')}."
        )
    if matrix.first != YARDSTICK:
        notes.append(f"The rows without input and without communication are of {matrix.first}.")
    if study.settings["fault"]:
        notes.append(f"Held back on purpose: LOCKSTEP_FAULT={study.settings['fault']}.")
    if study.environment["load_before"] > BUSY:
        load = study.environment["load_before"]
        notes.append(f"The machine was busy before the study began (load {load}): trust ratios, not absolute figures.")
    if matrix.rounds == 1:
        notes.append("One round only: how far figures vary is not known.")
    if any(row.cell.name == "server" for row in rows):
        notes.append(
            "A server's update is part of its merge: what that takes beyond one worker's own is communication."
        )
    for row in rows:
        if row.loss is not None and not row.loss.shares.explained:
            rest = row.loss.shares.rest
            notes.append(f"{row.cell.label}: {rest:+.2f} of {row.loss.shares.lost:.2f} lost is not explained.")
    return notes


def _data(job: dict[str, Any]) -> str:
    batch = job["batch"]
    if batch["fixed_length"] is not None:
        return f"All sentences have {batch['fixed_length']} words: text of the corpus, cut wherever that is."
    order = "shuffled" if batch["shuffle"] else "in the order of the text, the same for any number of workers"
    return f"Real data, {order}."
