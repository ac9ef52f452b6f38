"""File operations that several packages share: digests, locks, fsync and atomic replacement."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, TypedDict

from lockstep.errors import LockstepError


class FileFacts(TypedDict):
    """The size of a file in bytes, and its digest as `sha256:...`."""

    bytes: int
    digest: str


def sha256(path: Path) -> str:
    """Returns the hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(path: Path, kind: str) -> str:
    """Returns the digest of a file with its kind, as in the catalog: `md5:...`, `sha1:...`, `sha256:...`."""
    with path.open("rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


@contextlib.contextmanager
def locked(path: Path, remove: bool = False) -> Iterator[None]:
    """Holds an exclusive lock on a file. The kernel releases it when the process ends for any reason. With `remove`, which
    all who use the lock must set, the file is gone afterwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if remove and not _is_open(path, file):  # the one who had the lock has removed the file
                continue
            try:
                yield
            finally:
                if remove:
                    path.unlink(missing_ok=True)
            return


def _is_open(path: Path, file: TextIO) -> bool:
    """Is the open file still the one with this path?"""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def disk_error(path: Path, error: OSError, elsewhere: str) -> LockstepError:
    """Returns the error for an OSError while `path` was written. `elsewhere` tells how to choose another place."""
    path = Path(error.filename) if isinstance(error.filename, str) else path
    remedy = f"Check the folder, or {elsewhere}."
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = f"Free some space there, or {elsewhere}."
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        remedy = f"Make it writable, or {elsewhere}."
    return LockstepError(f"{path} cannot be read or written: {error.strerror or error}.", remedy)


def sync(path: Path) -> None:
    """Writes a file, or the entries of a folder, to the disk, so that it survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def create_folder_atomically(to: Path) -> Iterator[Path]:
    """Yields an empty folder to fill, which is renamed to `to` at the end: `to` is complete or does not exist. It must be
    used under a lock, because it deletes the partial folders of interrupted processes."""
    for leftover in to.parent.glob(f".{to.name}.partial-*"):
        shutil.rmtree(leftover)
    partial = to.with_name(f".{to.name}.partial-{os.getpid()}")
    try:
        partial.mkdir()
        yield partial
        if to.exists():
            to.rmdir()  # fails unless it is empty
        partial.rename(to)
        sync(to.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def describe_files(folder: Path) -> dict[str, FileFacts]:
    """Returns the size and the digest of every file in a folder."""
    paths = sorted(folder.iterdir())
    return {path.name: {"bytes": path.stat().st_size, "digest": digest(path, "sha256")} for path in paths}


def write_atomically(path: Path, text: str) -> None:
    """Replaces a small file by renaming a temporary one, so that readers never see a part of it."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    sync(partial)
    partial.replace(path)
    sync(path.parent)


def write_json(path: Path, value: Mapping[str, object] | Sequence[object]) -> None:
    """Replaces a JSON file atomically."""
    write_atomically(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json_value(path: Path) -> Any:
    """Returns the value of a JSON file, or None when the file does not exist."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, RecursionError):
        raise damaged(path, "it is not JSON") from None


def read_json(path: Path) -> Any:
    """Returns the object in a JSON file as a dictionary, or None when the file does not exist."""
    value = read_json_value(path)
    if value is not None and not isinstance(value, dict):
        raise damaged(path, "it contains no JSON object")
    return value


def damaged(path: Path, reason: str) -> LockstepError:
    """The error for a file whose content is not what Lockstep wrote."""
    return LockstepError(f"{path} is damaged: {reason}.", "Restore it, or start a new run.")
