"""What the service of a run folder does for a client. It can add to journals and logs, write the client's part of a
checkpoint that is being made, and read the state of a checkpoint. It does nothing else, and accepts no other file name."""

import hashlib
import os
import re
from pathlib import Path
from typing import Any, BinaryIO

from lockstep import faults
from lockstep.run.checkpoint import read_checkpoint
from lockstep.run.checkpoint_part import CheckpointPart
from lockstep.run.directory import RunDirectory
from lockstep.run_service.signed_connection import MOST_BODY_BYTES
from lockstep.run_service.streams import Streams

Answer = tuple[dict[str, Any], bytes]
_JOURNAL = re.compile(
    r"journal/(worker-\d{4,6}|monitor-[\w.-]{1,80})\.jsonl|logs/(worker|server)-\d{4,6}\.log", re.ASCII
)
_STREAM = re.compile(r"[0-9a-zA-Z-]{1,80}", re.ASCII)
_TOKEN = re.compile(r"[0-9a-zA-Z-]{1,40}", re.ASCII)
_CHECKPOINT = re.compile(r"step-\d{8,12}", re.ASCII)
MOST_WORKERS = 10**6
MOST_STEPS = 10**12
SYNC_BYTES = 2**26
"""A file is synced in pieces, so that no answer takes long."""


class BadRequest(ValueError):
    """A request that no client of Lockstep makes."""


class OpenFile:
    """A file of a part, while it arrives."""

    def __init__(self, path: Path, step: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.step, self.bytes, self.synced = path, step, 0, 0
        self.digest = hashlib.sha256()
        self.file: BinaryIO = path.open("wb", buffering=0)

    def add(self, content: memoryview) -> None:
        self.digest.update(content)
        self.bytes += len(content)
        while content:
            content = content[self.file.write(content) :]
        if self.bytes - self.synced >= SYNC_BYTES:
            os.fdatasync(self.file.fileno())
            self.synced = self.bytes

    def close(self) -> dict[str, Any]:
        """Returns size and digest when everything is on the disk."""
        os.fsync(self.file.fileno())
        self.file.close()
        return {"bytes": self.bytes, "sha256": self.digest.hexdigest()}

    def discard(self) -> None:
        self.file.close()
        self.path.unlink(missing_ok=True)


class Requests:
    """The requests of one client, one after the other."""

    def __init__(self, run: RunDirectory, streams: Streams) -> None:
        self._run, self._streams = run, streams
        self._open: OpenFile | None = None
        self._checkpoint: tuple[str, dict[str, Any]] | None = None  # the last one read: its name and its files

    def carry_out(self, request: dict[str, Any], body: memoryview) -> Answer:
        """Raises OSError, or BadRequest."""
        match request.get("do"):
            case "count":
                return {"count": self._streams.count(*_find_stream(request))}, b""
            case "open":
                return {"count": self._streams.open(*_find_stream(request))}, b""
            case "append":
                return {"count": self._streams.append(*_find_stream(request), _number(request, "at"), body)}, b""
            case "insert":
                return {"count": self._streams.insert(*_find_stream(request), _number(request, "at"), body)}, b""
            case "forget":
                self._streams.forget(*_find_stream(request))
                return {}, b""
            case "create":
                return self._create(_find_part(self._run, request))
            case "write":
                return self._write(body)
            case "finish":
                return self._finish(request)
            case "mark":
                return self._mark(request)
            case "read":
                return self._read(request)
        raise BadRequest("unknown request")

    def _create(self, part: CheckpointPart) -> Answer:
        self.close()
        self._open = OpenFile(part.aside / f"state/worker-{part.rank:04d}.safetensors", part.step)
        return {}, b""

    def _write(self, body: memoryview) -> Answer:
        if self._open is None:
            raise BadRequest("no file is open")
        self._open.add(body)
        faults.at("receive", self._open.step)
        return {}, b""

    def _finish(self, request: dict[str, Any]) -> Answer:
        if self._open is None:
            raise BadRequest("no file is open")
        facts = self._open.close()
        if facts != request.get("facts"):
            self.close()
            raise OSError(None, "a file did not arrive as it was sent")
        self._open = None
        return {}, b""

    def _mark(self, request: dict[str, Any]) -> Answer:
        part, facts = _find_part(self._run, request), request.get("facts")
        if not isinstance(facts, dict) or not facts.keys() <= {"files", "failure"}:
            raise BadRequest("bad facts")
        if "failure" in facts:
            self.close()
        (part.aside / "state").mkdir(parents=True, exist_ok=True)
        part.mark(facts)
        return {}, b""

    def _read(self, request: dict[str, Any]) -> Answer:
        name, file = _match(_CHECKPOINT, request, "checkpoint"), request.get("file")
        if self._checkpoint is None or self._checkpoint[0] != name:
            saved = read_checkpoint(self._run.checkpoints / name)
            if saved is None:
                raise OSError(None, f"{name} is not there any more")
            self._checkpoint = name, saved.manifest["files"]
        if not isinstance(file, str) or file not in self._checkpoint[1] or not file.startswith("state/"):
            raise BadRequest("no such file")
        with (self._run.checkpoints / name / file).open("rb") as content:
            content.seek(_number(request, "at"))
            return {}, content.read(MOST_BODY_BYTES)

    def close(self) -> None:
        """Removes a file that has not arrived completely."""
        if self._open is not None:
            self._open.discard()
            self._open = None


def _find_stream(request: dict[str, Any]) -> tuple[str, str]:
    """Returns the file and the stream that a request names."""
    return _match(_JOURNAL, request, "file"), _match(_STREAM, request, "stream")


def _find_part(run: RunDirectory, request: dict[str, Any]) -> CheckpointPart:
    step, rank = _number(request, "step", MOST_STEPS), _number(request, "rank", MOST_WORKERS)
    return CheckpointPart(run.checkpoints, step, _match(_TOKEN, request, "token"), rank, rank + 1)


def _match(pattern: re.Pattern[str], request: dict[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise BadRequest(f"bad {name}")
    return value


def _number(request: dict[str, Any], name: str, most: int = 2**62) -> int:
    value = request.get(name)
    if type(value) is not int or not 0 <= value < most:
        raise BadRequest(f"bad {name}")
    return value
