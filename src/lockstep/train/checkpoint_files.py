"""What a checkpoint contains, and loading it. `lockstep.run.checkpoint` says what is in one, `checkpoint_parts` how it is
written. Nothing is ever unpickled.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from lockstep.files import write_atomically
from lockstep.parallel.strategy import FindTensor, State
from lockstep.run.checkpoint import Checkpoint, Progress, list_all, read_checkpoint, sign
from lockstep.run.retention import Keep, delete_others
from lockstep.run_service.run_client import ServiceAddress
from lockstep.tasks.task import collect_weights
from lockstep.team import Team
from lockstep.train import tensors
from lockstep.train.background_writer import FileContent
from lockstep.train.checkpoint_parts import CheckpointPart, Failure, SaveFailed, complete, describe_failure, write_part

PRIVATE = "private."
MEMORY_DISK = "/dev/shm"
"""Small files are collected here: a disk to which a checkpoint is being written is slow."""
Export = Callable[[Path], None]
"""Writes the model into a folder, for use without the trainer."""


def collect_files(step: int, state: State, export: Export, team: Team) -> list[FileContent]:
    """Returns the files that this worker writes. Their tensors are live: they must be copied or written before the next
    step. All workers call it together."""
    named = state.tensors | {PRIVATE + name: tensor for name, tensor in state.private.items()}
    model = team.all_do(lambda: _collect_model(step, export) if team.primary else [])
    addresses = {piece.data_ptr() for _, pieces in model for piece in pieces if isinstance(piece, Tensor)}
    exported = [name for name, tensor in named.items() if tensors.find_shard(tensor).local.data_ptr() in addresses]
    own = tensors.choose_own(named, team, exported)
    state_files = [(f"state/worker-{team.rank:04d}.safetensors", tensors.encode(own))] if own else []
    return [*state_files, *model]


def _collect_model(step: int, export: Export) -> list[FileContent]:
    """Returns the files of the exported model. Weights that `write_model` would write are not copied here."""
    try:
        place = MEMORY_DISK if os.access(MEMORY_DISK, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="lockstep-model-", dir=place) as name, collect_weights() as weights:
            folder = Path(name) / "model"
            export(folder)
            paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
            files: list[FileContent] = [(str(path.relative_to(name)), [path.read_bytes()]) for path in paths]
            for path, named in weights.items():
                shards = {name: tensors.find_shard(tensor) for name, tensor in named.items()}
                files.append((str(path.relative_to(name)), tensors.encode(shards)))
            return files
    except OSError as error:
        raise SaveFailed(step, describe_failure(error)) from None


def make_facts(progress: Progress, state: State) -> dict[str, Any]:
    """Returns what a manifest says of where the run stands."""
    return asdict(progress) | {"scalars": state.scalars}


def write_now(
    part: CheckpointPart,
    files: list[FileContent],
    team: Team,
    facts: dict[str, Any],
    config: dict[str, Any],
    keep: Keep,
    service: ServiceAddress | None = None,
) -> tuple[int, Failure | None]:
    """Writes a checkpoint by all workers together, while they wait. Returns its size in bytes and, if it could not be
    written, why. A worker with a service sends its part to the run folder on another host."""
    failure: Failure | None = None
    size = 0
    alive = [(name, [_make_plain(piece) for piece in pieces]) for name, pieces in files]
    try:
        write_part(part, [(name, [_view(piece) for piece in pieces]) for name, pieces in alive], service=service)
    except SaveFailed as error:
        failure = error.failure
    failures = [one for one in team.gather(failure) if one is not None]
    if team.primary and failures:
        shutil.rmtree(part.aside, ignore_errors=True)
    elif team.primary:  # all markers are there
        try:
            size = complete(part, facts, config, keep)
        except SaveFailed as error:
            failures = [error.failure]
    return team.gather(size)[0], team.gather(failures[0] if failures else None)[0]


def _make_plain(piece: bytes | Tensor) -> bytes | Tensor:
    return piece if isinstance(piece, bytes) else piece.detach().cpu().contiguous()


def _view(piece: bytes | Tensor) -> bytes | memoryview:
    return piece if isinstance(piece, bytes) else tensors.view_bytes(piece)


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
        raise SaveFailed(progress.step, describe_failure(error)) from None
    delete_others(path.parent, keep(list_all(path.parent)) | {path})


def load(saved: Checkpoint, state: dict[str, Tensor]) -> None:
    """Fills the tensors of `state` in place."""
    tensors.read(saved.path / "state", state)


def find_private(saved: Checkpoint) -> FindTensor:
    """Returns a function that reads tensors which only the strategy that saved them can use."""
    shards = tensors.list_shards(saved.path / "state")

    def find(name: str) -> Tensor | None:
        known = shards.get(PRIVATE + name)
        return None if known is None else tensors.read_whole(PRIVATE + name, known[0])

    return find
