"""A checkpoint that the writer process writes is the one that the worker would write itself."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from lockstep.parallel.strategy import State
from lockstep.run.checkpoint import Progress, list_all
from lockstep.tasks.task import write_model
from lockstep.team import Team
from lockstep.train import checkpoint_files, shared_memory
from lockstep.train.background_writer import BackgroundWriter, MemoryLayout
from lockstep.train.checkpoint_parts import CheckpointPart, Pace, SaveFailed, complete, write_part
from lockstep.train.shared_memory import SharedMemory
from lockstep.train.writer_process import Completion, WriterDied

ALONE = Team(0, 1, torch.device("cpu"))
SECONDS = 60.0


@pytest.fixture
def writer() -> Iterator[BackgroundWriter]:
    writer = BackgroundWriter()
    yield writer
    writer.close()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.arange(12.0).view(3, 4))
        self.register_buffer("count", torch.tensor(2**40 + 1))
        self.register_buffer("small", torch.tensor([1.5, 1e-3, 3.0], dtype=torch.bfloat16))


def make_state(model: Model) -> State:
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors["optimizer.exp_avg.matrix"] = torch.arange(12.0).view(4, 3).t()  # not contiguous
    return State(tensors, {"optimizer.step": 3.0}, {"flags": torch.tensor([True, False, True])})


def collect(model: Model, step: int) -> list[checkpoint_files.FileContent]:
    export = lambda folder: write_model(folder, model, {"width": 4})  # noqa: E731
    return checkpoint_files.collect_files(step, make_state(model), export, ALONE)


def start(writer: BackgroundWriter, folder: Path, model: Model, step: int) -> None:
    layout = MemoryLayout(collect(model, step))
    assert writer.memory.reserve(layout.size)
    facts = checkpoint_files.make_facts(Progress(step), make_state(model))
    completion: Completion = {"progress": facts, "config": {}, "keep": (1, 1, True, None)}
    writer.start(CheckpointPart(folder, step, "1-1", rank=0, workers=1), layout, completion)


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_both_ways_write_the_same_bytes(tmp_path: Path, writer: BackgroundWriter) -> None:
    model = Model()
    start(writer, tmp_path / "background", model, 3)
    part = CheckpointPart(tmp_path / "wait", 3, "1-1", rank=0, workers=1)
    facts = checkpoint_files.make_facts(Progress(3), make_state(model))
    size, failure = checkpoint_files.write_now(part, collect(model, 3), ALONE, facts, {}, lambda saved: set())
    assert writer.wait(SECONDS)
    assert writer.answer == {"bytes": size, "failure": None}
    assert failure is None
    assert read_files(tmp_path / "background") == read_files(tmp_path / "wait")
    (saved,) = list_all(tmp_path / "background")
    assert saved.damage() is None
    assert set(saved.manifest["files"]) == {
        "model/config.json",
        "model/model.safetensors",
        "state/worker-0000.safetensors",
    }


def test_what_changes_after_the_copy_is_not_in_the_checkpoint(tmp_path: Path, writer: BackgroundWriter) -> None:
    model = Model()
    before = model.matrix.detach().clone()
    start(writer, tmp_path, model, 1)
    with torch.no_grad():
        model.matrix.zero_()
    assert writer.wait(SECONDS)
    start(writer, tmp_path, model, 2)  # the next one has it, and replaces the first by the rule
    assert writer.wait(SECONDS)
    (saved,) = list_all(tmp_path)
    loaded = {"model.matrix": torch.ones(3, 4)}
    checkpoint_files.load(saved, loaded)
    assert saved.step == 2
    assert not torch.equal(loaded["model.matrix"], before)
    assert not loaded["model.matrix"].any()


def test_weights_of_state_and_model_are_copied_once() -> None:
    model = Model()
    layout = MemoryLayout(collect(model, 1))
    values = sum(tensor.nbytes for tensor in (*make_state(model).tensors.values(), *make_state(model).private.values()))
    assert layout.size < values + 4096
    assert sum(tensor.nbytes for _, tensor in layout._tensors) == values


def test_a_failure_is_answered_with_its_reason(tmp_path: Path, writer: BackgroundWriter) -> None:
    folder = tmp_path / "nowhere" / "checkpoints"
    start(writer, folder, Model(), 1)
    assert writer.wait(SECONDS)
    assert writer.answer is not None
    assert writer.answer["failure"] == {"reason": "No such file or directory", "is_disk_full": False}


def test_a_killed_writer_process_is_named(tmp_path: Path, writer: BackgroundWriter) -> None:
    os.kill(writer._process.pid, signal.SIGKILL)
    writer._process.wait()
    with pytest.raises(WriterDied, match="which writes checkpoints, was killed by SIGKILL"):
        start(writer, tmp_path, Model(), 1)
    assert list_all(tmp_path) == []


def test_a_restarted_writer_takes_the_next_save(tmp_path: Path, writer: BackgroundWriter) -> None:
    writer.restart()
    start(writer, tmp_path, Model(), 1)
    assert writer.wait(SECONDS)
    assert [saved.step for saved in list_all(tmp_path)] == [1]


def test_memory_that_the_machine_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SharedMemory()
    monkeypatch.setattr(shared_memory, "measure_free_memory", lambda: 1000)
    assert memory.reserve(900)
    assert not memory.reserve(5000)
    assert memory.reserve(800)
    memory.close()


def test_the_primary_completes_when_all_parts_are_there(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    parts = [CheckpointPart(folder, 5, "1-1", rank, workers=2) for rank in (0, 1)]
    for part in reversed(parts):  # whoever comes first
        folder.mkdir(exist_ok=True)
        write_part(part, [(f"state/worker-{part.rank:04d}.safetensors", [b"values", bytes(3)])])
    complete(parts[0], {"step": 5, "score": None}, {}, lambda saved: set())
    (saved,) = list_all(folder)
    assert saved.damage() is None
    assert sorted(saved.manifest["files"]) == ["state/worker-0000.safetensors", "state/worker-0001.safetensors"]
    assert not list(folder.rglob(".*"))


def test_a_worker_that_has_nothing_to_write_may_be_the_first(tmp_path: Path) -> None:
    parts = [CheckpointPart(tmp_path / "checkpoints", 5, "1-1", rank, workers=2) for rank in (0, 1)]
    write_part(parts[1], [])
    write_part(parts[0], [("state/worker-0000.safetensors", [b"values"])])
    complete(parts[0], {"step": 5, "score": None}, {}, lambda saved: set())
    assert [saved.step for saved in list_all(tmp_path / "checkpoints")] == [5]


def test_a_part_that_failed_fails_the_checkpoint_for_all(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    first, second = (CheckpointPart(folder, 5, "1-1", rank, workers=2) for rank in (0, 1))
    write_part(first, [("state/worker-0000.safetensors", [b"values"])])
    (first.aside / "state" / "worker-0001.safetensors").mkdir()  # nothing can be written there
    with pytest.raises(SaveFailed, match="Is a directory"):
        write_part(second, [("state/worker-0001.safetensors", [b"values"])])
    with pytest.raises(SaveFailed, match="step-00000005 could not be written: Is a directory"):
        complete(first, {"step": 5, "score": None}, {}, lambda saved: set())
    assert list(folder.iterdir()) == []


def test_a_part_that_was_cut_off_fails_the_checkpoint(tmp_path: Path) -> None:
    part = CheckpointPart(tmp_path / "checkpoints", 5, "1-1", rank=0, workers=1)
    write_part(part, [("state/worker-0000.safetensors", [b"values"])])
    (part.aside / "state" / "worker-0000.safetensors").write_bytes(b"val")
    with pytest.raises(SaveFailed, match="has 3 bytes instead of 6"):
        complete(part, {"step": 5, "score": None}, {}, lambda saved: set())


def test_the_writer_process_needs_no_torch() -> None:
    program = "import json, sys, lockstep.train.writer_process; print(json.dumps(list(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"torch", "numpy"}.isdisjoint(json.loads(result.stdout))


def test_rests_end_when_somebody_waits_for_the_write() -> None:
    """Otherwise this test would take hours."""
    reader, writer = os.pipe()
    pace = Pace(reader)
    for _ in range(2):
        pace._begin -= 3600
        os.write(writer, b"x")
        pace.rest()
    os.read(reader, 2)
    pace._begin -= 3600
    pace.rest()  # it stays in a hurry


def test_a_hurried_write_is_followed_by_others(tmp_path: Path, writer: BackgroundWriter) -> None:
    for step in (1, 2):
        start(writer, tmp_path, Model(), step)
        while not writer.wait(0.01):
            writer.hurry()
        writer.hurry()  # too late: nobody answers it
        assert writer.answer is not None
        assert writer.answer["failure"] is None
    assert [saved.step for saved in list_all(tmp_path)] == [2]
