"""How the files of a checkpoint get to the disk: complete, or not at all. It needs no torch: the writer process has none.

Every worker writes its files into a folder aside, and then a marker with their digests. The primary waits for all markers,
writes the manifest, syncs, and renames the folder. Workers need no other way to talk to each other for that. Older
checkpoints are deleted only after the new one is durable, and by a rename first, so that a half-deleted one is never taken
for complete. What a kill leaves behind, the next launch removes (`sweep`).
"""

import errno
import hashlib
import json
import os
import select
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

from lockstep import faults
from lockstep.errors import LockstepError
from lockstep.files import sync
from lockstep.run.checkpoint import list_all, sign
from lockstep.run.checkpoint_part import CheckpointPart
from lockstep.run.retention import Keep, delete_others
from lockstep.run_service.run_client import PartSender, ServiceAddress, tell_failure

Content = Sequence[bytes | memoryview]
"""What is in a file, in pieces."""
CHUNK = 2**22
"""Bytes that are written and digested at once."""
POLL_SECONDS = 0.02
WORKING_SHARE = 0.15
"""Of the time, while training goes on beside a write. Digests and copies take memory bandwidth and processor time from
it, whatever the priority; in this share of the time they cost little at any moment."""
SYNC_BYTES = 2**26
"""A write beside training is synced in pieces, which does not occupy the disk for long."""


class Failure(TypedDict):
    """Why a worker could not write its part."""

    reason: str
    is_disk_full: bool


class SaveFailed(LockstepError):
    """A checkpoint could not be written."""

    def __init__(self, step: int, failure: Failure) -> None:
        super().__init__(
            f"The checkpoint step-{step:08d} could not be written: {failure['reason']}.",
            "Earlier checkpoints are complete: free some space and start the same command again.",
        )
        self.failure = failure


def describe_failure(error: BaseException) -> Failure:
    reason = (error.strerror if isinstance(error, OSError) else None) or (str(error).strip().splitlines() or [""])[-1]
    is_disk_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return {"reason": reason or type(error).__name__, "is_disk_full": is_disk_full}


class Pace:
    """Rests between two pieces of work until something can be read from `hurries`: somebody waits for the end."""

    def __init__(self, hurries: int, sharers: int = 1) -> None:
        """`sharers` write to the same place at the same time, and have the working share together."""
        self._hurries, self._is_hurried = hurries, False
        self._share = WORKING_SHARE / sharers
        self._begin = time.perf_counter()

    def rest(self) -> None:
        """Rests in proportion to the time since the last rest."""
        seconds = (time.perf_counter() - self._begin) * (1 / self._share - 1)
        self._is_hurried = self._is_hurried or bool(select.select([self._hurries], [], [], seconds)[0])
        self._begin = time.perf_counter()

    def sync(self, descriptor: int) -> None:
        """Writes to the disk, which is no work for the processor."""
        os.fdatasync(descriptor)
        self._begin = time.perf_counter()


class LocalPlace:
    """The run folder, where this worker sees it."""

    def __init__(self, part: CheckpointPart) -> None:
        self._part = part
        if part.rank == 0:
            _prepare_folder(part)
        (part.aside / "state").mkdir(parents=True, exist_ok=True)  # also for a worker that has nothing to write

    def write(self, name: str, content: Content, pace: Pace | None) -> dict[str, Any]:
        return _write_file(self._part.aside / name, content, self._part.step, pace)

    def mark(self, facts: Mapping[str, Any]) -> None:
        self._part.mark(facts)

    def close(self) -> None:
        pass


class RemotePlace:
    """The run folder on the host of the first worker. Of another worker a part has one file at most."""

    def __init__(self, part: CheckpointPart, service: ServiceAddress) -> None:
        self._sender = PartSender(service, part)

    def write(self, name: str, content: Content, pace: Pace | None) -> dict[str, Any]:
        return self._sender.send_file(content, None if pace is None else pace.rest)

    def mark(self, facts: Mapping[str, Any]) -> None:
        self._sender.mark(facts)

    def close(self) -> None:
        self._sender.close()


def write_part(
    part: CheckpointPart,
    files: Sequence[tuple[str, Content]],
    pace: Pace | None = None,
    service: ServiceAddress | None = None,
) -> None:
    """Writes and syncs this worker's files, and then its marker, also when it fails. Raises SaveFailed. Without a pace it
    is as quick as possible. With a service the files go to the run folder on another host."""
    place: LocalPlace | RemotePlace | None = None
    try:
        place = LocalPlace(part) if service is None else RemotePlace(part, service)
        faults.at("begin", part.step)
        facts = {name: place.write(name, content, pace) for name, content in files}
        faults.at("save", part.step)
        place.mark({"files": facts})
    except (OSError, RuntimeError) as error:
        failure = describe_failure(error)
        _give_up(part, files, failure, service)
        raise SaveFailed(part.step, failure) from None
    finally:
        if place is not None:
            place.close()


def _give_up(
    part: CheckpointPart, files: Sequence[tuple[str, Content]], failure: Failure, service: ServiceAddress | None
) -> None:
    """Gives the space back, so that training can write its journal, and tells the primary."""
    if service is not None:
        tell_failure(service, part, failure)
        return
    for name, _ in files:
        with suppress(OSError):
            (part.aside / name).unlink(missing_ok=True)
    with suppress(OSError):
        part.mark({"failure": failure})


def _prepare_folder(part: CheckpointPart) -> None:
    """Removes what earlier saves left behind. Other workers may already be writing this one."""
    part.folder.mkdir(exist_ok=True)
    sync(part.folder.parent)
    for path in part.folder.glob(".step-*"):
        if path != part.aside:
            shutil.rmtree(path, ignore_errors=True)


def _write_file(path: Path, content: Content, step: int, pace: Pace | None) -> dict[str, Any]:
    """Writes a file and syncs it; returns its size and digest."""
    digest, size, synced = hashlib.sha256(), 0, 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb", buffering=0) as file:
        for piece in content:
            for begin in range(0, len(piece), CHUNK):
                chunk = memoryview(piece)[begin : begin + CHUNK]
                digest.update(chunk)
                size += len(chunk)
                while chunk:
                    chunk = chunk[file.write(chunk) :]
                if pace is not None:
                    if size - synced >= SYNC_BYTES:
                        pace.sync(file.fileno())
                        synced = size
                    pace.rest()
            faults.at("write", step)
        os.fsync(file.fileno())
    return {"bytes": size, "sha256": digest.hexdigest()}


def complete(part: CheckpointPart, progress: Mapping[str, Any], config: dict[str, Any], keep: Keep) -> int:
    """Makes the checkpoint when all workers have written their parts; returns its size in bytes. `keep` returns the
    checkpoints to retain. Raises SaveFailed."""
    try:
        files = _collect_markers(part)
        faults.at("parts", part.step)
        manifest = part.aside / "manifest.json"
        manifest.write_text(json.dumps(sign(dict(progress), config, files), indent=1), encoding="utf-8")
        size = sum(int(facts["bytes"]) for facts in files.values()) + manifest.stat().st_size
        sync(manifest)
        for folder in sorted({path.parent for path in part.aside.rglob("*")}, reverse=True):
            sync(folder)
        faults.at("rename", part.step)
        if part.final.exists():  # a damaged one of the same step
            part.final.rename(part.final.with_name(f".{part.final.name}.deleted"))
        part.aside.rename(part.final)
        sync(part.folder)
        faults.at("renamed", part.step)
        delete_others(part.folder, keep(list_all(part.folder)) | {part.final})
        return size
    except (OSError, RuntimeError) as error:
        shutil.rmtree(part.aside, ignore_errors=True)
        raise SaveFailed(part.step, describe_failure(error)) from None
    except SaveFailed:
        shutil.rmtree(part.aside, ignore_errors=True)
        raise


def _collect_markers(part: CheckpointPart) -> dict[str, dict[str, Any]]:
    """Waits until every worker has written its part; returns the facts of all files, and removes the markers."""
    markers = [part.find_marker(rank) for rank in range(part.workers)]
    waiting = {marker.name for marker in markers}
    while waiting := waiting - set(os.listdir(part.aside)):  # a network file system looks again at a whole folder only
        time.sleep(POLL_SECONDS)
    files: dict[str, dict[str, Any]] = {}
    for marker in markers:
        facts = json.loads(marker.read_text(encoding="utf-8"))
        if "failure" in facts:
            raise SaveFailed(part.step, facts["failure"])
        files |= facts["files"]
    for name, facts in files.items():
        size = (part.aside / name).stat().st_size
        if size != facts["bytes"]:
            raise OSError(errno.EIO, f"{name} has {size:,} bytes instead of {facts['bytes']:,}")
    for marker in markers:
        marker.unlink()
    return dict(sorted(files.items()))
