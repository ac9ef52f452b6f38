import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from lockstep.errors import LockstepError
from lockstep.team import Team
from lockstep.train.tensors import choose_own, divide, encode, list_shards, read

ALONE = Team(0, 1, torch.device("cpu"))
MODEL = {"model.weight": torch.arange(6.0).view(2, 3), "model.bias": torch.tensor([1.5, -0.0])}


def empty() -> dict[str, Tensor]:
    return {name: torch.full_like(tensor, -1) for name, tensor in MODEL.items()}


def folder(path: Path) -> Path:
    made = path / "step-00000001" / "state"
    made.mkdir(parents=True)
    return made


def write(folder: Path, tensors: dict[str, Tensor]) -> None:
    pieces = encode(choose_own(tensors, ALONE))
    content = b"".join(
        piece if isinstance(piece, bytes) else piece.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        for piece in pieces
    )
    (folder / "worker-0000.safetensors").write_bytes(content)


def test_every_tensor_is_written_once_and_the_bytes_are_dealt_evenly() -> None:
    shared = {f"layer.{number}": 100 for number in range(7)} | {"embedding": 400, "step": 4}
    names = divide([shared, shared, shared])
    assert sorted(name for held in names for name in held) == sorted(shared)
    written = [sum(shared[name] for name in held) for held in names]
    assert max(written) - min(written) <= 100


def test_who_has_a_tensor_for_itself_writes_it() -> None:
    names = divide([{"model": 8, "moment": 8}, {"model": 8, "private.worker.1": 1}, {"model": 8}])
    assert "moment" in names[0]
    assert "private.worker.1" in names[1]
    assert [held.count("model") for held in names].count(1) == 1


def test_views_of_one_storage_are_written_as_what_they_show(tmp_path: Path) -> None:
    flat = torch.arange(10.0)
    views = {"a": flat[:4].view(2, 2), "b": flat[4:], "c": torch.arange(6.0).view(2, 3).t()}
    write(folder(tmp_path), views)
    found = load_file(tmp_path / "step-00000001" / "state" / "worker-0000.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in views.items())


def test_what_torch_writes_is_read_too(tmp_path: Path) -> None:
    """Checkpoints of earlier versions, and those of one sharded worker."""
    from torch.distributed.checkpoint import HuggingFaceStorageWriter, save

    there, found = folder(tmp_path), empty()
    with pytest.warns(UserWarning, match="torch.distributed is"):
        save(MODEL, storage_writer=HuggingFaceStorageWriter(str(there), save_distributed=True), no_dist=True)
    read(there, found)
    assert all(torch.equal(found[name], tensor) for name, tensor in MODEL.items())


def test_torch_reads_what_is_written_whole(tmp_path: Path) -> None:
    from torch.distributed.checkpoint import HuggingFaceStorageReader, load

    there, found = folder(tmp_path), empty()
    write(there, MODEL)
    with pytest.warns(UserWarning, match="torch.distributed is"):
        load(found, storage_reader=HuggingFaceStorageReader(str(there)), no_dist=True)
    assert all(torch.equal(found[name], tensor) for name, tensor in MODEL.items())
    assert [shard.path.name for shard in list_shards(there)["model.bias"]] == ["worker-0000.safetensors"]


def test_a_state_that_does_not_fit_is_refused_before_anything_is_used(tmp_path: Path) -> None:
    there = folder(tmp_path)
    write(there, MODEL)
    with pytest.raises(LockstepError, match=r"step-00000001 has no model\.other"):
        read(there, empty() | {"model.other": torch.zeros(1)})
    with pytest.raises(LockstepError, match=r"another shape of model\.bias: \(2,\)"):
        read(there, empty() | {"model.bias": torch.zeros(1)})  # which copying would fill without a word


def test_nothing_imports_the_checkpoints_of_torch(tmp_path: Path) -> None:
    """It takes more than a second, and exchanges pickles."""
    program = """
import sys, lockstep.train.checkpointer, lockstep.parallel.sharded.fsdp
assert "torch.distributed.checkpoint" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
