"""Measures a study. Every round runs every cell once, so that other load on the machine affects all cells alike."""

import os
import platform
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import Protocol

from pydantic import JsonValue

from lockstep import __version__
from lockstep.config import RunConfig, apply_override, load, strategy_has, strategy_setting
from lockstep.errors import LockstepError
from lockstep.files import read_json
from lockstep.lab.emulated_network import EmulatedNetwork, clean_up
from lockstep.lab.study.cells import NO_LINK, Cell, Matrix
from lockstep.lab.study.expected_time import PROBE_STEPS, Probe
from lockstep.lab.study.sample import TrialSample, measure
from lockstep.lab.study.study_file import (
    MeasuredTrial,
    Study,
    StudyEnvironment,
    StudySettings,
    lock_folder,
    open_study,
    remove_folder,
)
from lockstep.lab.trial import Trial, make_trial_settings, run_trial
from lockstep.run import environment_variables
from lockstep.run.directory import RunDirectory

FAULT = "LOCKSTEP_FAULT"


_NOT_IN_TRIALS = "Leave it out: trials measure steps only, without evaluations and checkpoints."
SET_BY_TRIALS = {
    "train.steps": "Use --steps, the measured steps of each trial.",
    "train.threads": "Use --threads, the CPU threads of each worker.",
    "train.patience": _NOT_IN_TRIALS,
    "train.evaluate_every": _NOT_IN_TRIALS,
    "train.checkpoint_every": _NOT_IN_TRIALS,
    "watch.probe": "Leave it out: trials do not probe the link.",
}
"""Settings that every trial of a study sets itself, and what to do instead."""


@dataclass(frozen=True)
class StudyJob:
    """What is trained: a config file and the settings to change in it."""

    config: Path
    overrides: list[str]

    def make_settings(self, matrix: Matrix, cell: Cell) -> list[str]:
        """Returns the settings of a cell's trials. They have no evaluation, no checkpoints and no probe of the link."""
        shared = self._select_overrides(cell.trial_strategy)
        measured = [*make_trial_settings(matrix.warmup + matrix.steps), f"train.threads={matrix.threads}"]
        return [*shared, *cell.list_overrides(matrix.unit), *measured, "watch.probe=false"]

    def load(self, strategy: str | None = None) -> RunConfig:
        """Returns the config for one of the study's strategies. Without `strategy` it is the config file's own
        strategy, and strategy settings of the command line are left out."""
        named = [] if strategy is None else [f"strategy.name={strategy}"]
        return load(self.config, [*self._select_overrides(strategy), *named])

    def _select_overrides(self, strategy: str | None) -> list[str]:
        """Returns the overrides without settings that this strategy does not have."""
        return [
            override
            for override in self.overrides
            if (setting := strategy_setting(override)) is None
            or (strategy is not None and strategy_has(strategy, setting))
        ]

    def check(self, matrix: Matrix) -> None:
        """Raises a LockstepError for settings that would have no effect: those that the trials set themselves, and strategy
        settings that no strategy of the study has."""
        names = [word.partition(":")[0] for word in matrix.strategies]
        for override in self.overrides:
            key = override.partition("=")[0].strip()
            if key in SET_BY_TRIALS:
                raise LockstepError(f"{key} has no effect in a study.", SET_BY_TRIALS[key], code=2)
            setting = strategy_setting(override)
            if setting is not None and not any(strategy_has(name, setting) for name in names):
                load(self.config, [override, f"strategy.name={names[0]}"])

    def as_dict(self) -> dict[str, JsonValue]:
        """Returns the settings that must stay the same when a study is continued."""
        facts: dict[str, JsonValue] = self.load().model_dump(mode="json")
        for override in self.overrides:
            if strategy_setting(override) is not None:
                apply_override(facts, override)
        return facts


class StudyProgress(Protocol):
    """Receives the progress of a study."""

    def begin(self, cell: Cell, done: int, total: int, remaining: float | None) -> None:
        """A trial begins. `remaining` are the estimated seconds of all trials that are left."""

    def end(self, cell: Cell, sample: TrialSample) -> None:
        """A trial was measured and saved."""


def run_study(job: StudyJob, matrix: Matrix, folder: Path, progress: StudyProgress) -> Study:
    """Measures the trials that are not in the study's file yet. The file is saved after every trial, so the study can be
    interrupted at any time."""
    cells = matrix.list_cells()
    job.check(matrix)
    for cell in cells:  # find wrong settings before the first trial
        load(job.config, job.make_settings(matrix, cell))
    settings: StudySettings = {
        "matrix": matrix.as_dict(),
        "machine": {"host": platform.node(), "cores": len(os.sched_getaffinity(0))},
        "fault": environment_variables.faults(),
        "job": job.as_dict(),
    }
    with lock_folder(folder) as trials, _exit_on_sigterm():
        if any(link != NO_LINK for link in matrix.links):
            clean_up()
        study = open_study(folder, settings, _describe_machine())
        measured = {(trial.cell, trial.round) for trial in study.trials}
        todo = [
            (cell, number) for cell, number in _order_trials(cells, matrix.rounds) if (cell, number) not in measured
        ]
        total = len(cells) * matrix.rounds
        for index, (cell, number) in enumerate(todo):
            remaining = _estimate_seconds(study, [one for one, _ in todo[index:]])
            progress.begin(cell, total - len(todo) + index, total, remaining)
            start = time.monotonic()
            trial = _run_cell(job, matrix, cell, trials / cell.key)
            sample = measure(trial.steps, matrix.warmup, silent=cell.without == "communication")
            study.environment.update(_read_environment(trial))
            remove_folder(trial.run)
            study.trials.append(MeasuredTrial(cell, number, sample, time.monotonic() - start))
            study.save()
            progress.end(cell, sample)
        study.finished = True
    return study


def probe_duration(job: StudyJob, matrix: Matrix, folder: Path) -> Probe:
    """Runs a short trial of one worker alone. It is not part of the study."""
    few = replace(matrix, steps=PROBE_STEPS)
    cell = next(cell for cell in few.list_cells() if cell.without == "nothing")
    job.check(matrix)
    with lock_folder(folder) as trials, _exit_on_sigterm():
        begin = time.monotonic()
        trial = _run_cell(job, few, cell, trials / "probe")
        total, seconds = time.monotonic() - begin, [float(line["seconds"]) for line in trial.steps[0]]
        remove_folder(trial.run)
    measured = seconds[matrix.warmup :] or seconds
    return Probe(max(0.0, total - sum(seconds)), fmean(measured), cell.batch)


def _order_trials(cells: list[Cell], rounds: int) -> Iterator[tuple[Cell, int]]:
    """Yields every cell in every round. Every other round is in reverse order, so that a slow drift of the machine affects
    the first and the last cell alike."""
    for number in range(rounds):
        for cell in cells if number % 2 == 0 else reversed(cells):
            yield cell, number


def _run_cell(job: StudyJob, matrix: Matrix, cell: Cell, folder: Path) -> Trial:
    settings = job.make_settings(matrix, cell)
    try:
        if cell.link == NO_LINK:
            return run_trial(folder, job.config, settings, cell.workers, cell.servers, cell.without)
        with EmulatedNetwork(cell.workers + cell.servers, cell.link) as network:
            return run_trial(folder, job.config, settings, cell.workers, cell.servers, cell.without, network)
    except LockstepError as error:
        remedy = "Finished trials are saved: start the same command again to continue."
        raise LockstepError(f"{cell.label}: {error.message}", remedy, error.code) from None


def _estimate_seconds(study: Study, cells: list[Cell]) -> float | None:
    """Returns the seconds that trials of these cells will take, from earlier trials of the same cell or of all cells."""
    if not study.trials:
        return None
    by_cell: dict[Cell, list[float]] = {}
    for trial in study.trials:
        by_cell.setdefault(trial.cell, []).append(trial.seconds)
    mean = fmean(trial.seconds for trial in study.trials)
    return sum(fmean(by_cell.get(cell, [mean])) for cell in cells)


def _describe_machine() -> StudyEnvironment:
    return {
        "platform": platform.platform(),
        "load_before": round(os.getloadavg()[0], 2),
        "lockstep": __version__,
        "began": time.strftime("%Y-%m-%d %H:%M"),
    }


def _read_environment(trial: Trial) -> StudyEnvironment:
    """Reads device, versions, corpus and precision from the files of a trial."""
    run, launch = RunDirectory(trial.run), trial.launch
    environment, data = read_json(run.environment) or {}, read_json(run.data) or {}
    workers = environment.get("workers") or [{}]
    return {
        "device": workers[0].get("device_name"),
        "versions": environment.get("versions"),
        "corpus": data.get("digest"),
        "precision": launch.get("precision"),
        "unit": launch.get("unit", "words"),
    }


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Makes SIGTERM raise SystemExit, so that it cleans up as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
