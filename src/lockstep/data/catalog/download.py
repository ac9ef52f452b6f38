"""Downloads a file over HTTP and resumes after lost connections, restarts and kill -9.

The bytes go to NAME.part; NAME.part.json records which content they belong to. A new attempt asks the server for the rest
of the same content. If the server has another version, or does not support ranges, it sends the file from the start.
"""

import contextlib
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Protocol, TypedDict

from lockstep import __version__
from lockstep.errors import LockstepError
from lockstep.files import disk_error, read_json, sync, write_json

BLOCK_BYTES = 1 << 16
TIMEOUT_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 30.0
ELSEWHERE = "name another cache with --cache"


class FetchLog(Protocol):
    """Receives messages and progress during a download."""

    def say(self, line: str) -> None: ...
    def progress(self, name: str, done: int, total: int | None) -> None: ...


class DiskFull(LockstepError):
    """The file cannot be written to this disk, so that another source would not help."""


class ConnectionCut(Exception):
    """The connection ended before the file was complete. Another attempt may help."""


class PartState(TypedDict):
    """The content of NAME.part.json."""

    address: str
    key: str
    validator: str | None
    total: int | None


def download(address: str, part: Path, key: str, log: FetchLog, *, tries: int, pause_seconds: float = 1.0) -> None:
    """Downloads the content of `address` to `part`.

    `key` identifies the content: bytes of an earlier attempt are used only if they have the same key. It gives up after
    `tries` attempts in a row without progress.
    """
    name = part.name.removesuffix(".part")
    failures, most = 0, _size(part)
    while True:
        try:
            return _transfer(address, part, key, log)
        except (ConnectionCut, OSError, HTTPException) as error:
            reason, again = _explain(error)
            failures = 0 if _size(part) > most else failures + 1
            most = max(most, _size(part))
            if not again or failures >= tries:
                raise LockstepError(
                    f"{address} cannot be fetched: {reason}.",
                    "Check the network and try again, or put the file into a folder and name it with --from.",
                ) from None
            seconds = min(pause_seconds * 2 ** max(failures - 1, 0), LONGEST_PAUSE_SECONDS)
            log.say(f"{name}: {reason}; trying again in {seconds:g} s")
            time.sleep(seconds)


def _transfer(address: str, part: Path, key: str, log: FetchLog) -> None:
    """Sends one request. Appends to `part` if the server confirms that it is the beginning of the same content."""
    name = part.name.removesuffix(".part")
    state = _read_state(part, key)
    have = _size(part) if state else 0
    try:
        response = urllib.request.urlopen(_make_request(address, have, state), timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:
            if state is not None and have == state["total"]:
                return
            part.unlink()
            raise ConnectionCut("the earlier part does not belong to this file") from None
        raise
    with response:
        start, total = _parse_range(response)
        if have and (start != have or state is None or total != state["total"]):
            if start:
                part.unlink()
                raise ConnectionCut("the server sent another part of the file than requested")
            log.say(f"{name}: the server sends it from the start")
            have = 0
        elif have:
            log.say(f"{name}: resuming at {have / 1e6:.1f} MB")
        with _report_disk_errors(part):
            _check_space(part, (total or 0) - have)
            file = part.open("ab" if have else "wb")
        with file:
            new_state: PartState = {
                "address": address,
                "key": key,
                "validator": _find_validator(response),
                "total": total,
            }
            with _report_disk_errors(part):
                write_json(_state_path(part), new_state)
            done = have
            while block := response.read(BLOCK_BYTES):
                with _report_disk_errors(part):
                    file.write(block)
                    file.flush()
                done += len(block)
                log.progress(name, done, total)
    if total is not None and done != total:
        raise ConnectionCut(f"the connection ended after {done:,} of {total:,} bytes")
    sync(part)


def _make_request(address: str, have: int, state: PartState | None) -> urllib.request.Request:
    """Makes a request for the bytes from `have` on."""
    headers = {"User-Agent": f"lockstep/{__version__}", "Accept-Encoding": "identity"}
    if have and state is not None:
        headers["Range"] = f"bytes={have}-"
        if state["validator"] and state["address"] == address:
            headers["If-Range"] = state["validator"]
    return urllib.request.Request(address, headers=headers)


def discard(part: Path) -> None:
    """Removes an incomplete file and its state."""
    part.unlink(missing_ok=True)
    _state_path(part).unlink(missing_ok=True)


def finish(part: Path, path: Path) -> None:
    """Renames a complete file to its final name."""
    part.replace(path)
    _state_path(part).unlink(missing_ok=True)
    sync(path.parent)


def _parse_range(response: HTTPResponse) -> tuple[int, int | None]:
    """Returns the position of the response in the file, and the size of the file if the server reports it."""
    if response.status == 206:
        unit, _, extent = response.headers.get("Content-Range", "").partition(" ")
        positions, _, total = extent.partition("/")
        first = positions.partition("-")[0]
        if unit == "bytes" and first.isdigit():
            return int(first), int(total) if total.isdigit() else None
        raise ConnectionCut("the server sent a part of the file without saying which")
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _find_validator(response: HTTPResponse) -> str | None:
    """Returns the ETag or the date of this version of the content. A weak ETag does not guarantee the same bytes."""
    tag = response.headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def _state_path(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_state(part: Path, key: str) -> PartState | None:
    """Returns the state of an incomplete file, or None if it is unreadable or belongs to other content."""
    try:
        state = read_json(_state_path(part))
    except LockstepError:
        return None
    if not isinstance(state, dict) or not PartState.__required_keys__ <= state.keys() or state["key"] != key:
        return None
    return PartState(address=state["address"], key=key, validator=state["validator"], total=state["total"])


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _check_space(part: Path, needed: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if needed > free:
        raise DiskFull(
            f"{part.parent} has not enough space: {needed / 1e6:,.1f} MB are needed, {free / 1e6:,.1f} MB are free.",
            f"Free some space there, or {ELSEWHERE}.",
        )


@contextlib.contextmanager
def _report_disk_errors(part: Path) -> Iterator[None]:
    """Raises DiskFull for errors of the disk, so that they are not taken for errors of the network."""
    try:
        yield
    except OSError as error:
        explained = disk_error(part, error, ELSEWHERE)
        raise DiskFull(explained.message, explained.remedy) from None


def _explain(error: Exception) -> tuple[str, bool]:
    """Returns a description of the error, and whether another attempt may help."""
    if isinstance(error, urllib.error.HTTPError):
        again = error.code >= 500 or error.code in (408, 429)
        return f"the server answers {error.code} {error.reason}".rstrip(), again
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, socket.gaierror):
        return "the name of the server cannot be resolved", True
    if isinstance(inner, ConnectionRefusedError):
        return "the connection is refused", True
    if isinstance(inner, TimeoutError):
        return "the server does not answer", True
    text = (inner.strerror if isinstance(inner, OSError) else None) or str(inner) or type(inner).__name__
    return text[:1].lower() + text[1:], True
