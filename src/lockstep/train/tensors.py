"""The tensors of a checkpoint, in safetensors files.

Whole tensors are written and read as they are. Those that workers hold in parts go through torch.distributed.checkpoint,
which reads both; importing it costs every worker more than a second, which is not spent where nothing is in parts.
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
    """By all workers together. OSError and RuntimeError tell why not."""
    if any(_part(tensor) for tensor in tensors.values()):
        _write_parts(folder, tensors, team)
        return
    from safetensors.torch import save

    sizes = team.gather({name: tensor.nbytes for name, tensor in tensors.items()})
    mine = dealt(sizes)[team.rank]
    if mine:
        content = save({name: tensors[name].detach().cpu().contiguous() for name in mine})
        (folder / f"worker-{team.rank:04d}.safetensors").write_bytes(content)


def dealt(sizes: Sequence[Mapping[str, int]]) -> list[list[str]]:
    """What each worker writes, by the bytes of what it holds: every tensor once, by whoever has least to write so far."""
    holders: dict[str, list[int]] = {}
    for worker, held in enumerate(sizes):
        for name in held:
            holders.setdefault(name, []).append(worker)
    names, written = [list[str]() for _ in sizes], [0] * len(sizes)
    for name in sorted(holders, key=lambda name: (-sizes[holders[name][0]][name], name)):
        worker = min(holders[name], key=lambda one: written[one])
        names[worker].append(name)
        written[worker] += sizes[worker][name]
    return names


def read(folder: Path, tensors: Mapping[str, Tensor], team: Team) -> None:
    """Fills `tensors` in place. All workers take the same way: it is told by the files and by the strategy."""
    found = places(folder)
    if any(len(paths) > 1 for paths in found.values()) or any(_part(tensor) for tensor in tensors.values()):
        _read_parts(folder, tensors, team)
        return
    from safetensors import safe_open

    missing = [name for name in tensors if name not in found]
    if missing:
        raise _unfit(folder, f"has no {missing[0]}")
    for path in sorted({found[name][0] for name in tensors}):
        with torch.no_grad(), safe_open(path, framework="pt") as file:
            for name in (name for name in tensors if found[name][0] == path):
                kept = file.get_tensor(name)
                if kept.shape != tensors[name].shape:
                    raise _unfit(folder, f"has another shape of {name}: {tuple(kept.shape)}")
                tensors[name].copy_(kept)


def places(folder: Path) -> dict[str, list[Path]]:
    """The files that hold each tensor, or parts of it."""
    from safetensors import safe_open

    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                found.setdefault(name, []).append(path)
    return found


def _part(tensor: Tensor) -> bool:
    """A DTensor."""
    return hasattr(tensor, "to_local")


def _unfit(folder: Path, what: str) -> LockstepError:
    return LockstepError(
        f"The checkpoint {folder.parent.name} {what}.", "It is of another model: choose another --run folder.", code=2
    )


def _write_parts(folder: Path, tensors: Mapping[str, Tensor], team: Team) -> None:
    from torch.distributed.checkpoint import HuggingFaceStorageWriter, save
    from torch.distributed.checkpoint.api import CheckpointException

    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        with _quiet():
            save(dict(tensors), storage_writer=writer, process_group=team.facts, no_dist=team.size == 1)
    except CheckpointException as error:
        causes = [failure[0] for failure in error.failures.values()]
        raise next((cause for cause in causes if isinstance(cause, OSError)), RuntimeError(str(error))) from None


def _read_parts(folder: Path, tensors: Mapping[str, Tensor], team: Team) -> None:
    from torch.distributed.checkpoint import HuggingFaceStorageReader, load

    with torch.no_grad(), _quiet():
        reader = HuggingFaceStorageReader(str(folder))
        load(dict(tensors), storage_reader=reader, process_group=team.facts, no_dist=team.size == 1)


@contextmanager
def _quiet() -> Iterator[None]:
    """torch warns a single process that it saves as a single process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Names the exact bits of model and optimizer, so that replicas can be compared."""
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()
