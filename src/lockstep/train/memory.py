"""Pages of memory that a step needs: the kernel's time over them is spent before the first step, and once."""

import ctypes
import os
import platform
import threading
from collections.abc import Callable
from pathlib import Path

from lockstep.config import RunConfig


def keep_memory() -> None:
    """Lets glibc keep freed memory: giving each activation back to the kernel costs a page-fault storm every step."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
        libc.mallopt(-4, 0)  # M_MMAP_MAX


def touch_memory(config: RunConfig) -> Callable[[], None]:
    """Lets a spare core touch memory that the first step will need while this one imports torch: the kernel takes its
    time over pages that are used for the first time. The returned call hands the memory to malloc, which keeps it."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1")))
    spare_cores = len(os.sched_getaffinity(0)) // here > 1
    gpu = config.train.device == "cuda" or Path("/proc/driver/nvidia").exists()
    words = (config.batch.words or 0) // (1 if config.batch.per == "worker" else int(os.environ.get("WORLD_SIZE", "1")))
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
