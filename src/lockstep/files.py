"""Small things with files that more than one package needs: digests, syncing, replacing in one move."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lockstep.errors import LockstepError


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(path: Path, kind: str) -> str:
    """The digest of a file as the catalog writes it: `md5:...`, `sha1:...`, `sha256:...`."""
    with path.open("rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


def cache() -> Path:
    """Where copies of remote things lie on this machine. It may be deleted whenever nothing runs."""
    if named := os.environ.get("LOCKSTEP_CACHE"):
        return Path(named).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "lockstep"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Only one process at a time; the lock goes with the process, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def disk_error(path: Path, error: OSError, elsewhere: str) -> LockstepError:
    """Why a file could not be used while `path` was made; `elsewhere` says how to choose another place."""
    path = Path(error.filename) if isinstance(error.filename, str) else path
    remedy = f"Check the folder, or {elsewhere}."
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = f"Free some space there, or {elsewhere}."
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        remedy = f"Make it writable, or {elsewhere}."
    return LockstepError(f"{path} cannot be read or written: {error.strerror or error}.", remedy)


def sync(path: Path) -> None:
    """Makes a file, or the new and renamed entries of a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def whole_folder(to: Path) -> Iterator[Path]:
    """An empty folder to fill. It takes its place at the end, so that `to` exists whole or not at all. To be used under a
    lock: what an interrupted process left beside it is removed."""
    for left in to.parent.glob(f".{to.name}.partial-*"):
        shutil.rmtree(left)
    partial = to.with_name(f".{to.name}.partial-{os.getpid()}")
    try:
        partial.mkdir()
        yield partial
        if to.exists():
            to.rmdir()  # empty, else it fails
        partial.rename(to)
        sync(to.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def facts_of_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and digest of every file."""
    paths = sorted(folder.iterdir())
    return {path.name: {"bytes": path.stat().st_size, "digest": digest(path, "sha256")} for path in paths}


def write_whole(path: Path, text: str) -> None:
    """Replaces a small file in one move, so that it is never seen half-written."""
    aside = path.with_name(f".{path.name}.partial")
    aside.write_text(text, encoding="utf-8")
    sync(aside)
    aside.replace(path)
    sync(path.parent)


def write_json(path: Path, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """The value in a JSON file, or None when it is not there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise LockstepError(f"{path} is damaged: it is not JSON.", "Restore it, or start a new run.") from None
