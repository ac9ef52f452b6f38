"""Makes the kernel's work on memory pages happen once and before the first step."""

import ctypes
import os
import platform
import threading
from collections.abc import Callable
from pathlib import Path

from lockstep.config import RunConfig
from lockstep.run import environment_variables


def keep_memory() -> None:
    """Lets glibc keep freed memory: returning activations to the kernel causes a storm of page faults in every step."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
        libc.mallopt(-4, 0)  # M_MMAP_MAX


def touch_memory(config: RunConfig) -> Callable[[], None]:
    """Touches the memory of the first step on a spare core while this one imports torch, because the first use of a page
    is slow. The returned call gives the memory to malloc, which keeps it."""
    spare_cores = len(os.sched_getaffinity(0)) // environment_variables.local_world_size() > 1
    gpu = config.train.device == "cuda" or Path("/proc/driver/nvidia").exists()
    words = (config.batch.words or 0) // (1 if config.batch.per == "worker" else environment_variables.world_size())
    size = min(4 * words * config.model.activations_per_word, 2**30)
    if not spare_cores or gpu or size < 2**26 or platform.libc_ver()[0] != "glibc":
        return lambda: None
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    block = ctypes.c_void_p(libc.malloc(ctypes.c_size_t(size)))
    if not block:
        return lambda: None
    toucher = threading.Thread(target=libc.memset, args=(block, 0, ctypes.c_size_t(size)))
    toucher.start()

    def hand_over() -> None:
        toucher.join()
        libc.free(block)

    return hand_over
