"""Writes and loads checkpoints, each complete or not there at all. `lockstep.run.checkpoint` says what is in one.

A checkpoint is written into a temporary folder: state, model, and last the manifest with the digests of all files. The
folder is synced and then renamed. Nothing is ever unpickled. Older checkpoints are deleted only after the new one is
durable, and by a rename first, so that a half-deleted one is never taken for complete. What a kill leaves behind, the next
launch removes (`sweep`).
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from lockstep import faults
from lockstep.errors import LockstepError
from lockstep.files import sha256, sync, write_atomically
from lockstep.parallel.strategy import FindTensor, State
from lockstep.run.checkpoint import Checkpoint, Progress, list_all, read_checkpoint, sign
from lockstep.run.retention import Keep, delete_others, sweep
from lockstep.team import Team
from lockstep.train import tensors

PRIVATE = "private."


def save(
    folder: Path,
    progress: Progress,
    config: dict[str, Any],
    state: State,
    export: Callable[[Path], None],
    team: Team,
    keep: Keep,
) -> int:
    """Writes a checkpoint by all workers together; returns its size in bytes. `keep` returns the ones to retain."""
    final = folder / f"step-{progress.step:08d}"
    aside = folder / f".step-{progress.step:08d}.partial"
    team.primary_does(lambda: _clear(folder, aside))
    team.all_do(lambda: _write_state(aside / "state", state, team))
    faults.at("save")

    def finish() -> int:
        facts = asdict(progress) | {"scalars": state.scalars}
        size = _finish(aside, final, facts, config, export)
        delete_others(folder, keep(list_all(folder)) | {final})
        return size

    return team.primary_does(finish)


def note_score(path: Path, progress: Progress, keep: Keep) -> None:
    """Adds a score to a checkpoint that was saved before its evaluation. The manifest is replaced atomically."""
    saved = read_checkpoint(path)
    if saved is None:
        return
    facts = asdict(progress) | {"scalars": saved.manifest["progress"]["scalars"]}
    manifest = sign(facts, saved.manifest["config"], saved.manifest["files"])
    try:
        write_atomically(path / "manifest.json", json.dumps(manifest, indent=1))
    except OSError as error:
        raise write_error(path, error) from None
    delete_others(path.parent, keep(list_all(path.parent)) | {path})


def _clear(folder: Path, aside: Path) -> None:
    folder.mkdir(exist_ok=True)
    sync(folder.parent)
    sweep(folder)
    (aside / "state").mkdir(parents=True)


def _write_state(folder: Path, state: State, team: Team) -> None:
    named = {PRIVATE + name: tensor for name, tensor in state.private.items()}
    try:
        tensors.write(folder, state.tensors | named, team)
    except (OSError, RuntimeError) as error:
        raise write_error(folder.parent, error) from None


def write_error(path: Path, error: BaseException) -> LockstepError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error).strip().splitlines()[-1]
    return LockstepError(
        f"The checkpoint {path.name.removeprefix('.').removesuffix('.partial')} could not be written: {reason}.",
        "Earlier checkpoints are complete: free some space and start the same command again.",
    )


def _finish(
    aside: Path, final: Path, progress: dict[str, Any], config: dict[str, Any], export: Callable[[Path], None]
) -> int:
    try:
        export(aside / "model")
        files: dict[str, dict[str, Any]] = {}
        for path in sorted(p for p in aside.rglob("*") if p.is_file()):
            sync(path)
            files[str(path.relative_to(aside))] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
        written = aside / "manifest.json"
        written.write_text(json.dumps(sign(progress, config, files), indent=1), encoding="utf-8")
        for part in (written, aside / "state", aside / "model", aside):
            sync(part)
        faults.at("rename")
        if final.exists():  # a damaged one of the same step
            final.rename(final.with_name(f".{final.name}.deleted"))
        aside.rename(final)
        sync(final.parent)
        faults.at("renamed")
        return sum(file["bytes"] for file in files.values()) + (final / "manifest.json").stat().st_size
    except OSError as error:
        raise write_error(aside, error) from None


def load(saved: Checkpoint, state: dict[str, Tensor], team: Team) -> None:
    """Fills the tensors of `state` in place."""
    tensors.read(saved.path / "state", state, team)


def private(saved: Checkpoint) -> FindTensor:
    """Returns a function that reads tensors which only the strategy that saved them can use."""
    from safetensors import safe_open

    paths = tensors.find_files(saved.path / "state")

    def find(name: str) -> Tensor | None:
        if PRIVATE + name not in paths:
            return None
        with safe_open(paths[PRIVATE + name][0], framework="pt") as file:
            return file.get_tensor(PRIVATE + name)

    return find
