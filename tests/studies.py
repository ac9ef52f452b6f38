"""Made-up studies: their step lines are chosen so that a test knows the results."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from lockstep.lab.study.cells import Matrix
from lockstep.lab.study.sample import measure
from lockstep.lab.study.study_file import MeasuredTrial, Study, StudyEnvironment, StudySettings

PLAIN = {"input": 0.0, "forward": 0.04, "backward": 0.05, "merge": 0.0, "update": 0.01}
GAP = 0.002
WARMUP = 5

Phases = Callable[[int, int], dict[str, float]]


def make_journals(
    workers: int, phases: Phases, scope: str = "global", words: int = 100, steps: int = 25
) -> list[list[dict[str, Any]]]:
    """Returns the step lines of workers whose phases take `phases(rank, step)`, with a short gap between steps."""
    journals = []
    for rank in range(workers):
        now, lines = 1000.0, []
        for step in range(1, steps + 1):
            taken = phases(rank, step)
            now += sum(taken.values()) + GAP
            line = {"step": step, "time": now, "phases": taken, "words": {"target": words}, "scope": scope}
            lines.append(line | {"seconds": sum(taken.values())})
        journals.append(lines)
    return journals


def always(phases: dict[str, float], rank: int, step: int) -> dict[str, float]:
    """Returns the same phases for every worker and step."""
    return phases


MATRIX = Matrix(
    (1, 2, 4), ("allreduce", "replicas", "local:every=10"), ("none", "1gbit"), (500, 1000), "words", 20, 5, 3, 1
)


def make_study(folder: Path, slower: float = 0.0, **changed: Any) -> Study:
    """Returns a finished study whose all-reduce waits 50 ms in every step."""
    matrix = replace(MATRIX, links=("none",), batches=(500,), **changed)
    job: dict[str, JsonValue] = {"batch": {"fixed_length": None, "shuffle": True}, "peak": slower}
    settings: StudySettings = {
        "matrix": matrix.as_dict(),
        "machine": {"host": "here", "cores": 2},
        "fault": "",
        "job": job,
    }
    environment: StudyEnvironment = {
        "load_before": 0.0,
        "began": "today",
        "unit": "words",
        "precision": "fp32",
        "device": "cpu",
    }
    study = Study(folder, settings, environment, finished=True)
    for number in range(matrix.rounds):
        for cell in matrix.list_cells():
            merge = 0.05 if cell.strategy_name == "allreduce" and cell.without != "communication" else 0.0
            phases = PLAIN | {"merge": merge, "forward": 0.04 + slower + 0.001 * number}
            lines = make_journals(
                cell.workers, partial(always, phases), "global" if cell.strategy_name == "allreduce" else "worker"
            )
            study.trials.append(
                MeasuredTrial(cell, number, measure(lines, WARMUP, cell.without == "communication"), 9.0)
            )
    return study
