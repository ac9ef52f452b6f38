"""Sends what a host writes into its outbox to the run folder of another host."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from lockstep.run import outbox
from lockstep.run_service.run_client import RunClient, ServiceAddress

SHIP_SECONDS = 0.7
RETRY_SECONDS = 5.0
CLOSE_SECONDS = 5.0
"""How long the last lines of a failed launch may take. What is left then, the next launch of this host sends."""
PIECE_BYTES = 2**20


class TakesEarlier(Protocol):
    """Takes in what earlier launches have left: `Streams`, or those of another host."""

    def count(self, name: str, stream: str) -> int: ...

    def insert(self, name: str, stream: str, at: int, content: bytes) -> int: ...

    def forget(self, name: str, stream: str) -> None: ...


class RemoteStreams:
    """The streams of a run folder on another host."""

    def __init__(self, client: RunClient) -> None:
        self._client = client

    def count(self, name: str, stream: str) -> int:
        return int(self._client.ask("count", file=name, stream=stream)[0]["count"])

    def open(self, name: str, stream: str) -> int:
        return int(self._client.ask("open", file=name, stream=stream)[0]["count"])

    def append(self, name: str, stream: str, at: int, content: bytes) -> int:
        return int(self._client.ask("append", content, file=name, stream=stream, at=at)[0]["count"])

    def insert(self, name: str, stream: str, at: int, content: bytes) -> int:
        return int(self._client.ask("insert", content, file=name, stream=stream, at=at)[0]["count"])

    def forget(self, name: str, stream: str) -> None:
        self._client.ask("forget", file=name, stream=stream)

    def set_timeout(self, seconds: float) -> None:
        self._client.set_timeout(seconds)

    def close(self) -> None:
        self._client.close()


class Shipper:
    """A thread of a worker. It sends the worker's journal and log and, if the worker is the first one of its host, what the
    monitor and the servers there write. It never fails: whatever cannot be sent stays in the outbox."""

    def __init__(self, service: ServiceAddress, folder: Path, own_files: Sequence[str], sends_others: bool) -> None:
        self._service, self._folder = service, folder
        self._own_files, self._sends_others = own_files, sends_others
        self._counts: dict[str, int] = {}  # of bytes that have arrived
        self._streams: RemoteStreams | None = None
        self._retry_at = 0.0
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shipper", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_closing.wait(SHIP_SECONDS):
            if time.monotonic() >= self._retry_at:
                with suppress(OSError):
                    self._send_all(is_last=False, seconds=0.0)

    def _send_all(self, is_last: bool, seconds: float) -> None:
        """Sends what is new in all files. Raises OSError."""
        try:
            for name in self._list_files():
                self._send(name, is_last, seconds)
        except OSError:
            if self._streams is not None:
                self._streams.close()
            self._streams, self._counts = None, {}
            self._retry_at = time.monotonic() + RETRY_SECONDS
            raise

    def _send(self, name: str, is_last: bool, seconds: float) -> None:
        if self._streams is None:
            self._streams = RemoteStreams(RunClient(self._service, seconds))
        streams, (file, stream) = self._streams, self._name(name)
        if name not in self._counts:
            self._counts[name] = streams.open(file, stream)
        take = lambda at, content: streams.append(file, stream, at, content)  # noqa: E731
        self._counts[name] = send_file(self._folder / name, self._counts[name], take, is_last)

    def _name(self, name: str) -> tuple[str, str]:
        return name_stream(self._folder, name, self._service.host)

    def _list_files(self) -> list[str]:
        written = outbox.list_files(self._folder)
        return [name for name in written if name in self._own_files or (self._sends_others and _is_shared(name))]

    def close(self, is_done: bool) -> None:
        """Sends the rest. When the training `is_done`, it removes the journal, or raises OSError if something could not be
        sent. Otherwise it does not try for long: the others wait for the end of this process."""
        self._is_closing.set()
        self._thread.join(None if is_done else CLOSE_SECONDS)
        if self._thread.is_alive():
            return
        try:
            if self._streams is not None and not is_done:
                self._streams.set_timeout(CLOSE_SECONDS)
            self._send_all(is_last=True, seconds=self._service.seconds if is_done else 0.0)
            for name in self._own_files if is_done else ():  # nobody writes to the journal any more
                if self._streams is not None and name in self._counts and name.endswith(".jsonl"):
                    (self._folder / name).unlink()
                    self._streams.forget(*self._name(name))
        except OSError:
            if is_done:
                raise
        finally:
            if self._streams is not None:
                self._streams.close()


def _is_shared(name: str) -> bool:
    return name.startswith(("journal/monitor-", "logs/server-"))


def name_stream(folder: Path, name: str, home: str) -> tuple[str, str]:
    """Returns the file in the run folder, and the stream, to which a file of an outbox belongs. A monitor's file is named
    after its host: where this host has the name of the first worker's one, the file there must be another."""
    is_double = name == f"journal/monitor-{home}.jsonl"
    return f"journal/monitor-{home}-2.jsonl" if is_double else name, folder.name


def send_file(path: Path, count: int, take: Callable[[int, bytes], int], is_last: bool) -> int:
    """Sends what a file has after the `count` bytes that have arrived; returns how many have arrived then. Of a journal
    only whole lines are sent. `take` gets a place in the file and the bytes there, and returns how many have arrived."""
    try:
        with path.open("rb") as file:
            while file.seek(count) == count and (piece := file.read(PIECE_BYTES)):
                if path.suffix == ".jsonl" or not is_last:
                    piece = piece[: piece.rfind(b"\n") + 1]
                if not piece:
                    break
                count = take(count, piece)
    except FileNotFoundError:  # an empty log is removed
        pass
    return count


def send_earlier(root: Path, launch: str, streams: TakesEarlier) -> None:
    """Sends what earlier launches of this host have left. Raises OSError if that is not possible; the rest stays."""
    for folder in outbox.list_earlier(root, launch):
        with outbox.take_over(folder) as is_free:
            for name in outbox.list_files(folder) if is_free else ():
                file, stream = name_stream(folder, name, outbox.read_home(folder))

                def take(at: int, content: bytes, file: str = file, stream: str = stream) -> int:
                    return streams.insert(file, stream, at, content)

                send_file(folder / name, streams.count(file, stream), take, is_last=True)
                (folder / name).unlink()
                streams.forget(file, stream)
            if is_free:
                outbox.remove(folder)
