"""One file over HTTP that survives cut connections, restarts and kill -9.

The bytes go to NAME.part; NAME.part.json says which content they belong to. Starting again asks the server for the rest
of that same content; a server that has another version, or cannot go on in the middle, sends it from the start.
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
from typing import Any, Protocol

from lockstep import __version__
from lockstep.errors import LockstepError
from lockstep.files import disk_error, read_json, sync, write_json

BLOCK_BYTES = 1 << 16
TIMEOUT_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 30.0
ELSEWHERE = "name another cache with --cache"


class Talk(Protocol):
    """Who hears what happens while fetching."""

    def say(self, line: str) -> None: ...
    def progress(self, name: str, done: int, total: int | None) -> None: ...


class NoRoom(LockstepError):
    """The disk does not take the file; another source would not help."""


class ConnectionCut(Exception):
    """The connection ended before the file did; asking again may help."""


def download(address: str, part: Path, key: str, talk: Talk, *, tries: int, pause_seconds: float = 1.0) -> None:
    """Fills `part` with the whole content of `address`.

    `key` names the content that is wanted: bytes that an earlier attempt left are used only under the same key. A try
    that brought nothing new counts; one that got further starts the count anew.
    """
    name = part.name.removesuffix(".part")
    failures, most = 0, _size(part)
    while True:
        try:
            return _transfer(address, part, key, talk)
        except (ConnectionCut, OSError, HTTPException) as error:
            reason, again = _reason(error)
            failures = 0 if _size(part) > most else failures + 1
            most = max(most, _size(part))
            if not again or failures >= tries:
                raise LockstepError(
                    f"{address} cannot be fetched: {reason}.",
                    "Check the network and try again, or put the file into a folder and name it with --from.",
                ) from None
            seconds = min(pause_seconds * 2 ** max(failures - 1, 0), LONGEST_PAUSE_SECONDS)
            talk.say(f"{name}: {reason}; trying again in {seconds:g} s")
            time.sleep(seconds)


def _transfer(address: str, part: Path, key: str, talk: Talk) -> None:
    """One request; adds to what is there if the server agrees that it is the beginning of the same content."""
    name = part.name.removesuffix(".part")
    state = _state(part, key)
    have = _size(part) if state else 0
    headers = {"User-Agent": f"lockstep/{__version__}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if state.get("validator") and state.get("address") == address:
            headers["If-Range"] = state["validator"]
    try:
        response = urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:
            if have == state.get("total"):
                return
            part.unlink()
            raise ConnectionCut("what was there did not fit") from None
        raise
    with response:
        start, total = _extent(response)
        if have and (start != have or total != state.get("total", total)):
            if start:
                part.unlink()
                raise ConnectionCut("the server sent another part of the file than was asked for")
            talk.say(f"{name}: the server sends it from the start")
            have = 0
        elif have:
            talk.say(f"{name}: going on from {have / 1e6:.1f} MB")
        with _disk(part):
            _check_space(part, (total or 0) - have)
            file = part.open("ab" if have else "wb")
        with file:
            validator = _validator(response)
            with _disk(part):
                write_json(_state_path(part), {"address": address, "key": key, "validator": validator, "total": total})
            done = have
            while block := response.read(BLOCK_BYTES):
                with _disk(part):
                    file.write(block)
                    file.flush()
                done += len(block)
                talk.progress(name, done, total)
    if total is not None and done != total:
        raise ConnectionCut(f"the connection ended after {done:,} of {total:,} bytes")
    sync(part)


def forget(part: Path) -> None:
    """Removes what an attempt left."""
    part.unlink(missing_ok=True)
    _state_path(part).unlink(missing_ok=True)


def keep(part: Path, path: Path) -> None:
    """Gives a finished file its name."""
    part.replace(path)
    _state_path(part).unlink(missing_ok=True)
    sync(path.parent)


def _extent(response: HTTPResponse) -> tuple[int, int | None]:
    """Where the content of a response starts in the file, and how long the whole file is."""
    if response.status == 206:
        unit, _, extent = response.headers.get("Content-Range", "").partition(" ")
        places, _, total = extent.partition("/")
        first = places.partition("-")[0]
        if unit == "bytes" and first.isdigit():
            return int(first), int(total) if total.isdigit() else None
        raise ConnectionCut("the server sent a part of the file without saying which")
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _validator(response: HTTPResponse) -> str | None:
    """What the server calls this version of the content; a weak tag does not promise the same bytes."""
    tag = response.headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def _state_path(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _state(part: Path, key: str) -> dict[str, Any]:
    """What is known about the bytes that are there; nothing when they were meant to be something else."""
    try:
        state = read_json(_state_path(part))
    except LockstepError:
        return {}
    return state if isinstance(state, dict) and state.get("key") == key else {}


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _check_space(part: Path, needed: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if needed > free:
        raise NoRoom(
            f"{part.parent} has no room: {needed / 1e6:,.1f} MB are needed, {free / 1e6:,.1f} MB are free.",
            f"Free some space there, or {ELSEWHERE}.",
        )


@contextlib.contextmanager
def _disk(part: Path) -> Iterator[None]:
    """Tells errors of the disk from those of the network."""
    try:
        yield
    except OSError as error:
        told = disk_error(part, error, ELSEWHERE)
        raise NoRoom(told.message, told.remedy) from None


def _reason(error: Exception) -> tuple[str, bool]:
    """What went wrong, and whether another try may help."""
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
