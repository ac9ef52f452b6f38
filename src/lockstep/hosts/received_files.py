"""Files that a command sends to a host: in parts, continued after an interruption, and visible only when they are whole.

They arrive in a folder beside their place, named after the digest of all of them, which takes their place at the end. What
was there before is kept under another name.
"""

import base64
import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.files import sha256, sync
from lockstep.hosts.disk_speed import find_existing

REPLACED = ".replaced"
"""Ends the name of what was there before."""
SPARE_BYTES = 100_000_000
"""Stay free on the disk."""


def compare_files(place: str, files: dict[str, list[JsonValue]]) -> JsonValue:
    """Returns whether these files, each with its size and SHA-256, are at a place: `{"": ...}` is the place itself."""
    paths = {Path(place) / name: facts for name, facts in files.items()}
    if not all(path.is_file() and path.stat().st_size == facts[0] for path, facts in paths.items()):
        return False
    return all(sha256(path) == facts[1] for path, facts in paths.items())


def begin_files(place: str, files: dict[str, list[JsonValue]], digest: str) -> JsonValue:
    """Makes room. Returns the size and the SHA-256 of what an interrupted command has sent of each file."""
    partial = _name_partial(place, digest)
    partial.mkdir(parents=True, exist_ok=True)
    parts: dict[str, JsonValue] = {}
    needed = SPARE_BYTES
    for name, (size, _) in files.items():
        path = partial / (name or "file")
        has = path.stat().st_size if path.is_file() else 0
        parts[name] = [has, sha256(path) if has else hashlib.sha256().hexdigest()]
        needed += max(0, int(str(size)) - has)
    statistics = os.statvfs(find_existing(partial))
    free = statistics.f_bavail * statistics.f_frsize
    if free < needed:
        shutil.rmtree(partial, ignore_errors=True)
        raise LockstepError(
            f"{place} needs {needed / 1e9:,.1f} GB, and the disk has {free / 1e9:,.1f} GB free.", "Make room there."
        )
    return parts


def add_part(place: str, digest: str, name: str, offset: int, data: str) -> JsonValue:
    """Writes a part of a file, in base64, and cuts off what comes after it."""
    path = _name_partial(place, digest) / (name or "file")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.seek(offset)
        file.write(base64.b64decode(data))
        file.truncate()
    return None


def finish_files(place: str, files: dict[str, list[JsonValue]], digest: str) -> JsonValue:
    """Checks the files and puts them in their place. Returns where the former content is; None if there was none."""
    to, partial = Path(place), _name_partial(place, digest)
    names: Mapping[str, list[JsonValue]] = {name or "file": facts for name, facts in files.items()}
    if not compare_files(str(partial), dict(names)):
        shutil.rmtree(partial, ignore_errors=True)
        raise LockstepError(f"What arrived for {place} is damaged.", "Start the same command again.")
    for name in names:
        sync(partial / name)
    before = to.with_name(to.name + REPLACED) if to.exists() else None
    if before is not None:
        _remove(before)
        to.rename(before)
    if "" in files:
        (partial / "file").rename(to)
        partial.rmdir()
    else:
        partial.rename(to)
    sync(to.parent)
    return None if before is None else str(before)


def _name_partial(place: str, digest: str) -> Path:
    path = Path(place)
    return path.with_name(f".{path.name}.{digest[:16]}.partial")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
