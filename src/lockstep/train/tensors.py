"""The tensors of a checkpoint, in safetensors files.

Every worker writes one file: its shards of sharded tensors (DTensors) and its part of the others. The file's metadata say
where a shard begins in its tensor, in the words of torch.distributed.checkpoint, so torch and earlier versions read it too.
Any number of workers can read the files, whole or in shards, and none of them has to talk to another.
"""

import ctypes
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from lockstep.errors import LockstepError
from lockstep.team import Team

DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
SHARDS, OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"
"""Keys of torch.distributed.checkpoint in the metadata of a file."""
ALIGNMENT = 64
"""Bytes: the first tensor of a file begins at a multiple."""


@dataclass(frozen=True)
class Shard:
    """The part of a tensor that this process has; all of it, unless the tensor is sharded."""

    local: Tensor
    offset: list[int]  # where the part begins in the tensor, per dimension


def find_shard(tensor: Tensor) -> Shard:
    """Returns this process's part of a tensor."""
    if not _is_sharded(tensor):
        return Shard(tensor.detach(), [0] * tensor.dim())
    local, offset = tensor.to_local(), [0] * tensor.dim()  # type: ignore[attr-defined]
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    (placement,) = tensor.placements  # type: ignore[attr-defined]
    rows = -(-tensor.shape[placement.dim] // mesh.size())  # FSDP2 gives every worker as many until none are left
    offset[placement.dim] = min(mesh.get_local_rank() * rows, tensor.shape[placement.dim])
    return Shard(local.detach(), offset)


def _is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "to_local")


def choose_own(tensors: Mapping[str, Tensor], team: Team, exported: Collection[str] = ()) -> dict[str, Shard]:
    """Returns what this worker writes: its shards, and its part of the tensors that are not sharded. `exported` are the
    tensors that the primary copies in any case. All workers call it together."""
    shards = {name: find_shard(tensor) for name, tensor in tensors.items()}
    replicated = {name: shard.local.nbytes for name, shard in shards.items() if not _is_sharded(tensors[name])}
    exported = team.gather(sorted(exported))[0]
    own = set(divide(team.gather(replicated), exported)[team.rank])
    return {
        name: shard
        for name, shard in shards.items()
        if name in own or (_is_sharded(tensors[name]) and shard.local.numel())
    }


def divide(sizes: Sequence[Mapping[str, int]], exported: Collection[str] = ()) -> list[list[str]]:
    """Returns what each worker writes, from the bytes of the tensors that each one has. Every tensor is written once, by
    the worker with the least to write so far; those that are `exported` by the first one."""
    owners: dict[str, list[int]] = {}
    for worker, tensors in enumerate(sizes):
        for name in tensors:
            owners.setdefault(name, []).append(worker)
    names, written = [list[str]() for _ in sizes], [0] * len(sizes)
    for name in sorted(owners, key=lambda name: (name not in exported, -sizes[owners[name][0]][name], name)):
        worker = 0 if name in exported else min(owners[name], key=lambda one: written[one])
        names[worker].append(name)
        written[worker] += sizes[worker][name]
    return names


def encode(shards: Mapping[str, Shard]) -> list[bytes | Tensor]:
    """Returns the content of a safetensors file: its header, then the values of one tensor after the other."""
    order = sorted(shards, key=lambda name: (-shards[name].local.element_size(), name))
    header: dict[str, object] = {
        "__metadata__": {
            "format": "pt",
            SHARDS: json.dumps({name: {OFFSETS: shards[name].offset} for name in order}),
        }
    }
    position = 0
    for name in order:
        tensor = shards[name].local
        place = [position, position + tensor.nbytes]
        header[name] = {"dtype": DTYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
        position += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return [len(text).to_bytes(8, "little") + text, *(shards[name].local for name in order)]


def view_bytes(tensor: Tensor) -> memoryview:
    """Returns the values of a contiguous tensor on the CPU, which must outlive them. A view of numpy would fix the size of
    its storage for ever."""
    return memoryview((ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr())).cast("B")


@dataclass(frozen=True)
class SavedShard:
    """A tensor, or a part of one, in a file."""

    path: Path
    shape: list[int]
    offset: list[int]


def list_shards(folder: Path) -> dict[str, list[SavedShard]]:
    """Returns the parts of every tensor in the files of a folder."""
    shards: dict[str, list[SavedShard]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        offsets = json.loads(header.pop("__metadata__", {}).get(SHARDS, "{}"))
        for name, facts in header.items():
            offset = offsets.get(name, {}).get(OFFSETS, [0] * len(facts["shape"]))
            shards.setdefault(name, []).append(SavedShard(path, facts["shape"], offset))
    return shards


def read(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Fills `tensors` in place, of sharded ones this process's part."""
    saved = list_shards(folder)
    for name, tensor in tensors.items():
        if name not in saved:
            raise _unfit(folder, f"has no {name}")
        shape = [max(ends) for ends in zip(*map(_find_end, saved[name]), strict=True)]
        if shape != list(tensor.shape):
            raise _unfit(folder, f"has another shape of {name}: {tuple(shape)}")
    with torch.no_grad(), ExitStack() as stack:
        files: dict[Path, safe_open] = {}
        for name, tensor in tensors.items():
            for path in {shard.path for shard in saved[name]} - files.keys():
                files[path] = stack.enter_context(safe_open(path, framework="pt"))
            own = find_shard(tensor)
            if _fill(own, saved[name], name, files) < own.local.numel():
                raise _unfit(folder, f"lacks a part of {name}")


def _find_end(shard: SavedShard) -> list[int]:
    return [begin + length for begin, length in zip(shard.offset, shard.shape, strict=True)]


def _fill(own: Shard, saved: Sequence[SavedShard], name: str, files: Mapping[Path, safe_open]) -> int:
    """Copies what the saved parts have of this one; returns how many values that were."""
    filled = 0
    for shard in saved:
        begins = [max(pair) for pair in zip(own.offset, shard.offset, strict=True)]
        own_ends = [begin + length for begin, length in zip(own.offset, own.local.shape, strict=True)]
        ends = [min(pair) for pair in zip(own_ends, _find_end(shard), strict=True)]
        if any(begin >= end for begin, end in zip(begins, ends, strict=True)):
            continue
        target = own.local[tuple(_slices(begins, ends, own.offset))]
        source = tuple(_slices(begins, ends, shard.offset))
        file = files[shard.path]
        is_all = list(target.shape) == shard.shape
        target.copy_(file.get_tensor(name) if is_all else file.get_slice(name)[source])  # type: ignore[no-untyped-call]
        filled += target.numel()
    return filled


def _slices(begins: Sequence[int], ends: Sequence[int], offset: Sequence[int]) -> Iterator[slice]:
    for begin, end, first in zip(begins, ends, offset, strict=True):
        yield slice(begin - first, end - first)


def read_whole(name: str, shard: SavedShard) -> Tensor:
    """Returns a tensor that is not sharded."""
    with safe_open(shard.path, framework="pt") as file:
        return file.get_tensor(name)


def _unfit(folder: Path, what: str) -> LockstepError:
    return LockstepError(
        f"The checkpoint {folder.parent.name} {what}.", "It is of another model: choose another --run folder.", code=2
    )


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Returns a digest of the exact bits of model and optimizer, to compare workers."""
    bits = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        bits.update(name.encode())
        bits.update(tensors[name].detach().cpu().contiguous().numpy().tobytes())
    return bits.hexdigest()
