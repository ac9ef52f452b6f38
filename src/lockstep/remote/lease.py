"""Who trains a remote run right now: a small object that its holder renews.

Object stores have no locks. Two launches that start in the same moment may both believe they hold the lease; the one
whose lease was overwritten finds out at its next renewal, and before it commits a checkpoint.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from lockstep.errors import LockstepError
from lockstep.remote.store import Store

NAME = "lease.json"
RENEW_SECONDS = 30.0
STALE_SECONDS = 120.0


class Lease:
    """Held from `take` to `release`. `before` is the launch that held it last: whoever has that launch's files on this
    machine has the run's latest state."""

    def __init__(self, store: Store) -> None:
        self.launch = uuid.uuid4().hex
        self.before: str | None = None
        self.lost: str | None = None  # a sentence when another launch has taken it
        self._store = store
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, say: Callable[[str], None]) -> None:
        """Waits for a holder that may be dead, refuses when it shows that it is alive."""
        found = read(self._store)
        if found and not found["released"]:
            found = self._outwait(found, say)
        self.before = found["launch"] if found else None
        self._write(released=False)
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    @property
    def taken(self) -> bool:
        return self._thread is not None

    def _outwait(self, found: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any] | None:
        """Returns the lease that may be replaced, as it stands then."""
        holder = f"process {found['pid']} on {found['host']}"
        if found["host"] == socket.gethostname() and not _alive(found["pid"]):
            return found
        age = time.time() - found["time"]
        if age < STALE_SECONDS:
            say(f"{holder} trained {self._store.url} {max(age, 0):.0f} s ago: waiting to see whether it still does.")
        end = time.monotonic() + STALE_SECONDS - max(age, 0)
        while time.monotonic() < end:
            time.sleep(min(RENEW_SECONDS / 6, max(0.0, end - time.monotonic())))
            now = read(self._store)
            if now is None or now["released"]:
                return now
            if now != found:
                raise LockstepError(
                    f"The run {self._store.url} is being trained right now (process {now['pid']} on {now['host']}).",
                    "Wait for it, stop it, or choose another --run.",
                )
        say(f"{holder} has not been heard of for {STALE_SECONDS:.0f} s: taking over {self._store.url}.")
        return found

    def check(self) -> None:
        """Raises when another launch has taken the run over."""
        found = read(self._store)
        if found is not None and found["launch"] != self.launch:
            self.lost = f"The run {self._store.url} was taken over by process {found['pid']} on {found['host']}."
        if self.lost:
            raise LockstepError(self.lost, "Leave it to that launch, or stop that one and start this one again.")

    def release(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self.check()
            self._write(released=True)

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            try:
                self.check()
                self._write(released=False)
            except LockstepError:  # lost: the loop asks; unreachable: the next renewal may succeed
                if self.lost:
                    return

    def _write(self, released: bool) -> None:
        facts = {"host": socket.gethostname(), "pid": os.getpid(), "launch": self.launch, "time": time.time()}
        self._store.write(NAME, json.dumps(facts | {"released": released}).encode())


def read(store: Store) -> dict[str, Any] | None:
    """The lease as it stands; None when there is none that can be understood. A file system, unlike a store, shows a
    file while it is being written: what cannot be understood is looked at again."""
    for _ in range(5):
        data = store.read(NAME)
        if data is None:
            return None
        try:
            found = json.loads(data)
            return {name: found[name] for name in ("host", "pid", "launch", "time", "released")}
        except (ValueError, KeyError, TypeError):
            time.sleep(0.05)
    return None


def held(store: Store) -> bool:
    """Does somebody train this run, as far as its lease tells?"""
    found = read(store)
    return found is not None and not found["released"] and time.time() - found["time"] < STALE_SECONDS


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
