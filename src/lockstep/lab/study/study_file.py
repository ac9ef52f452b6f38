"""The file of a study. It is replaced after every trial, so the same command can continue an interrupted study."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypedDict

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from lockstep.config import drop_ignored, keep_first_behaviour
from lockstep.errors import LockstepError
from lockstep.files import disk_error, read_json, write_json
from lockstep.lab.study.cells import Cell, CellFacts, Matrix, MatrixFacts
from lockstep.lab.study.sample import SampleFacts, TrialSample
from lockstep.settings import flat

FORMAT = 1
FILE, TRIALS = "study.json", "trials"
ELSEWHERE = "choose another --out folder"


class MachineFacts(TypedDict):
    host: str
    cores: int


class StudySettings(TypedDict):
    """All that decides what is measured."""

    matrix: MatrixFacts
    machine: MachineFacts
    fault: str
    job: dict[str, JsonValue]


class StudyEnvironment(TypedDict, total=False):
    """Where and when a study was measured."""

    platform: str
    load_before: float
    lockstep: str
    began: str
    device: str | None
    versions: dict[str, str] | None
    corpus: str | None
    precision: str | None
    unit: str


class TrialFacts(TypedDict):
    cell: CellFacts
    round: int
    seconds: float
    sample: SampleFacts


class StudyFacts(TypedDict):
    """The content of the file."""

    format: int
    finished: bool
    settings: StudySettings
    environment: StudyEnvironment
    trials: list[TrialFacts]


@dataclass(frozen=True)
class MeasuredTrial:
    """A trial of a cell in one round."""

    cell: Cell
    round: int
    sample: TrialSample
    seconds: float  # with its start

    def as_dict(self) -> dict[str, JsonValue]:
        sample = self.sample.as_dict()
        return {"cell": asdict(self.cell), "round": self.round, "seconds": self.seconds, "sample": sample}

    @classmethod
    def from_dict(cls, facts: TrialFacts) -> "MeasuredTrial":
        return cls(Cell(**facts["cell"]), facts["round"], TrialSample.from_dict(facts["sample"]), facts["seconds"])


@dataclass
class Study:
    """The settings of a study and the trials that have been measured so far."""

    folder: Path
    settings: StudySettings
    environment: StudyEnvironment
    trials: list[MeasuredTrial] = field(default_factory=list)
    finished: bool = False

    @property
    def matrix(self) -> Matrix:
        return Matrix.from_dict(self.settings["matrix"])

    def list_samples(self, cell: Cell) -> list[TrialSample]:
        """Returns the samples of a cell in the order of the rounds."""
        trials = [trial for trial in self.trials if trial.cell == cell]
        return [trial.sample for trial in sorted(trials, key=lambda trial: trial.round)]

    def save(self, results: dict[str, JsonValue] | None = None) -> None:
        facts = {
            "format": FORMAT,
            "finished": self.finished,
            "settings": self.settings,
            "environment": self.environment,
            "results": results,
            "trials": [trial.as_dict() for trial in self.trials],
        }
        try:
            write_json(self.folder / FILE, facts)
        except OSError as error:
            raise disk_error(self.folder, error, ELSEWHERE) from None


def read_study(folder: Path) -> Study:
    """Reads a study from its folder, or from its file."""
    folder = folder.parent if folder.name == FILE else folder
    study = _read(folder)
    if study is None:
        raise LockstepError(
            f"{folder} has no study in it.", "Name a folder that `lockstep study --out FOLDER` made.", code=2
        )
    return study


def _read(folder: Path) -> Study | None:
    path = folder / FILE
    try:
        facts: StudyFacts | None = read_json(path)
        if facts is None:
            return None
        if facts["format"] != FORMAT:
            raise LockstepError(f"{path} has the unknown format {facts['format']}.", "Measure the study again.", code=2)
        trials = [MeasuredTrial.from_dict(trial) for trial in facts["trials"]]
        drop_ignored(facts["settings"]["job"], from_run=True)
        keep_first_behaviour(facts["settings"]["job"])
        study = Study(folder, facts["settings"], facts["environment"], trials, bool(facts["finished"]))
        assert study.matrix.list_cells()
        return study
    except OSError as error:
        raise disk_error(path, error, "name another folder") from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise LockstepError(f"{path} is damaged: it is not a study.", f"Delete it, or {ELSEWHERE}.", code=2) from None


def open_study(folder: Path, settings: StudySettings, environment: StudyEnvironment) -> Study:
    """Returns a new study, or the one in the folder if it has the same settings. Only the number of rounds may grow."""
    study = _read(folder)
    if study is None:
        return Study(folder, settings, environment)
    before, now = flat(to_jsonable_python(study.settings)), flat(to_jsonable_python(settings))
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name) and name != "matrix.rounds"]
    if changed:
        name = changed[0]
        others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise LockstepError(
            f"The study in {folder} was begun with other settings: {name} was {before.get(name)!r} and is now "
            f"{now.get(name)!r}{others}.",
            f"Keep the settings, or {ELSEWHERE}.",
            code=2,
        )
    study.settings, study.finished = settings, False
    return study


@contextmanager
def lock_folder(folder: Path) -> Iterator[Path]:
    """Locks the folder of a study and yields an empty folder for its trials, which is removed at the end. After a crash the
    next start removes it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise disk_error(folder, error, ELSEWHERE) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockstepError(
                f"Another study is being measured in {folder}.", f"Wait for it to end, or {ELSEWHERE}."
            ) from None
        remove_folder(folder / TRIALS)
        (folder / TRIALS).mkdir()
        try:
            yield folder / TRIALS
        finally:
            remove_folder(folder / TRIALS)


def remove_folder(folder: Path) -> None:
    """Removes a folder, trying again while a dying process still writes there."""
    for _ in range(5):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
