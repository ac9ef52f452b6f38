"""Takes in the journals and logs that other hosts send, every line once.

A stream is what one worker of another host writes into one file during one launch. `streams.json` of the run says which
parts of the file each stream has filled. Only one stream grows in a file at a time, so the size of the file says how much
of it has arrived: there is no second record that a crash could separate from the lines.

What a dead host sends later belongs before the lines of later launches: it is inserted where its stream ended.
"""

import os
import threading
from pathlib import Path
from typing import TypedDict

from lockstep.files import read_json, sync, write_json
from lockstep.run.directory import RunDirectory


class Segment(TypedDict):
    """A part of a file."""

    stream: str
    begin: int
    end: int | None  # None: it grows


class Insertion(TypedDict):
    """An insertion that may be under way. The size of the file tells whether it has happened."""

    file: str
    stream: str
    at: int
    size_before: int
    bytes: int


class Streams:
    """Used by one process at a time, the one that has the lock of the run."""

    def __init__(self, run: RunDirectory) -> None:
        self._run, self._lock = run, threading.RLock()
        facts = read_json(run.streams) or {}
        self._files: dict[str, list[Segment]] = facts.get("files", {})
        insertion: Insertion | None = facts.get("insertion")
        if insertion is not None and self._find_size(insertion["file"]) != insertion["size_before"]:
            self._shift(insertion)

    def end_all(self) -> None:
        """Ends the streams of earlier launches. It must be called before a launch writes."""
        with self._lock:
            if self._files:
                for name, segments in self._files.items():
                    for segment in segments:
                        self._end(name, segment)
                self._write()

    def open(self, name: str, stream: str) -> int:
        """Lets a stream grow; returns how many of its bytes have arrived."""
        with self._lock:
            segments = self._files.setdefault(name, [])
            if not segments or segments[-1]["stream"] != stream or segments[-1]["end"] is not None:
                for segment in segments:
                    self._end(name, segment)
                self._end_line(name)
                segments.append({"stream": stream, "begin": self._find_size(name), "end": None})
                self._write()
            return self.count(name, stream)

    def count(self, name: str, stream: str) -> int:
        """Returns how many bytes of a stream have arrived."""
        size, count = self._find_size(name), 0
        for segment in self._files.get(name, []):
            if segment["stream"] == stream:
                end = size if segment["end"] is None else min(segment["end"], size)
                count += max(0, end - segment["begin"])
        return count

    def append(self, name: str, stream: str, at: int, content: bytes | memoryview) -> int:
        """Adds bytes of a stream that begin at its byte `at`, unless they are there already or others are missing; returns
        how many have arrived."""
        with self._lock:
            count = self.open(name, stream)
            if at == count and content:
                _append(self._find_path(name), content)
                count += len(content)
            return count

    def insert(self, name: str, stream: str, at: int, content: bytes | memoryview) -> int:
        """Adds bytes of a stream of an earlier launch where it ended; returns how many have arrived."""
        with self._lock:
            segments = self._files.get(name, [])
            own = next((segment for segment in reversed(segments) if segment["stream"] == stream), None)
            size, count = self._find_size(name), self.count(name, stream)
            if at != count or not content:
                return count
            if own is None or own["end"] is None or own["end"] >= size:
                return self.append(name, stream, at, content)
            self._insert(name, own, content)
            return count + len(content)

    def _insert(self, name: str, own: Segment, content: bytes | memoryview) -> None:
        path, place = self._find_path(name), own["end"] or 0
        before = path.read_bytes()
        insertion = Insertion(file=name, stream=own["stream"], at=place, size_before=len(before), bytes=len(content))
        self._write(insertion)
        partial = path.with_name(f".{path.name}.partial")
        partial.write_bytes(before[:place] + bytes(content) + before[place:])
        sync(partial)
        partial.replace(path)
        self._shift(insertion)

    def _shift(self, insertion: Insertion) -> None:
        """Notes an insertion: the segment that ended there is longer, and those behind it begin later."""
        place, count = insertion["at"], insertion["bytes"]
        segments = self._files.get(insertion["file"], [])
        own = next(one for one in reversed(segments) if one["stream"] == insertion["stream"])
        for segment in segments:
            end = segment["end"]
            if segment is own:
                segment["end"] = place + count
            elif segment["begin"] >= place:
                segment["begin"] += count
                segment["end"] = None if end is None else end + count
        self._write()

    def forget(self, name: str, stream: str) -> None:
        """Forgets a stream that is complete, and is kept nowhere else."""
        with self._lock:
            segments = [segment for segment in self._files.get(name, []) if segment["stream"] != stream]
            if segments:
                self._files[name] = segments
            else:
                self._files.pop(name, None)
            self._write()

    def _end(self, name: str, segment: Segment) -> None:
        if segment["end"] is None:
            segment["end"] = max(segment["begin"], self._find_size(name))

    def _end_line(self, name: str) -> None:
        """A worker that was killed while it wrote has left half a line."""
        path, size = self._find_path(name), self._find_size(name)
        if size:
            with path.open("rb") as file:
                file.seek(size - 1)
                is_torn = file.read(1) != b"\n"
            if is_torn:
                _append(path, b"\n")

    def _find_path(self, name: str) -> Path:
        return self._run.path / name

    def _find_size(self, name: str) -> int:
        try:
            return self._find_path(name).stat().st_size
        except FileNotFoundError:
            return 0

    def _write(self, insertion: Insertion | None = None) -> None:
        write_json(self._run.streams, {"files": self._files, "insertion": insertion})


def _append(path: Path, content: bytes | memoryview) -> None:
    """Adds all of the content, or nothing where the disk is full."""
    path.parent.mkdir(exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    size = os.fstat(descriptor).st_size
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        os.ftruncate(descriptor, size)
        raise
    finally:
        os.close(descriptor)
