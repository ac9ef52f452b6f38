"""Measures a study: every round runs every cell once, so that what else happens on the machine hits all alike."""

import os
import platform
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import Any, Protocol

from lockstep import __version__
from lockstep.config import RunConfig, apply_override, load, strategy_has, strategy_setting
from lockstep.errors import LockstepError
from lockstep.files import read_json
from lockstep.lab.emulated_network import EmulatedNetwork, clean_up
from lockstep.lab.study.cells import NO_LINK, Cell, Matrix
from lockstep.lab.study.sample import TrialSample, measure
from lockstep.lab.study.study_file import Study, Taken, begin, held, remove
from lockstep.lab.trial import Trial, attempt
from lockstep.run.directory import RunDirectory

FAULT = "LOCKSTEP_FAULT"


@dataclass(frozen=True)
class StudyJob:
    """What is trained: a config file and the settings to change in it."""

    config: Path
    overrides: list[str]

    def settings(self, matrix: Matrix, cell: Cell) -> list[str]:
        """Of a cell's trials. They evaluate nothing and save nothing, and no probe disturbs them."""
        often = [f"train.{name}=1000000000" for name in ("evaluate_every", "checkpoint_every")]
        kept = [f"train.threads={matrix.threads}", f"train.steps={matrix.warmup + matrix.steps}", "train.patience=null"]
        return [*self._shared(cell.trained), *cell.overrides(matrix.unit), *often, *kept, "watch.probe=false"]

    def load(self, strategy: str | None = None) -> RunConfig:
        """The config for one of the study's strategies; without `strategy`, the config file's own strategy without any
        strategy settings of the command line."""
        named = [] if strategy is None else [f"strategy.name={strategy}"]
        return load(self.config, [*self._shared(strategy), *named])

    def _shared(self, strategy: str | None) -> list[str]:
        """The overrides without settings that this strategy does not have."""
        return [
            override
            for override in self.overrides
            if (setting := strategy_setting(override)) is None
            or (strategy is not None and strategy_has(strategy, setting))
        ]

    def check(self, matrix: Matrix) -> None:
        """Refuses strategy settings that no strategy of the study has."""
        names = [word.partition(":")[0] for word in matrix.strategies]
        for override in self.overrides:
            setting = strategy_setting(override)
            if setting is not None and not any(strategy_has(name, setting) for name in names):
                load(self.config, [override, f"strategy.name={names[0]}"])

    def facts(self) -> dict[str, Any]:
        """What a study that is continued must have in common with its beginning."""
        facts = self.load().model_dump(mode="json")
        for override in self.overrides:
            if strategy_setting(override) is not None:
                apply_override(facts, override)
        return facts


class StudyProgress(Protocol):
    """Whoever waits is told what is measured, what was measured, and how long the rest takes."""

    def begin(self, cell: Cell, done: int, total: int, remaining: float | None) -> None: ...

    def end(self, cell: Cell, sample: TrialSample) -> None: ...


def run(job: StudyJob, matrix: Matrix, folder: Path, progress: StudyProgress) -> Study:
    """Measures what is not measured yet. Stored after every trial: it may be interrupted whenever it likes."""
    cells = matrix.cells()
    job.check(matrix)
    for cell in cells:  # what is wrong shows before anything is measured
        load(job.config, job.settings(matrix, cell))
    machine = {"host": platform.node(), "cores": len(os.sched_getaffinity(0))}
    settings = {"matrix": matrix.facts(), "machine": machine, "fault": os.environ.get(FAULT, ""), "job": job.facts()}
    with held(folder) as trials, _told_to_stop():
        if any(link != NO_LINK for link in matrix.links):
            clean_up()
        study = begin(folder, settings, _environment())
        have = {(taken.cell, taken.round) for taken in study.trials}
        todo = [(turn, cell) for turn, cell in _turns(cells, matrix.rounds) if (cell, turn) not in have]
        for place, (turn, cell) in enumerate(todo):
            done = len(cells) * matrix.rounds - len(todo) + place
            progress.begin(cell, done, len(cells) * matrix.rounds, _remaining(study, [one for _, one in todo[place:]]))
            start = time.monotonic()
            trial = _try(job, matrix, cell, trials / cell.key)
            sample = measure(trial.steps, matrix.warmup, silent=cell.without == "communication")
            study.environment |= _seen(trial)
            remove(trial.run)
            study.trials.append(Taken(cell, turn, sample, time.monotonic() - start))
            study.save()
            progress.end(cell, sample)
        study.finished = True
    return study


def _turns(cells: list[Cell], rounds: int) -> Iterator[tuple[int, Cell]]:
    """Every other round goes backwards: what drifts slowly meets the first and the last cell alike."""
    for turn in range(rounds):
        for cell in cells if turn % 2 == 0 else reversed(cells):
            yield turn, cell


def _try(job: StudyJob, matrix: Matrix, cell: Cell, folder: Path) -> Trial:
    words = (folder, job.config, job.settings(matrix, cell), cell.workers, cell.servers, cell.without)
    try:
        if cell.link == NO_LINK:
            return attempt(*words)
        with EmulatedNetwork(cell.workers + cell.servers, cell.link) as network:
            return attempt(*words, network=network)
    except LockstepError as error:
        kept = "What was measured is kept: the same command goes on."
        raise LockstepError(f"{cell.label}: {error.message}", kept, error.code) from None


def _remaining(study: Study, cells: list[Cell]) -> float | None:
    """Seconds, going by the trials of the same cell, or of all."""
    if not study.trials:
        return None
    known: dict[Cell, list[float]] = {}
    for taken in study.trials:
        known.setdefault(taken.cell, []).append(taken.seconds)
    usual = fmean(taken.seconds for taken in study.trials)
    return sum(fmean(known.get(cell, [usual])) for cell in cells)


def _environment() -> dict[str, Any]:
    return {
        "platform": platform.platform(),
        "load_before": round(os.getloadavg()[0], 2),
        "lockstep": __version__,
        "began": time.strftime("%Y-%m-%d %H:%M"),
    }


def _seen(trial: Trial) -> dict[str, Any]:
    """What a trial's own records tell of where it ran and on what."""
    run = RunDirectory(trial.run)
    known, data = read_json(run.environment) or {}, read_json(run.data) or {}
    workers = known.get("workers") or [{}]
    facts = trial.launch
    seen = {"device": workers[0].get("device_name"), "versions": known.get("versions"), "corpus": data.get("digest")}
    return seen | {"precision": facts.get("precision"), "unit": facts.get("unit", "words")}


@contextmanager
def _told_to_stop() -> Iterator[None]:
    """SIGTERM cleans up as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
