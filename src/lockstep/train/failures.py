"""Says in one sentence what torch has raised in a worker: no memory, a broken GPU, or a lost peer."""

from lockstep.config import RunConfig
from lockstep.errors import LockstepError

MEMORY_SIGNS = ("out of memory", "can't allocate memory", "cuda calloc", "alloc_failed", "memoryallocation")
"""How torch, CUDA, cuBLAS, cuDNN and NCCL say that memory is full, in lower case."""
GPU_SIGNS = ("cuda error", "cuda driver error", "cublas_status", "cudnn_status", "cudnn error", "unhandled cuda error")
PEER_SIGNS = ("connection", "peer", "gloo", "timed out", "nccl", "broken pipe")
MOST_CHARACTERS = 160


class LostPeer(LockstepError):
    """Another worker is gone; its failure says more than this one."""

    def __init__(self, rank: int, detail: str) -> None:
        super().__init__(
            f"Worker {rank} lost the connection to another worker ({_first_line(detail)}).",
            "Start the same command again: it continues from the last checkpoint.",
        )


class OutOfMemory(LockstepError):
    """This worker ran out of memory. Workers that do not depend on it can continue."""


class GpuFailed(LockstepError):
    """A kernel or the driver of this worker's GPU failed. Another start may succeed."""

    def __init__(self, rank: int, detail: str) -> None:
        super().__init__(
            f"The GPU of worker {rank} failed ({_first_line(detail)}).",
            "If the kernel's log (dmesg) has a line with Xid, the GPU or its driver is at fault. Otherwise set "
            "CUDA_LAUNCH_BLOCKING=1 and report where it fails.",
        )


def explain(error: RuntimeError, rank: int, config: RunConfig, workers: int) -> LockstepError | None:
    """Returns the sentence about an error; None for one that nobody expected. Memory comes first: a full GPU also shows as
    a failure of NCCL."""
    import torch

    detail = str(error)
    text = detail.lower()
    if isinstance(error, torch.OutOfMemoryError) or any(sign in text for sign in MEMORY_SIGNS):
        return _describe_full_memory(rank, config)
    if any(sign in text for sign in GPU_SIGNS):
        return GpuFailed(rank, detail)
    if workers > 1 and any(sign in text for sign in PEER_SIGNS):
        return LostPeer(rank, detail)
    return None


def _describe_full_memory(rank: int, config: RunConfig) -> OutOfMemory:
    share = "lower batch.images" if config.batch.images else "set batch.micro_words, which changes no update"
    return OutOfMemory(
        f"Worker {rank} ran out of memory.",
        f"Take more workers or strategy.name=sharded, or {share}; then start it again.",
    )


def _first_line(detail: str) -> str:
    return (detail.strip().splitlines() or ["no reason given"])[0][:MOST_CHARACTERS]
