"""The checkpoints of a run as a list: step, score, size, whether each is complete, and why it is kept. No torch."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import JsonValue

from lockstep.run.checkpoint import Checkpoint, choose, list_all, read_checkpoint
from lockstep.run.journal import Line, parse_line, worker_file
from lockstep.run.retention import rank_by_score

NO_MANIFEST = "no readable manifest"
STEP_START = b'{"kind":"step"'
"""How a step line begins. Most lines are step lines, so they are skipped before they are parsed."""


@dataclass(frozen=True)
class CheckpointRow:
    """One checkpoint. `damage` is None when all its files exist and have the right size; digests are not compared."""

    name: str
    step: int
    score: float | None
    saved_at: float | None  # seconds since 1970
    bytes: int
    damage: str | None
    is_best: bool
    is_last: bool
    reason: str  # why it is kept: `last 3` for train.keep_last=3, `best 1` for train.keep_best=1

    def as_dict(self) -> dict[str, JsonValue]:
        return asdict(self)


@dataclass(frozen=True)
class JournalledSaves:
    """What the first worker's journal says about checkpoints."""

    saved_at: Mapping[int, float]  # by step
    metric: str = "score"
    higher_is_better: bool = False


def read_saves(journal: Path) -> JournalledSaves:
    """Reads the launches and saves from the first worker's journal. Without a journal, nothing is known."""
    saved_at, launch = dict[int, float](), Line()
    for line in _read_events(worker_file(journal, 0)):
        if line["kind"] == "run":
            launch = line
        elif line["kind"] == "checkpoint":
            saved_at[int(line["step"])] = float(line["time"])
    return JournalledSaves(saved_at, str(launch.get("metric", "score")), bool(launch.get("higher_is_better", False)))


def _read_events(path: Path) -> Iterator[Line]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for raw in file:
            line = None if raw.startswith(STEP_START) else parse_line(raw)
            if line is not None:
                yield line


def list_checkpoints(folder: Path, saves: JournalledSaves, has_files: bool = True) -> list[CheckpointRow]:
    """Returns the checkpoints in a folder, oldest first. With `has_files=False` the folder has manifests only, and no file
    is looked for."""
    all_saved = list_all(folder)
    reasons = _explain_retention(all_saved, saves.higher_is_better) if all_saved else {}
    best_path = choose(all_saved, "best").saved.path if all_saved else None
    rows = []
    for path in sorted(folder.glob("step-*")):
        saved = read_checkpoint(path)
        if saved is None:
            rows.append(_describe_unreadable(path))
            continue
        rows.append(
            CheckpointRow(
                path.name,
                saved.step,
                saved.score,
                saves.saved_at.get(saved.step) or _find_time(path, has_files),
                saved.bytes + (path / "manifest.json").stat().st_size,
                _find_wrong_size(saved) if has_files else None,
                is_best=path == best_path and saved.score is not None,
                is_last=path == all_saved[-1].path,
                reason=reasons[path],
            )
        )
    return rows


def _explain_retention(all_saved: list[Checkpoint], higher_is_better: bool) -> dict[Path, str]:
    """Returns for every checkpoint which setting of the last save retains it."""
    last = all_saved[-1]
    settings = last.manifest["config"].get("train", {})
    keep_last, keep_best = int(settings.get("keep_last", 1)), int(settings.get("keep_best", 1))
    newest = {saved.path for saved in all_saved[-keep_last:]}
    ranked = rank_by_score(all_saved, higher_is_better, last.progress().best_step)[:keep_best]
    best = {saved.path for saved in ranked}
    reasons = {}
    for saved in all_saved:
        rules = [f"last {keep_last}"] * (saved.path in newest) + [f"best {keep_best}"] * (saved.path in best)
        reasons[saved.path] = ", ".join(rules) or "none: the next save deletes it"
    return reasons


def _describe_unreadable(path: Path) -> CheckpointRow:
    digits = path.name.removeprefix("step-")
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    reason = "none: training neither uses nor deletes it"
    return CheckpointRow(
        path.name, int(digits) if digits.isdigit() else 0, None, None, size, NO_MANIFEST, False, False, reason
    )


def _find_wrong_size(saved: Checkpoint) -> str | None:
    """Finds a file that is missing or has another size, which takes no time."""
    for name, expected in saved.manifest["files"].items():
        file = saved.path / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != expected["bytes"]:
            return f"{name} has {file.stat().st_size:,} bytes instead of {expected['bytes']:,}"
    return None


def _find_time(path: Path, has_files: bool) -> float | None:
    """When the state was written, by the clock of the file system."""
    state = path / "state"
    return state.stat().st_mtime if has_files and state.is_dir() else None
