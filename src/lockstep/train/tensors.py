"""The tensors of a checkpoint, in safetensors files.

Full tensors are written and read directly. Sharded ones (DTensors) go through torch.distributed.checkpoint, which reads
both kinds of files. Importing it takes more than a second, so it is imported only for shards.
"""

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from lockstep.errors import LockstepError
from lockstep.team import Team


def write(folder: Path, tensors: Mapping[str, Tensor], team: Team) -> None:
    """Called by all workers together. Raises OSError or RuntimeError when something cannot be written."""
    if any(_is_sharded(tensor) for tensor in tensors.values()):
        _write_shards(folder, tensors, team)
        return
    from safetensors.torch import save

    sizes = team.gather({name: tensor.nbytes for name, tensor in tensors.items()})
    own_names = divide(sizes)[team.rank]
    if own_names:
        content = save({name: tensors[name].detach().cpu().contiguous() for name in own_names})
        (folder / f"worker-{team.rank:04d}.safetensors").write_bytes(content)


def divide(sizes: Sequence[Mapping[str, int]]) -> list[list[str]]:
    """Returns what each worker writes, from the bytes of the tensors that each one has. Every tensor is written once, by
    the worker with the least to write so far."""
    owners: dict[str, list[int]] = {}
    for worker, tensors in enumerate(sizes):
        for name in tensors:
            owners.setdefault(name, []).append(worker)
    names, written = [list[str]() for _ in sizes], [0] * len(sizes)
    for name in sorted(owners, key=lambda name: (-sizes[owners[name][0]][name], name)):
        worker = min(owners[name], key=lambda one: written[one])
        names[worker].append(name)
        written[worker] += sizes[worker][name]
    return names


def read(folder: Path, tensors: Mapping[str, Tensor], team: Team) -> None:
    """Fills `tensors` in place. Files and strategy decide which reader is used, so all workers use the same."""
    paths_of = find_files(folder)
    if any(len(paths) > 1 for paths in paths_of.values()) or any(_is_sharded(tensor) for tensor in tensors.values()):
        _read_shards(folder, tensors, team)
        return
    from safetensors import safe_open

    missing = [name for name in tensors if name not in paths_of]
    if missing:
        raise _unfit(folder, f"has no {missing[0]}")
    for path in sorted({paths_of[name][0] for name in tensors}):
        with torch.no_grad(), safe_open(path, framework="pt") as file:
            for name in (name for name in tensors if paths_of[name][0] == path):
                saved = file.get_tensor(name)
                if saved.shape != tensors[name].shape:
                    raise _unfit(folder, f"has another shape of {name}: {tuple(saved.shape)}")
                tensors[name].copy_(saved)


def find_files(folder: Path) -> dict[str, list[Path]]:
    """Returns the files that contain each tensor, or shards of it."""
    from safetensors import safe_open

    paths_of: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                paths_of.setdefault(name, []).append(path)
    return paths_of


def _is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "to_local")


def _unfit(folder: Path, what: str) -> LockstepError:
    return LockstepError(
        f"The checkpoint {folder.parent.name} {what}.", "It is of another model: choose another --run folder.", code=2
    )


def _write_shards(folder: Path, tensors: Mapping[str, Tensor], team: Team) -> None:
    from torch.distributed.checkpoint import HuggingFaceStorageWriter, save
    from torch.distributed.checkpoint.api import CheckpointException

    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        with _quiet():
            save(dict(tensors), storage_writer=writer, process_group=team.facts, no_dist=team.size == 1)
    except CheckpointException as error:
        causes = [failure[0] for failure in error.failures.values()]
        raise next((cause for cause in causes if isinstance(cause, OSError)), RuntimeError(str(error))) from None


def _read_shards(folder: Path, tensors: Mapping[str, Tensor], team: Team) -> None:
    from torch.distributed.checkpoint import HuggingFaceStorageReader, load

    with torch.no_grad(), _quiet():
        reader = HuggingFaceStorageReader(str(folder))
        load(dict(tensors), storage_reader=reader, process_group=team.facts, no_dist=team.size == 1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences torch's warning that a single process saves alone."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Returns a digest of the exact bits of model and optimizer, to compare workers."""
    bits = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        bits.update(name.encode())
        bits.update(tensors[name].detach().cpu().contiguous().numpy().tobytes())
    return bits.hexdigest()
