"""The lease of a remote run: a small object on the store that its owner renews while it trains.

Object stores have no locks. Two launches that start at the same moment may both believe that they own the lease. The one
whose lease was overwritten notices at its next renewal, and before it commits a checkpoint.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields

from lockstep.errors import LockstepError
from lockstep.remote.store import Store

NAME = "lease.json"
RENEW_SECONDS = 30.0
STALE_SECONDS = 120.0


@dataclass(frozen=True)
class LeaseRecord:
    """The content of the lease object: the process that owns it and when it last renewed it."""

    host: str
    pid: int
    launch: str
    time: float
    released: bool


class Lease:
    """The lease of this launch, from `take` to `release`. `previous_launch` is the launch that owned it before: a machine
    with the files of that launch has the latest state of the run."""

    def __init__(self, store: Store) -> None:
        self.launch = uuid.uuid4().hex
        self.previous_launch: str | None = None
        self.lost: str | None = None  # a sentence when another launch has taken it
        self._store = store
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, report: Callable[[str], None]) -> None:
        """Takes the lease. If its owner may be dead, it waits until the lease expires; it raises when the owner renews
        it. `report` gets a sentence about the waiting."""
        record = read_lease(self._store)
        if record and not record.released:
            record = self._wait_for_owner(record, report)
        self.previous_launch = record.launch if record else None
        self._write(released=False)
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    @property
    def is_taken(self) -> bool:
        return self._thread is not None

    def _wait_for_owner(self, record: LeaseRecord, report: Callable[[str], None]) -> LeaseRecord | None:
        """Returns the lease that may be replaced, once it is released or has expired."""
        owner = f"Process {record.pid} on {record.host}"
        if record.host == socket.gethostname() and not _is_alive(record.pid):
            return record
        age = time.time() - record.time
        if age < STALE_SECONDS:
            report(f"{owner} trained {self._store.url} {max(age, 0):.0f} s ago: waiting to see whether it still does.")
        end = time.monotonic() + STALE_SECONDS - max(age, 0)
        while time.monotonic() < end:
            time.sleep(min(RENEW_SECONDS / 6, max(0.0, end - time.monotonic())))
            now = read_lease(self._store)
            if now is None or now.released:
                return now
            if now != record:
                raise LockstepError(
                    f"The run {self._store.url} is being trained right now (process {now.pid} on {now.host}).",
                    "Wait for it, stop it, or choose another --run.",
                )
        report(f"{owner} has not renewed its lease for {STALE_SECONDS:.0f} s: taking over {self._store.url}.")
        return record

    def check(self) -> None:
        """Raises when another launch has taken the run over."""
        record = read_lease(self._store)
        if record is not None and record.launch != self.launch:
            self.lost = f"The run {self._store.url} was taken over by process {record.pid} on {record.host}."
        if self.lost:
            raise LockstepError(self.lost, "Let that launch continue, or stop it and start this one again.")

    def release(self) -> None:
        """Gives the lease back. Raises when another launch has taken it."""
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
            except (
                LockstepError
            ):  # a lost lease is reported by `check`; after a network error the next renewal may succeed
                if self.lost:
                    return

    def _write(self, released: bool) -> None:
        record = LeaseRecord(socket.gethostname(), os.getpid(), self.launch, time.time(), released)
        self._store.write(NAME, json.dumps(asdict(record)).encode())


def read_lease(store: Store) -> LeaseRecord | None:
    """Returns the current lease; None when there is none, or none that can be parsed. A file system, unlike an object
    store, shows a file while it is being written, so a lease that cannot be parsed is read again."""
    for _ in range(5):
        data = store.read(NAME)
        if data is None:
            return None
        try:
            content = json.loads(data)
            return LeaseRecord(*(content[field.name] for field in fields(LeaseRecord)))
        except (ValueError, KeyError, TypeError):
            time.sleep(0.05)
    return None


def is_leased(store: Store) -> bool:
    """Is this run being trained, according to its lease?"""
    record = read_lease(store)
    return record is not None and not record.released and time.time() - record.time < STALE_SECONDS


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
