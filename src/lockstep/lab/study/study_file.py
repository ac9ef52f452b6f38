"""What a study has measured so far, in one file that is always whole. The same command goes on from it."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lockstep.config import drop_ignored
from lockstep.errors import LockstepError
from lockstep.files import disk_error, read_json, write_json
from lockstep.lab.study.cells import Cell, Matrix
from lockstep.lab.study.sample import TrialSample
from lockstep.settings import flat

FORMAT = 1
FILE, TRIALS = "study.json", "trials"
ELSEWHERE = "choose another --out folder"


@dataclass(frozen=True)
class Taken:
    """A trial that was measured."""

    cell: Cell
    round: int
    sample: TrialSample
    seconds: float  # with its start

    def facts(self) -> dict[str, Any]:
        return {"cell": asdict(self.cell), "round": self.round, "seconds": self.seconds, "sample": self.sample.facts()}

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Taken":
        return cls(Cell(**facts["cell"]), facts["round"], TrialSample.of(facts["sample"]), facts["seconds"])


@dataclass
class Study:
    """`settings` are all that decide what is measured, `environment` where it was."""

    folder: Path
    settings: dict[str, Any]
    environment: dict[str, Any]
    trials: list[Taken] = field(default_factory=list)
    finished: bool = False

    @property
    def matrix(self) -> Matrix:
        return Matrix.of(self.settings["matrix"])

    def samples(self, cell: Cell) -> list[TrialSample]:
        """In the order of the rounds."""
        found = [trial for trial in self.trials if trial.cell == cell]
        return [trial.sample for trial in sorted(found, key=lambda trial: trial.round)]

    def save(self, results: dict[str, Any] | None = None) -> None:
        facts: dict[str, Any] = {"format": FORMAT, "finished": self.finished, "settings": self.settings}
        facts |= {"environment": self.environment, "results": results}
        try:
            write_json(self.folder / FILE, facts | {"trials": [trial.facts() for trial in self.trials]})
        except OSError as error:
            raise disk_error(self.folder, error, ELSEWHERE) from None


def read_study(folder: Path) -> Study:
    """A study that was begun; also given by the name of its file."""
    folder = folder.parent if folder.name == FILE else folder
    facts = _read(folder)
    if facts is None:
        raise LockstepError(
            f"{folder} holds no study.", "Name a folder that `lockstep study --out FOLDER` made.", code=2
        )
    return facts


def _read(folder: Path) -> Study | None:
    path = folder / FILE
    try:
        facts = read_json(path)
        if facts is None:
            return None
        if facts["format"] != FORMAT:
            raise LockstepError(f"{path} has format {facts['format']}, which is not known.", "Measure again.", code=2)
        trials = [Taken.of(trial) for trial in facts["trials"]]
        settings = dict(facts["settings"])
        drop_ignored(settings["job"], from_run=True)
        study = Study(folder, settings, dict(facts["environment"]), trials, bool(facts["finished"]))
        assert study.matrix.cells()
        return study
    except OSError as error:
        raise disk_error(path, error, "name another folder") from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise LockstepError(f"{path} is damaged: it is not a study.", f"Delete it, or {ELSEWHERE}.", code=2) from None


def begin(folder: Path, settings: dict[str, Any], environment: dict[str, Any]) -> Study:
    """A new study, or the one in the folder if it measures the same. More rounds may be asked for than before."""
    known = _read(folder)
    if known is None:
        return Study(folder, settings, environment)
    before, now = flat(known.settings), flat(settings)
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
    known.settings, known.finished = settings, False
    return known


@contextmanager
def held(folder: Path) -> Iterator[Path]:
    """Keeps a second study out of the folder; yields where trials may lie, which is removed at the end, and at the next
    start when there was no end."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise disk_error(folder, error, ELSEWHERE) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockstepError(f"Another study is being measured in {folder}.", "Wait for it to end.") from None
        remove(folder / TRIALS)
        (folder / TRIALS).mkdir()
        try:
            yield folder / TRIALS
        finally:
            remove(folder / TRIALS)


def remove(folder: Path) -> None:
    """Also when a process that is being killed still writes there."""
    for _ in range(5):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
