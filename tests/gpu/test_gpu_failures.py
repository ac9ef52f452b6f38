"""One right sentence for each failure of GPUs and of NCCL. The texts are those of torch, CUDA and NCCL."""

from pathlib import Path

import pytest
import torch

from lockstep.config import load
from lockstep.devices import POLL_SECONDS, wait_for_memory
from lockstep.errors import LockstepError
from lockstep.heartbeat import Heartbeat
from lockstep.launch.describe_death import describe_death
from lockstep.launch.memory_kills import MemoryKills
from lockstep.launch.supervisor import ChildProcess
from lockstep.run.retention import keep_best_and_last
from lockstep.team import Team
from lockstep.train.checkpoint_files import write_now
from lockstep.train.checkpoint_parts import CheckpointPart
from lockstep.train.failures import GpuFailed, LostPeer, OutOfMemory, explain

CONFIG = load(Path(__file__).parents[2] / "configs" / "demo.yaml", [])
NCCL_FULL = """NCCL error in: ProcessGroupNCCL.cpp:2690, unhandled cuda error, NCCL version 2.29.7
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
Cuda failure 2 'out of memory'"""
NCCL_CALLOC = "NCCL error: ncclSystemError: System call failed.\nLast error:\nFailed to CUDA calloc 67108864 bytes"
NCCL_KERNEL = (
    "NCCL error: unhandled cuda error, ncclUnhandledCudaError\nLast error:\nCuda failure 700 'illegal memory access'"
)
NCCL_REMOTE = "NCCL error: remote process exited or there was a network error, ncclRemoteError"


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (RuntimeError(NCCL_FULL), OutOfMemory, "Worker 1 ran out of memory."),
        (RuntimeError(NCCL_CALLOC), OutOfMemory, "Worker 1 ran out of memory."),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), OutOfMemory, "Worker 1 ran out of"),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
            OutOfMemory,
            "Worker 1 ran",
        ),
        (RuntimeError(NCCL_KERNEL), GpuFailed, "The GPU of worker 1 failed (NCCL error: unhandled cuda error"),
        (
            RuntimeError("CUDA error: an illegal memory access was encountered\nSearch for"),
            GpuFailed,
            "The GPU of worker 1",
        ),
        (
            RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
            GpuFailed,
            "The GPU of worker 1 failed (cuDNN error",
        ),
        (RuntimeError(NCCL_REMOTE), LostPeer, "Worker 1 lost the connection to another worker (NCCL error: remote"),
    ],
)
def test_every_failure_has_its_sentence(error: RuntimeError, kind: type[LockstepError], sentence: str) -> None:
    """NCCL without memory was called a lost peer."""
    found = explain(error, 1, CONFIG, workers=2)
    assert type(found) is kind
    assert found.message.startswith(sentence)
    assert "\n" not in found.message


def test_what_nobody_expected_stays_what_it_is() -> None:
    assert explain(RuntimeError("shape '[3]' is invalid"), 0, CONFIG, workers=2) is None
    assert explain(RuntimeError("NCCL is mentioned"), 0, CONFIG, workers=1) is None


class BrokenTensor(torch.Tensor):
    """A tensor on a GPU that has failed."""

    def detach(self) -> torch.Tensor:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_a_failed_gpu_is_not_called_a_full_disk(tmp_path: Path) -> None:
    part, team = CheckpointPart(tmp_path, 3, "1", 0, 1), Team(0, 1, torch.device("cpu"))
    keep = keep_best_and_last(1, 1, True, None)
    with pytest.raises(RuntimeError, match="illegal memory access") as caught:
        write_now(part, [("state/a", [torch.ones(2).as_subclass(BrokenTensor)])], team, {"step": 3}, {}, keep)
    assert not isinstance(caught.value, LockstepError)
    assert isinstance(explain(caught.value, 0, CONFIG, workers=1), GpuFailed)
    assert not list(tmp_path.glob("step-*"))


WATCHDOG = """[rank1]:[E1119 21:32:45 ProcessGroupNCCL.cpp:683] [Rank 1] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=6553600, NumelOut=6553600, Timeout(ms)=600000) ran for 600029 \
milliseconds before timing out.
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG ID 0 PG GUID 0 Rank 1] Process group watchdog thread terminated with exception
Fatal Python error: Aborted
"""


class Aborted:
    """A process that the watchdog has ended."""

    pid: int = 4242
    returncode: int | None = -6

    def poll(self) -> int | None:
        return self.returncode

    def wait(self) -> int:
        return -6

    def send_signal(self, number: int, /) -> None: ...
    def kill(self) -> None: ...


def test_the_watchdogs_timeout_is_explained(tmp_path: Path) -> None:
    """It arrived as a SIGABRT without a sentence."""
    (tmp_path / "worker-0001.log").write_text(WATCHDOG)
    child, beat = ChildProcess("Worker 1", Aborted(), 1), Heartbeat(60, 3, "merge", 0.0, 0.1)
    death = describe_death(child, MemoryKills(), {1: beat}, tmp_path)
    assert "SIGABRT" in death.sentence
    assert "torch's watchdog of NCCL ended it, because its ALLREDUCE was not complete after 600 s" in death.sentence
    assert "another worker stood still or is gone" in death.sentence
    assert death.evidence == "supported"


@pytest.mark.parametrize(("restarts", "waits"), [("0", 0), ("1", 3)])
def test_a_restarted_worker_waits_for_the_memory_of_the_dead_one(
    monkeypatch: pytest.MonkeyPatch, restarts: str, waits: int
) -> None:
    """The driver takes seconds to end a killed process: the restarted worker ran out of memory and was given up."""

    def measure(_: object) -> tuple[int, int]:
        if len(slept) < 2:
            raise RuntimeError("CUDA error: out of memory")
        return (90, 100) if len(slept) >= 3 else (10, 100)

    slept: list[float] = []
    monkeypatch.setenv("LOCKSTEP_RESTARTS", restarts)
    monkeypatch.setattr(torch.cuda, "mem_get_info", measure)
    wait_for_memory(torch.device("cuda", 0), slept.append)
    assert slept == [POLL_SECONDS] * waits


def test_a_worker_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setenv("LOCKSTEP_RESTARTS", "1")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (10, 100))
    wait_for_memory(torch.device("cuda", 0), slept.append)
    assert sum(slept) == 30.0
