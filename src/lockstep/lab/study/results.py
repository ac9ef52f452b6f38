"""The results of a study: a row for every cell, lost speed-up by cause, and the verdict."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pydantic import JsonValue

from lockstep.explain.formatting import plural, share
from lockstep.lab.study.causes import NAMES, Loss, attribute_rounds
from lockstep.lab.study.cells import ALONE, NO_LINK, REPLICAS, Cell, Matrix, describe_strategy
from lockstep.lab.study.sample import TrialSample, take_median
from lockstep.lab.study.study_file import Study

BUSY = 0.5
"""A higher load before the study began means that other programs were running."""


@dataclass(frozen=True)
class StudyRow:
    """The median round of a cell, and the spread of its rounds."""

    cell: Cell
    sample: TrialSample
    lowest: float  # words per second of the slowest round
    highest: float
    speedup: float  # over one worker alone with the same share of a step
    of_replicas: float | None  # speed relative to independent replicas
    loss: Loss | None  # None for one worker and for ablations

    @property
    def efficiency(self) -> float:
        return self.speedup / self.cell.workers

    def as_dict(self) -> dict[str, JsonValue]:
        return {
            "cell": asdict(self.cell),
            **self.sample.as_dict(),
            "lowest": self.lowest,
            "highest": self.highest,
            "speedup": self.speedup,
            "efficiency": self.efficiency,
            "of_replicas": self.of_replicas,
            "loss": None if self.loss is None else _describe_loss(self.loss),
        }


def _describe_loss(loss: Loss) -> dict[str, JsonValue]:
    return {
        "lost": loss.median.lost,
        "shares": {**loss.median.by_cause},
        "not_explained": loss.median.rest,
        "largest": loss.median.largest_cause,
        "spread": {cause: [*loss.find_spread(cause)] for cause in NAMES},
        "is_consistent": loss.is_consistent,
    }


@dataclass(frozen=True)
class Results:
    """All rows of a study, and the sentences about them."""

    rows: list[StudyRow]
    verdict: list[str]
    cause: str | None  # the largest cause in the fastest cell with the most workers
    notes: list[str]
    unit: str  # words or images

    def as_dict(self) -> dict[str, JsonValue]:
        return {
            "verdict": [*self.verdict],
            "cause": self.cause,
            "notes": [*self.notes],
            "unit": self.unit,
            "rows": [row.as_dict() for row in self.rows],
        }


def analyse(study: Study) -> Results:
    matrix = study.matrix
    rows = [_make_row(study, cell) for cell in matrix.list_cells()]
    best = _find_best(rows, matrix)
    verdict = (
        [_explain_best(best, matrix)] if best else ["Only one worker was measured: there is no speed-up to explain."]
    )
    cause = best.loss.median.largest_cause if best and best.loss else None
    unit = study.environment.get("unit") or "words"
    return Results(rows, verdict + _compare_references(rows, best), cause, _make_notes(study, matrix, rows), unit)


def _make_row(study: Study, cell: Cell) -> StudyRow:
    samples = study.list_samples(cell)
    alone = study.list_samples(Cell(1, ALONE, NO_LINK, cell.batch))
    sample, single = take_median(samples), take_median(alone)
    rates = [one.words_per_second for one in samples]
    rate, loss, ratio = sample.words_per_second, None, None
    if cell.workers > 1:
        replicas = study.list_samples(Cell(cell.workers, REPLICAS, NO_LINK, cell.batch))
        ratio = rate / take_median(replicas).words_per_second
        if cell.without == "nothing":
            loss = attribute_rounds(samples, replicas, alone, update_is_remote=cell.strategy_name == "server")
    return StudyRow(cell, sample, min(rates), max(rates), rate / single.words_per_second, ratio, loss)


def _find_best(rows: Sequence[StudyRow], matrix: Matrix) -> StudyRow | None:
    """Returns the fastest row of those with the most workers. Replicas count only if there is nothing else."""
    most = [row for row in rows if row.loss is not None and row.cell.workers == max(matrix.workers)]
    strategies = [row for row in most if row.cell.strategy != REPLICAS]
    return max(strategies or most, key=lambda row: row.speedup, default=None)


def _explain_best(best: StudyRow, matrix: Matrix) -> str:
    assert best.loss is not None
    loss, cell = best.loss.median, best.cell
    link = "" if cell.link == NO_LINK else f" over {cell.link}"
    batch = f" with {cell.batch:,} {matrix.unit} per worker" if len(matrix.batches) > 1 else ""
    setting = f"{describe_strategy(cell.strategy)}{link}{batch}"
    speedup = f"{cell.workers} workers ({setting}) are {loss.speedup:.2f} times as fast as one worker"
    if loss.largest_cause is None:
        return f"{speedup}, close to the ideal {cell.workers}."
    value = loss.by_cause[loss.largest_cause]
    largest = f"{NAMES[loss.largest_cause]}: {value:.2f} ({share(value / loss.lost)})"
    uncertain = "" if best.loss.is_consistent else " The rounds disagree about the largest cause."
    return f"{speedup}. The largest cause of the missing {loss.lost:.2f} is {largest}.{uncertain}"


def _compare_references(rows: Sequence[StudyRow], best: StudyRow | None) -> list[str]:
    """Returns sentences about independent replicas, and about the input of one worker alone."""
    sentences: list[str] = []
    if best is None:
        return sentences
    replicas = Cell(best.cell.workers, REPLICAS, NO_LINK, best.cell.batch)
    reference = next((row for row in rows if row.cell == replicas), best)
    if reference is not best:
        sentences.append(
            f"Independent replicas, which exchange nothing, are {reference.speedup:.2f} times as fast as one worker: only "
            f"the difference to them is communication."
        )
    alone = next(row for row in rows if row.cell == Cell(1, ALONE, NO_LINK, best.cell.batch))
    waiting = alone.sample.phases["input"] / alone.sample.step
    if waiting > 0.1:
        sentences.append(f"Even one worker alone waits for input during {share(waiting)} of a step.")
    return sentences


def _make_notes(study: Study, matrix: Matrix, rows: Sequence[StudyRow]) -> list[str]:
    notes = _describe_method(study, matrix, rows)
    if matrix.ablated_strategy != REPLICAS:
        notes.append(f"The rows without input and without communication are those of {matrix.ablated_strategy}.")
    if study.settings["fault"]:
        notes.append(f"The workers were slowed down on purpose: LOCKSTEP_FAULT={study.settings['fault']}.")
    if study.environment["load_before"] > BUSY:
        load = study.environment["load_before"]
        notes.append(
            f"The machine was busy before the study began (load {load}): ratios are more reliable than absolute figures."
        )
    if matrix.rounds == 1:
        notes.append("There was only one round, so the spread of the figures is not known.")
    if any(row.cell.strategy_name == "server" for row in rows):
        notes.append(
            "A server updates while its workers wait in merge: the time beyond a worker's own update is communication."
        )
    for row in rows:
        if row.loss is not None and not row.loss.median.is_explained:
            loss = row.loss.median
            notes.append(f"{row.cell.label}: {loss.rest:+.2f} of the lost {loss.lost:.2f} has no known cause.")
    return notes


def _describe_method(study: Study, matrix: Matrix, rows: Sequence[StudyRow]) -> list[str]:
    cores, most = study.settings["machine"]["cores"], max(row.cell.workers + row.cell.servers for row in rows)
    batches, threads = " or ".join(f"{batch:,}" for batch in matrix.batches), plural(matrix.threads, "thread")
    notes = [
        f"Weak scaling: every worker has {batches} {matrix.unit} of each step, so the global batch grows with the workers.",
        f"Every worker of every cell has {threads}, on {plural(cores, 'core')}: one worker alone has no more than each of "
        f"several.",
        f"{plural(matrix.steps, 'step')} measured after {matrix.warmup} steps of warm-up, in "
        f"{plural(matrix.rounds, 'round')}. A round runs every cell once. The figures of a cell are those of its median "
        f"round.",
        _describe_data(study.settings["job"]),
    ]
    if matrix.threads * most > cores:
        notes.append(
            f"The threads are oversubscribed: up to {most} processes with {threads} each share {plural(cores, 'core')}."
        )
    return notes


def _describe_data(job: dict[str, JsonValue]) -> str:
    batch = job["batch"]
    assert isinstance(batch, dict)
    if batch["fixed_length"] is not None:
        return f"All sentences have {batch['fixed_length']} words: the text of the corpus, cut at this length."
    order = "shuffled" if batch["shuffle"] else "in the order of the text, which is the same for any number of workers"
    return f"Real data, {order}."
