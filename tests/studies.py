"""Studies with step lines that a test makes up, to say beforehand what must be found in them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lockstep.lab.study.cells import Matrix
from lockstep.lab.study.sample import measure
from lockstep.lab.study.study_file import Study, Taken

PLAIN = {"input": 0.0, "forward": 0.04, "backward": 0.05, "merge": 0.0, "update": 0.01}
GAP = 0.002
WARMUP = 5

Phases = Callable[[int, int], dict[str, float]]


def journals(
    workers: int, phases: Phases, scope: str = "global", words: int = 100, steps: int = 25
) -> list[list[dict[str, Any]]]:
    """Step lines of workers whose steps take what `phases(rank, step)` says, and a little more between them."""
    found = []
    for rank in range(workers):
        now, lines = 1000.0, []
        for step in range(1, steps + 1):
            taken = phases(rank, step)
            now += sum(taken.values()) + GAP
            line = {"step": step, "time": now, "phases": taken, "words": {"target": words}, "scope": scope}
            lines.append(line | {"seconds": sum(taken.values())})
        found.append(lines)
    return found


def always(taken: dict[str, float], rank: int, step: int) -> dict[str, float]:
    return taken


MATRIX = Matrix(
    (1, 2, 4), ("allreduce", "replicas", "local:every=10"), ("none", "1gbit"), (500, 1000), "words", 20, 5, 3, 1
)


def made_up(folder: Path, slower: float = 0.0, **changed: Any) -> Study:
    """A finished study whose all-reduce waits 50 ms in every step."""
    matrix = replace(MATRIX, links=("none",), batches=(500,), **changed)
    job = {"batch": {"fixed_length": None, "shuffle": True}, "peak": slower}
    settings = {"matrix": matrix.facts(), "machine": {"host": "here", "cores": 2}, "fault": "", "job": job}
    environment = {"load_before": 0.0, "began": "today", "unit": "words", "precision": "fp32", "device": "cpu"}
    study = Study(folder, settings, environment, finished=True)
    for turn in range(matrix.rounds):
        for cell in matrix.cells():
            waits = 0.05 if cell.name == "allreduce" and cell.without != "communication" else 0.0
            taken = PLAIN | {"merge": waits, "forward": 0.04 + slower + 0.001 * turn}
            lines = journals(cell.workers, partial(always, taken), "global" if cell.name == "allreduce" else "worker")
            study.trials.append(Taken(cell, turn, measure(lines, WARMUP, cell.without == "communication"), 9.0))
    return study
