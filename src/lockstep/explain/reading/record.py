"""Everything a run directory tells, read once and with patience: what is missing or damaged is noted, never fatal."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lockstep.errors import LockstepError
from lockstep.explain.formatting import plural
from lockstep.explain.reading.journal_file import JournalFile, read_file, took
from lockstep.explain.reading.measured_steps import MeasuredSteps
from lockstep.explain.reading.steps import Column, Steps, joined
from lockstep.files import read_json
from lockstep.run.best import Evaluation
from lockstep.run.checkpoint import Checkpoint, read_checkpoint
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Line, worker_file
from lockstep.run.standing import as_integer, select_standing
from lockstep.settings import flat

SHARED = ("evaluation", "checkpoint", "stop")
"""Events that mean the same in every worker's journal."""


@dataclass(frozen=True)
class Worker:
    """One worker's journal."""

    rank: int
    every: Steps  # all lines as they were written, also of steps that a later launch computed again
    steps: Steps  # those that stand: each step once, by its last attempt
    events: list[Line]
    damaged: int

    def of(self, *kinds: str) -> list[Line]:
        return [event for event in self.events if event["kind"] in kinds]


@dataclass
class Launch:
    """From one `run` line to the next."""

    facts: Line
    begin: float
    end: float
    first_moment: float | None = None  # when the first step, evaluation or checkpoint began
    first_step: int | None = None
    last_step: int | None = None
    reason: str = ""  # empty: no farewell
    resumed: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # of the config, by dotted name

    @property
    def attempt(self) -> int:
        return as_integer(self.facts.get("attempt")) or 1

    @property
    def workers(self) -> int:
        return as_integer(self.facts.get("workers")) or 1

    @property
    def servers(self) -> int:
        return as_integer(self.facts.get("servers")) or 0

    @property
    def strategy(self) -> str:
        return str(self.facts.get("strategy", ""))

    @property
    def asynchronous(self) -> bool:
        """Do workers take shares of a step one by one?"""
        return self.strategy == "server" and self.settings.get("strategy.mode") == "async"

    @property
    def way(self) -> str:
        """The strategy, and what else a reader wants to know of servers: server async on 1 server."""
        if self.strategy != "server":
            return self.strategy
        mode, servers = str(self.settings.get("strategy.mode", "")), plural(self.servers, "server")
        return f"server {mode}{f' on {servers}' * bool(self.servers)}".rstrip()

    @property
    def kind(self) -> tuple[str, ...]:
        """What makes the steps of two launches comparable."""
        facts = [self.facts.get(name) for name in ("workers", "servers", "strategy", "precision", "threads")]
        known = {key: value for key, value in self.settings.items() if value is not None}
        settings = sorted((key, value) for key, value in known.items() if key.startswith("strategy."))
        return tuple(map(str, [*facts, *settings]))


@dataclass
class Record:
    """A run directory."""

    path: Path
    running: bool | None = None  # None: ask the run's lock
    notes: list[str] = field(default_factory=list)
    _files: dict[int, JournalFile] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, name: str | None = None, running: bool | None = None) -> "Record":
        """The run in a folder; `name` is what a person calls it, when it is a copy of a run elsewhere."""
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

    def _json(self, path: Path) -> dict[str, Any]:
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
    def config(self) -> dict[str, Any]:
        try:
            value = yaml.safe_load(self.run.config.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self.notes.append("config.yaml is missing.")
            return {}
        except (OSError, ValueError, yaml.YAMLError):
            self.notes.append("config.yaml cannot be read.")
            return {}
        return value if isinstance(value, dict) else {}

    def setting(self, key: str, otherwise: Any = None) -> Any:
        """A setting by its dotted name."""
        node: Any = self.config
        for part in key.split("."):
            node = node.get(part) if isinstance(node, dict) else None
        return otherwise if node is None else node

    @cached_property
    def data(self) -> dict[str, Any]:
        return self._json(self.run.data)

    @cached_property
    def environment(self) -> dict[str, Any]:
        return self._json(self.run.environment)

    @cached_property
    def choices(self) -> dict[str, Any]:
        return self._json(self.run.choices)

    @cached_property
    def proof(self) -> dict[str, Any] | None:
        """What runs that left something out have shown, when they were made."""
        return self._json(self.run.proof) or None if self.run.proof.exists() else None

    @cached_property
    def saved(self) -> list[Checkpoint]:
        """Checkpoints with a good manifest, oldest first."""
        found = []
        for path in sorted(self.run.checkpoints.glob("step-*")):
            saved = read_checkpoint(path)
            if saved is None:
                self.notes.append(f"The checkpoint {path.name} has no readable manifest.")
            else:
                found.append(saved)
        return found

    @cached_property
    def ranks(self) -> list[int]:
        stems = (path.stem.removeprefix("worker-") for path in self.run.journal.glob("worker-*.jsonl"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def _file(self, rank: int) -> JournalFile:
        if rank not in self._files:
            self._files[rank] = read_file(worker_file(self.run.journal, rank))
        return self._files[rank]

    @cached_property
    def _first(self) -> JournalFile:
        """Of worker 0, or of the first worker whose journal is here."""
        if not self.ranks:
            self.notes.append("There is no journal: the run ended before its first line.")
        return self._file(self.ranks[0] if self.ranks else 0)

    @cached_property
    def _comes_and_goes(self) -> bool:
        """May workers miss steps that others take?"""
        return any(line.get("strategy") == "resilient" or "lineage" in line for line in self._first.events)

    @cached_property
    def primary(self) -> Worker:
        """The first worker. Where workers come and go, what it missed is taken from the others' journals."""
        worker = self._worker(self.ranks[0] if self.ranks else 0)
        if not self._comes_and_goes:
            return worker
        others = [self._worker(rank) for rank in self.ranks[1:]]
        known = {(line["kind"], line.get("step")) for line in worker.events if line["kind"] in SHARED}
        events, steps = list(worker.events), worker.steps
        for other in others:
            steps = joined(steps, other.steps)
            missed = [line for line in other.of(*SHARED) if (line["kind"], line.get("step")) not in known]
            known |= {(line["kind"], line.get("step")) for line in missed}
            events += missed
        events.sort(key=lambda line: float(line["time"]))
        return replace(worker, steps=steps, events=events)

    @cached_property
    def workers(self) -> dict[int, Worker]:
        first = self.primary
        return {rank: first if rank == first.rank else self._worker(rank) for rank in self.ranks or [0]}

    def _worker(self, rank: int) -> Worker:
        file = self._file(rank)
        others = [self._file(known) for known in self.ranks] if self._comes_and_goes else [self._first]
        events = (line for other in others if other is not file for line in other.events)
        return Worker(rank, file.every, file.standing(events), file.events, file.damaged)

    @cached_property
    def launches(self) -> list[Launch]:
        """In the order of the first worker's journal. A worker that is started again within a launch begins no new one."""
        found: list[Launch] = []
        for line in self.primary.events:
            moment = float(line["time"])
            if line["kind"] == "run" and not (found and found[-1].facts.get("attempt") == line.get("attempt")):
                found.append(Launch(line, moment, moment))
            elif found:
                launch = found[-1]
                launch.end = max(launch.end, moment)
                if line["kind"] == "stop":
                    launch.reason = str(line.get("reason") or "")
                elif line["kind"] == "resume":
                    launch.resumed = as_integer(line.get("step"))
                elif line["kind"] in ("evaluation", "checkpoint"):
                    began = moment - took(line)
                    launch.first_moment = min(began, launch.first_moment or began)
        self._add_steps(found)
        self._add_settings(found)
        return found

    def _add_settings(self, launches: list[Launch]) -> None:
        """The config is the last launch's, and each told what it changed."""
        settings = flat(self.config)
        for launch in reversed(launches):
            launch.settings = dict(settings)
            changed = launch.facts.get("changed")
            for key, pair in (changed if isinstance(changed, dict) else {}).items():
                if isinstance(pair, list | tuple) and len(pair) == 2:
                    settings[key] = pair[0]

    def _add_steps(self, launches: list[Launch]) -> None:
        every = self.primary.every
        ends = [*(launch.begin for launch in launches[1:]), math.inf]
        for launch, end in zip(launches, ends, strict=False):
            own = every.where((every.time >= launch.begin) & (every.time < end))
            if len(own):
                began = float(own.time[0] - own.seconds[0])
                launch.first_moment = min(began, launch.first_moment or began)
                launch.end = max(launch.end, float(own.time.max()))
                launch.first_step, launch.last_step = int(own.step.min()), int(own.step.max())

    @cached_property
    def evaluations(self) -> list[Line]:
        """Those that stand, one per step."""

        def is_readable(line: Line) -> bool:
            return as_integer(line.get("step")) is not None and isinstance(line.get("scores"), dict)

        events = (line for line in self.primary.events if line["kind"] != "evaluation" or is_readable(line))
        return select_standing(events, "evaluation")

    def scores(self, name: str) -> tuple[Column, Column]:
        """Steps and values of one score of all evaluations that have it."""
        pairs = [(line["step"], line["scores"].get(name)) for line in self.evaluations]
        known = [(step, value) for step, value in pairs if isinstance(value, int | float) and math.isfinite(value)]
        both = np.array(known, np.float64).reshape(-1, 2)
        return both[:, 0], both[:, 1]

    def evaluations_by(self, name: str) -> list[Evaluation]:
        """The same as `scores`, with the loss of each evaluation where it is known."""
        losses = dict(zip(*(column.tolist() for column in self.scores("loss")), strict=True))
        steps, values = self.scores(name)
        pairs = zip(steps.tolist(), values.tolist(), strict=True)
        return [Evaluation(int(step), value, losses.get(step)) for step, value in pairs]

    @cached_property
    def last_launch(self) -> Launch:
        """The last one that has measured steps, or of all: that one's setting is told beside the figures."""
        own = [launch for launch in self.launches if launch.attempt in self._timed] or self.launches
        return own[-1] if own else Launch({}, 0.0, 0.0)

    @property
    def launch(self) -> Line:
        """The `run` line of that launch."""
        return self.last_launch.facts

    @cached_property
    def _timed(self) -> set[int]:
        """Attempts with steps after the warm-up."""
        steps = self.primary.steps
        return set(steps.attempt[steps.warmup == 0].astype(int).tolist())

    @property
    def model(self) -> Line:
        """Parameters, FLOPs per word and peak, where they were measured."""
        lines = self.primary.of("model")
        told = lines[-1] if lines else self.launch.get("model")
        return told if isinstance(told, dict) else {}

    @property
    def metric(self) -> str:
        return str(self.launch.get("metric", "loss"))

    @property
    def unit(self) -> str:
        """What loss and speed are counted in; journals from before there were images do not tell."""
        unit = str(self.launch.get("unit", "words"))
        return "target words" if unit == "words" else unit

    @property
    def higher_is_better(self) -> bool:
        return bool(self.launch.get("higher_is_better", False))

    @cached_property
    def last_setting(self) -> tuple[int, ...]:
        """Attempts that ran as the last one that has measured steps did."""
        if not self.launches:
            return tuple(sorted(self._timed))
        return tuple(launch.attempt for launch in self.launches if launch.kind == self.last_launch.kind)

    def measured_of(self, workers: dict[int, Worker]) -> MeasuredSteps:
        attempts = self.last_setting
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
        return self.measured_of(self.workers)

    @property
    def damaged_lines(self) -> int:
        return sum(worker.damaged for worker in self.workers.values())

    @cached_property
    def state(self) -> str:
        """running, finished, stopped (by a signal, after saving) or cut off (killed: no farewell in the journal)."""
        if self.run.busy() if self.running is None else self.running:
            return "running"
        marks = [event for event in self.primary.events if event["kind"] in ("run", "stop")]
        if not marks or marks[-1]["kind"] == "run":
            return "cut off"
        return "stopped" if marks[-1].get("reason") == "signal" else "finished"

    @property
    def hosts(self) -> list[str]:
        """Of every worker of the last launch."""
        known = self.environment.get("workers")
        return [str(one.get("host", "?")) for one in known if isinstance(one, dict)] if isinstance(known, list) else []

    @property
    def device(self) -> str:
        known = self.environment.get("workers")
        first = known[0] if isinstance(known, list) and known and isinstance(known[0], dict) else {}
        return str(first.get("device", "cpu")).partition(":")[0]

    @property
    def reached(self) -> int:
        """The last step that any worker took."""
        steps = self.primary.steps
        if len(steps) and (steps.common == 1).all():
            return int(steps.step[-1])
        return max((int(worker.steps.step[-1]) for worker in self.workers.values() if len(worker.steps)), default=0)
