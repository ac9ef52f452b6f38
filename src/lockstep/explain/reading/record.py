"""Reads a run directory. Every file is read once; a missing or damaged one is noted and does not raise an error."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import yaml
from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.explain.reading.journal_file import JournalFile, read_file
from lockstep.explain.reading.json_access import list_dicts
from lockstep.explain.reading.launches import Launch, list_launches
from lockstep.explain.reading.measured_steps import MeasuredSteps
from lockstep.explain.reading.saved_checkpoints import SavedCheckpoint, read_saved_checkpoint
from lockstep.explain.reading.steps import Column, Steps, join_steps
from lockstep.files import read_json
from lockstep.run.best import Evaluation
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Line, worker_file
from lockstep.run.standing import as_integer, select_standing
from lockstep.settings import flat
from lockstep.yaml_text import parse_yaml

SHARED = ("evaluation", "checkpoint", "stop")
"""Events that all workers write at the same step."""


@dataclass(frozen=True)
class Worker:
    """One worker's journal."""

    rank: int
    all_steps: Steps  # in the order in which they were written, with those that a later launch computed again
    steps: Steps  # those that stand: each step once, by its last attempt
    events: list[Line]
    damaged: int

    def select_events(self, *kinds: str) -> list[Line]:
        return [event for event in self.events if event["kind"] in kinds]


@dataclass
class Record:
    """The contents of a run directory. Files are read when something first needs them."""

    path: Path
    running: bool | None = None  # None: the lock of the run decides
    notes: list[str] = field(default_factory=list)
    _files: dict[int, JournalFile] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, name: str | None = None, running: bool | None = None) -> "Record":
        """Opens the run in a folder. `name` is shown to people when the folder is a copy of a run on an object store."""
        run = RunDirectory(path, name)
        if not path.is_dir() and name is None:
            raise LockstepError(f"There is no run folder {path}.", "`lockstep runs FOLDER` lists the runs in it.", 2)
        if not any(run.journal.glob("worker-*.jsonl")) and not (run.config.exists() and run.choices.exists()):
            raise LockstepError(
                f"{run.name} is not a run: it has no journal.",
                "Name a folder that `lockstep train` made; `lockstep runs FOLDER` lists them.",
                code=2,
            )
        return cls(path, running)

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.path)

    def _read_json(self, path: Path) -> dict[str, JsonValue]:
        try:
            value = read_json(path)
        except (LockstepError, OSError):
            value = None
            self.notes.append(f"{path.name} cannot be read.")
        else:
            if value is None:
                self.notes.append(f"{path.name} is missing.")
        return value if isinstance(value, dict) else {}

    @cached_property
    def config(self) -> dict[str, JsonValue]:
        try:
            value = parse_yaml(self.run.config.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self.notes.append("config.yaml is missing.")
            return {}
        except (OSError, ValueError, yaml.YAMLError):
            self.notes.append("config.yaml cannot be read.")
            return {}
        return value if isinstance(value, dict) else {}

    def setting(self, key: str) -> JsonValue:
        """Returns a setting of the config by its dotted name, or None."""
        node: JsonValue = dict(self.config)
        for part in key.split("."):
            node = node.get(part) if isinstance(node, dict) else None
        return node

    @cached_property
    def data(self) -> dict[str, JsonValue]:
        return self._read_json(self.run.data)

    @cached_property
    def environment(self) -> dict[str, JsonValue]:
        return self._read_json(self.run.environment)

    @cached_property
    def choices(self) -> dict[str, JsonValue]:
        return self._read_json(self.run.choices)

    @cached_property
    def proof(self) -> dict[str, JsonValue] | None:
        """The result of `lockstep prove`, or None when it was not used on this run."""
        return self._read_json(self.run.proof) or None if self.run.proof.exists() else None

    @cached_property
    def test_scores(self) -> dict[str, JsonValue] | None:
        """The scores on test texts that end a fine-tuning, or None for other runs."""
        return self._read_json(self.run.tests) or None if self.run.tests.exists() else None

    @cached_property
    def checkpoints(self) -> list[SavedCheckpoint]:
        """Checkpoints with a readable manifest, oldest first."""
        checkpoints = []
        for path in sorted(self.run.checkpoints.glob("step-*")):
            checkpoint = read_saved_checkpoint(path)
            if checkpoint is None:
                self.notes.append(f"The checkpoint {path.name} has no readable manifest.")
            else:
                checkpoints.append(checkpoint)
        return checkpoints

    @cached_property
    def ranks(self) -> list[int]:
        stems = (path.stem.removeprefix("worker-") for path in self.run.journal.glob("worker-*.jsonl"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def _get_file(self, rank: int) -> JournalFile:
        if rank not in self._files:
            self._files[rank] = read_file(worker_file(self.run.journal, rank))
        return self._files[rank]

    @cached_property
    def monitored_faults(self) -> list[Line]:
        """The `fault` lines of the monitors, which watch workers from outside, in the order of time."""
        every = (line for path in sorted(self.run.journal.glob("monitor-*.jsonl")) for line in read_file(path).events)
        return sorted((line for line in every if line["kind"] == "fault"), key=lambda line: float(line["time"]))

    @cached_property
    def _first_file(self) -> JournalFile:
        """The journal of worker 0, or of the first worker that has one."""
        if not self.ranks:
            self.notes.append("There is no journal: the run ended before its first line.")
        return self._get_file(self.ranks[0] if self.ranks else 0)

    @cached_property
    def _is_resilient(self) -> bool:
        """Whether workers may leave and join, and so miss steps that others take."""
        return any(line.get("strategy") == "resilient" or "lineage" in line for line in self._first_file.events)

    @cached_property
    def primary(self) -> Worker:
        """The first worker. Steps and events that it missed while it was away come from the other journals."""
        worker = self._read_worker(self.ranks[0] if self.ranks else 0)
        if not self._is_resilient:
            return worker
        others = [self._read_worker(rank) for rank in self.ranks[1:]]
        known = {(line["kind"], line.get("step")) for line in worker.events if line["kind"] in SHARED}
        events, steps = list(worker.events), worker.steps
        for other in others:
            steps = join_steps(steps, other.steps)
            missed = [line for line in other.select_events(*SHARED) if (line["kind"], line.get("step")) not in known]
            known |= {(line["kind"], line.get("step")) for line in missed}
            events += missed
        events.sort(key=lambda line: float(line["time"]))
        return replace(worker, steps=steps, events=events)

    @cached_property
    def workers(self) -> dict[int, Worker]:
        first = self.primary
        return {rank: first if rank == first.rank else self._read_worker(rank) for rank in self.ranks or [0]}

    def _read_worker(self, rank: int) -> Worker:
        file = self._get_file(rank)
        others = [self._get_file(known) for known in self.ranks] if self._is_resilient else [self._first_file]
        events = (line for other in others if other is not file for line in other.events)
        return Worker(rank, file.all_steps, file.select_standing_steps(events), file.events, file.damaged)

    @cached_property
    def launches(self) -> list[Launch]:
        """The launches in the order of the first worker's journal."""
        return list_launches(self.primary.events, self.primary.all_steps, flat(self.config))

    @cached_property
    def evaluations(self) -> list[Line]:
        """The `evaluation` lines that stand, one per step."""

        def is_readable(line: Line) -> bool:
            return as_integer(line.get("step")) is not None and isinstance(line.get("scores"), dict)

        events = (line for line in self.primary.events if line["kind"] != "evaluation" or is_readable(line))
        return select_standing(events, "evaluation")

    def scores(self, name: str) -> tuple[Column, Column]:
        """Returns steps and values of one score, from all evaluations that have it."""
        pairs = [(line["step"], line["scores"].get(name)) for line in self.evaluations]
        known = [(step, value) for step, value in pairs if isinstance(value, int | float) and math.isfinite(value)]
        both = np.array(known, np.float64).reshape(-1, 2)
        return both[:, 0], both[:, 1]

    def list_evaluations(self, name: str) -> list[Evaluation]:
        """Returns the same as `scores`, with the loss of each evaluation where it is known."""
        losses = dict(zip(*(column.tolist() for column in self.scores("loss")), strict=True))
        steps, values = self.scores(name)
        pairs = zip(steps.tolist(), values.tolist(), strict=True)
        return [Evaluation(int(step), value, losses.get(step)) for step, value in pairs]

    @cached_property
    def last_launch(self) -> Launch:
        """The last launch that has measured steps, or else the last one. Its setting is shown with the figures."""
        own = [launch for launch in self.launches if launch.attempt in self._measured_attempts] or self.launches
        return own[-1] if own else Launch({}, 0.0, 0.0)

    @property
    def run_line(self) -> Line:
        """The `run` line of the last launch."""
        return self.last_launch.facts

    @cached_property
    def _measured_attempts(self) -> set[int]:
        """Numbers of the launches that have steps after their warm-up."""
        steps = self.primary.steps
        return set(steps.attempt[steps.warmup == 0].astype(int).tolist())

    @property
    def model(self) -> Line:
        """Parameters, FLOPs per word and peak, where they were measured."""
        lines = self.primary.select_events("model")
        model = lines[-1] if lines else self.run_line.get("model")
        return model if isinstance(model, dict) else {}

    @property
    def metric(self) -> str:
        return str(self.run_line.get("metric", "loss"))

    @property
    def unit(self) -> str:
        """What loss and speed count: target words or images. Old journals do not say, and all count words."""
        unit = str(self.run_line.get("unit", "words"))
        return "target words" if unit == "words" else unit

    @property
    def higher_is_better(self) -> bool:
        return bool(self.run_line.get("higher_is_better", False))

    @cached_property
    def comparable_attempts(self) -> tuple[int, ...]:
        """Numbers of the launches that had the same setting as the last one with measured steps."""
        if not self.launches:
            return tuple(sorted(self._measured_attempts))
        return tuple(
            launch.attempt for launch in self.launches if launch.comparison_key == self.last_launch.comparison_key
        )

    def select_measured(self, workers: Mapping[int, Worker]) -> MeasuredSteps:
        """Returns the steps of these workers that count for averages."""
        attempts = self.comparable_attempts
        size = max((launch.workers for launch in self.launches if launch.attempt in attempts), default=len(workers))
        chosen, warmup, partial = dict[int, Steps](), 0, False
        for rank, worker in workers.items():
            own = worker.steps.where(np.isin(worker.steps.attempt, attempts))
            timed = own.where(own.warmup == 0)
            if rank == self.primary.rank:
                warmup, partial = len(own) - len(timed), len(own) < len(worker.steps)
            if rank < size and (len(timed) or rank == self.primary.rank):
                chosen[rank] = timed
        return MeasuredSteps(chosen, warmup, attempts, partial)

    @cached_property
    def measured(self) -> MeasuredSteps:
        return self.select_measured(self.workers)

    @property
    def damaged_lines(self) -> int:
        return sum(worker.damaged for worker in self.workers.values())

    @cached_property
    def state(self) -> str:
        """running, finished, stopped (by a signal or train.max_hours, after saving) or cut off (killed: the journal has no
        `stop` line)."""
        if self.run.busy() if self.running is None else self.running:
            return "running"
        marks = [event for event in self.primary.events if event["kind"] in ("run", "stop")]
        if not marks or marks[-1]["kind"] == "run":
            return "cut off"
        return "stopped" if marks[-1].get("reason") in ("signal", "max_hours") else "finished"

    @property
    def environment_of_workers(self) -> list[dict[str, JsonValue]]:
        """Host, device and cores of every worker of the last launch."""
        return list_dicts(self.environment.get("workers"))

    @property
    def hosts(self) -> list[str]:
        """The host of every worker of the last launch."""
        return [str(worker.get("host", "?")) for worker in self.environment_of_workers]

    @property
    def device(self) -> str:
        first = next(iter(self.environment_of_workers), {})
        return str(first.get("device", "cpu")).partition(":")[0]

    @cached_property
    def last_step(self) -> int:
        """The last step that any worker took."""
        steps = self.primary.steps
        if len(steps) and steps.is_global:
            return int(steps.step[-1])
        return max((int(worker.steps.step[-1]) for worker in self.workers.values() if len(worker.steps)), default=0)
