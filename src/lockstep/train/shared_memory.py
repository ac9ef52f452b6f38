"""Memory that a worker shares with its writer process: a copy of what a checkpoint contains.

The memory has no name: it is gone when both processes are. Its pages are made in a background thread, because making
them takes longer than the copy itself.
"""

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
from torch import Tensor

from lockstep.run import environment_variables

POPULATE_WRITE = 23
"""madvise: make the pages of a range. Linux 5.14."""
TURN_BYTES = 2**24
"""Pages are made, and values copied, in ranges of this size."""
MEMORY_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
SPARE_SHARE = 0.1
"""Of the free memory, what a copy must leave."""


class Copy(NamedTuple):
    """Bytes of a tensor, and their place in the memory."""

    target: int
    source: int
    length: int


def measure_free_memory() -> int:
    """Returns the bytes that this worker may take: its share of what the machine or its container has left."""
    free = [psutil.virtual_memory().available]
    for limit, usage in MEMORY_LIMITS:
        try:
            free.append(int(Path(limit).read_text()) - int(Path(usage).read_text()))
        except (OSError, ValueError):  # there is no such limit
            continue
    return int((1 - SPARE_SHARE) * max(0, min(free))) // environment_variables.local_world_size(default=1)


class SharedMemory:
    """Grows to what is needed, and never shrinks."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("lockstep-checkpoint")
        self.size = 0
        self._memory: Tensor = torch.empty(0, dtype=torch.uint8)
        self._toucher: threading.Thread | None = None

    def reserve(self, size: int) -> bool:
        """Makes room for so many bytes; returns False if the machine has not enough memory."""
        if size <= self.size:
            return True
        if size - self.size > measure_free_memory():
            return False
        self._wait_for_pages()
        os.ftruncate(self.descriptor, size)
        self._memory = torch.frombuffer(mmap.mmap(self.descriptor, size), dtype=torch.uint8)
        if torch.cuda.is_initialized():  # this worker computes on a GPU
            torch.cuda.cudart().cudaHostRegister(self._memory.data_ptr(), size, 0)
        self._toucher = threading.Thread(target=_make_pages, args=(self._memory.data_ptr(), size), daemon=True)
        self._toucher.start()
        self.size = size
        return True

    def _wait_for_pages(self) -> None:
        if self._toucher is not None:
            self._toucher.join()
            self._toucher = None

    def copy(self, tensors: Sequence[tuple[int, Tensor]]) -> None:
        """Copies tensors to these places."""
        self._wait_for_pages()
        plain, others = list[Copy](), list[tuple[int, Tensor]]()
        base = self._memory.data_ptr()
        for place, tensor in tensors:
            if tensor.is_cpu and tensor.is_contiguous():
                plain += _split(base + place, tensor.data_ptr(), tensor.nbytes)
            else:
                others.append((place, tensor))
        threads = torch.get_num_threads()
        with ThreadPoolExecutor(threads) as pool:
            done = [pool.submit(_copy, plain[number::threads]) for number in range(threads)]
            for place, tensor in others:
                target = self._memory[place : place + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
                target.copy_(tensor, non_blocking=tensor.is_cuda)
            for copied in done:
                copied.result()
        if any(tensor.is_cuda for _, tensor in others):
            torch.cuda.synchronize()

    def put(self, place: int, content: bytes) -> None:
        ctypes.memmove(self._memory.data_ptr() + place, content, len(content))

    def close(self) -> None:
        self._wait_for_pages()
        os.close(self.descriptor)


def _make_pages(address: int, size: int) -> None:
    """Makes pages in a thread: calls of a C library run without Python's lock. What cannot be made now is made by the
    copy."""
    libc = ctypes.CDLL(None)
    for begin in range(0, size, TURN_BYTES):
        length = ctypes.c_size_t(min(TURN_BYTES, size - begin))
        if libc.madvise(ctypes.c_void_p(address + begin), length, POPULATE_WRITE):
            return


def _split(target: int, source: int, length: int) -> Iterator[Copy]:
    for begin in range(0, length, TURN_BYTES):
        yield Copy(target + begin, source + begin, min(TURN_BYTES, length - begin))


def _copy(copies: Sequence[Copy]) -> None:
    """The C library's copy bypasses the caches, which torch's does not."""
    for copy in copies:
        ctypes.memmove(copy.target, copy.source, copy.length)
