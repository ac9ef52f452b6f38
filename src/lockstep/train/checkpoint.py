"""Checkpoints: whole or not there at all.

    step-00002000/
        manifest.json          step, data position, scores, scalars, and size and SHA-256 of every file below
        state/*.safetensors    model and optimizer, by torch.distributed.checkpoint: any number of workers can read it
        model/                 the model alone, with its config and vocabulary, for use without Lockstep's trainer

A checkpoint is written aside, synced, digested, and renamed; the manifest is written last. Nothing is ever unpickled.
Older ones go only after the new one is durable, and by rename first, so a half-deleted one can't be mistaken for whole.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep import faults
from lockstep.errors import LockstepError
from lockstep.parallel.strategy import State
from lockstep.team import Team

FORMAT = 1


@dataclass
class Progress:
    """Where a run stands, beside its tensors."""

    step: int = 0
    epoch: int = 0
    cursor: int = 0
    skipped_in_a_row: int = 0
    skipped: int = 0
    evaluations_without_gain: int = 0
    best_score: float | None = None
    best_step: int | None = None
    score: float | None = None  # of this very step, when it was evaluated
    scalars: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Saved:
    """A checkpoint on disk, by its manifest."""

    path: Path
    manifest: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.manifest["progress"]["step"])

    @property
    def score(self) -> float | None:
        score = self.manifest["progress"]["score"]
        return None if score is None else float(score)

    def progress(self) -> Progress:
        return Progress(**self.manifest["progress"])

    def damage(self) -> str | None:
        """What is wrong with the files, or None when every byte is as it was written."""
        for name, expected in self.manifest["files"].items():
            file = self.path / name
            if not file.is_file():
                return f"{name} is missing"
            if file.stat().st_size != expected["bytes"] or digest(file) != expected["sha256"]:
                return f"{name} does not match its digest"
        return None


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def listed(folder: Path) -> list[Saved]:
    """The checkpoints of a run, oldest first; their manifests are read, their digests are not checked."""
    found = []
    for path in sorted(folder.glob("step-*")):
        manifest = read_manifest(path / "manifest.json")
        if manifest is not None:
            found.append(Saved(path, manifest))
    return found


def read_manifest(path: Path) -> dict[str, Any] | None:
    """A manifest that is there, is of this format and is as it was written; else None."""
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        whole = manifest["format"] == FORMAT and manifest["sha256"] == _own_digest(manifest)
        return dict(manifest) if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _own_digest(manifest: dict[str, Any]) -> str:
    facts = json.dumps([manifest["format"], manifest["progress"], manifest["files"]], sort_keys=True)
    return hashlib.sha256(facts.encode()).hexdigest()


def newest_whole(folder: Path) -> tuple[Saved | None, list[str]]:
    """The newest checkpoint without damage, and a sentence about each one that had to be passed over."""
    passed = [f"{path.name}: no readable manifest" for path in _without_manifest(folder)]
    for saved in reversed(listed(folder)):
        damage = saved.damage()
        if damage is None:
            return saved, passed
        passed.append(f"{saved.path.name}: {damage}")
    return None, passed


def _without_manifest(folder: Path) -> list[Path]:
    readable = {saved.path for saved in listed(folder)}
    return [path for path in sorted(folder.glob("step-*")) if path not in readable]


def save(
    folder: Path,
    progress: Progress,
    state: State,
    export: Callable[[Path], None],
    team: Team,
    keep: Callable[[list[Saved]], set[Path]],
) -> tuple[Saved, int]:
    """Writes a checkpoint by all workers together; returns it and its size in bytes. `keep` chooses which stay."""
    final = folder / f"step-{progress.step:08d}"
    aside = folder / f".step-{progress.step:08d}.partial"
    team.primary_does(lambda: _clear(folder, aside))
    team.all_do(lambda: _write_state(aside / "state", state, team))
    faults.at("save")
    size = team.primary_does(lambda: _finish(aside, final, progress, export, state.scalars))
    manifest = json.loads((final / "manifest.json").read_text(encoding="utf-8")) if team.primary else {}
    if team.primary:
        _forget(folder, keep(listed(folder)) | {final})
    return Saved(final, manifest), size


def _clear(folder: Path, aside: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    (aside / "state").mkdir(parents=True)


def sweep(folder: Path) -> None:
    """Removes what a killed launch left half-written or half-deleted."""
    for path in folder.glob(".step-*"):
        shutil.rmtree(path)


@contextmanager
def _quiet() -> Iterator[None]:
    """torch warns a single process that it saves as a single process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _write_state(folder: Path, state: State, team: Team) -> None:
    from torch.distributed.checkpoint import HuggingFaceStorageWriter
    from torch.distributed.checkpoint import save as dcp_save
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        with _quiet():
            dcp_save(state.tensors, storage_writer=writer, process_group=team.facts, no_dist=team.size == 1)
    except (CheckpointException, OSError, RuntimeError) as error:
        raise unwritten(folder.parent, error) from None


def unwritten(path: Path, error: BaseException) -> LockstepError:
    causes = [error, *getattr(error, "failures", {}).values()]
    causes = [cause[0] if isinstance(cause, tuple) else cause for cause in causes]
    found = next((c.strerror for c in causes if isinstance(c, OSError) and c.strerror), None)
    reason = found or str(error).strip().splitlines()[-1]
    return LockstepError(
        f"The checkpoint {path.name.removeprefix('.').removesuffix('.partial')} could not be written: {reason}.",
        "The checkpoints before it are whole: make room and start the same command again.",
    )


def _finish(
    aside: Path, final: Path, progress: Progress, export: Callable[[Path], None], scalars: dict[str, float]
) -> int:
    try:
        export(aside / "model")
        files: dict[str, dict[str, Any]] = {}
        for path in sorted(p for p in aside.rglob("*") if p.is_file()):
            _sync(path)
            files[str(path.relative_to(aside))] = {"bytes": path.stat().st_size, "sha256": digest(path)}
        facts = asdict(progress) | {"scalars": scalars}
        manifest = {"format": FORMAT, "progress": facts, "files": files}
        written = aside / "manifest.json"
        written.write_text(json.dumps(manifest | {"sha256": _own_digest(manifest)}, indent=1), encoding="utf-8")
        for part in (written, aside / "state", aside / "model", aside):
            _sync(part)
        faults.at("rename")
        if final.exists():  # a damaged one of the same step
            final.rename(final.with_name(f".{final.name}.deleted"))
        aside.rename(final)
        _sync(final.parent)
        faults.at("renamed")
        return sum(file["bytes"] for file in files.values()) + (final / "manifest.json").stat().st_size
    except OSError as error:
        raise unwritten(aside, error) from None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _forget(folder: Path, keep: set[Path]) -> None:
    for saved in listed(folder):
        if saved.path not in keep:
            gone = saved.path.with_name(f".{saved.path.name}.deleted")
            saved.path.rename(gone)
            shutil.rmtree(gone)


def keep_best_and_last(last: int, best: int, higher_is_better: bool) -> Callable[[list[Saved]], set[Path]]:
    def keep(all_saved: list[Saved]) -> set[Path]:
        scored = [saved for saved in all_saved if saved.score is not None]
        sign = -1.0 if higher_is_better else 1.0
        scored.sort(key=lambda saved: (sign * (saved.score or 0.0), saved.step))
        return {saved.path for saved in [*all_saved[-last:], *scored[:best]]}

    return keep


def load(saved: Saved, tensors: dict[str, Tensor], team: Team) -> None:
    """Fills `tensors` in place."""
    from torch.distributed.checkpoint import HuggingFaceStorageReader
    from torch.distributed.checkpoint import load as dcp_load

    with torch.no_grad(), _quiet():
        reader = HuggingFaceStorageReader(str(saved.path / "state"))
        dcp_load(tensors, storage_reader=reader, process_group=team.facts, no_dist=team.size == 1)
