"""How fast a folder takes files, and whether another host sees them."""

import os
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

from pydantic import JsonValue

MEGABYTE = 1_000_000
MOST_BYTES, MOST_SECONDS = 64 * MEGABYTE, 3.0
RENAMES = 5


def find_existing(folder: Path) -> Path:
    """Returns the folder, or the innermost one around it that exists."""
    return next(one for one in (folder, *folder.absolute().parents) if one.is_dir())


def measure_disk(folder: str, token: str) -> JsonValue:
    """Writes, syncs and renames in the folder, or in the one that will contain it. Leaves a small file that other hosts
    look for."""
    place = find_existing(Path(folder).expanduser())
    statistics = os.statvfs(place)
    large, small = place / f".lockstep-{token}.partial", place / f".lockstep-{token}"
    try:
        rate = _measure_writing(large)
        seconds = median(_measure_rename(large, small) for _ in range(RENAMES))
    finally:
        with suppress(OSError):
            large.unlink()
    small.write_text(token)
    return {
        "folder": str(place),
        "free_bytes": statistics.f_bavail * statistics.f_frsize,
        "bytes_per_second": rate,
        "rename_seconds": seconds,
    }


def _measure_writing(path: Path) -> float:
    """Returns the bytes a second of a file that is synced, which on a slow disk is a small one."""
    block = os.urandom(MEGABYTE)
    written, begin = 0, time.perf_counter()
    with path.open("wb", buffering=0) as file:
        while written < MOST_BYTES and time.perf_counter() - begin < MOST_SECONDS:
            for _ in range(1 if written < 8 * MEGABYTE else 8):
                written += file.write(block)
            os.fsync(file.fileno())
    return written / (time.perf_counter() - begin)


def _measure_rename(path: Path, to: Path) -> float:
    """Returns the seconds of what makes a checkpoint complete: write a little, sync, rename, sync the folder."""
    begin = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        file.write(b"complete")
        os.fsync(file.fileno())
    path.rename(to)
    folder = os.open(to.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return time.perf_counter() - begin


def look_for_file(folder: str, token: str) -> JsonValue:
    """Returns whether this host sees the file that `measure_disk` has left on another one."""
    path = Path(folder) / f".lockstep-{token}"
    with suppress(OSError):
        os.listdir(path.parent)  # network file systems then notice what is new
    try:
        return path.read_text() == token
    except OSError:
        return False


def remove_file(folder: str, token: str) -> JsonValue:
    with suppress(OSError):
        (Path(folder) / f".lockstep-{token}").unlink()
    return None
