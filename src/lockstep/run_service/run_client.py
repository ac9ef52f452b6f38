"""The clients of a run folder that is on another host."""

import errno
import hashlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from lockstep import faults
from lockstep.files import sync
from lockstep.run.checkpoint_part import CheckpointPart
from lockstep.run_service.signed_connection import MOST_BODY_BYTES, SignedConnection, greet

PACED_BYTES = 2**18
"""What is sent at once beside training: the network is free again after a few milliseconds."""
CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class ServiceAddress:
    """Where the service of a run folder is, and the key of the job."""

    host: str  # its name, for people
    address: str
    port: int
    key: str
    seconds: float  # how long an answer may take
    senders: int = 1  # workers that do not share the run folder

    def __str__(self) -> str:
        return f"the run folder on {self.host} ({self.address}, port {self.port})"


class RunClient:
    """A connection to the service. All failures are OSErrors that name the service."""

    def __init__(self, service: ServiceAddress, seconds: float = CONNECT_SECONDS) -> None:
        """Tries to connect for so many seconds, unless nobody listens there."""
        self.service, deadline = service, time.monotonic() + seconds
        while True:
            try:
                self._connection = self._connect()
                return
            except OSError as error:
                if isinstance(error, ConnectionRefusedError) or time.monotonic() > deadline:
                    raise self._explain(error) from None
                time.sleep(0.2)

    def _connect(self) -> SignedConnection:
        place = self.service.address, self.service.port
        end = socket.create_connection(place, min(CONNECT_SECONDS, self.service.seconds))
        try:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = greet(end, bytes.fromhex(self.service.key))
            connection.set_timeout(self.service.seconds)
            return connection
        except BaseException:
            end.close()
            raise

    def _explain(self, error: OSError) -> OSError:
        reason = error.strerror or str(error) or type(error).__name__
        return OSError(error.errno or errno.EHOSTUNREACH, f"{self.service} cannot be reached: {reason}")

    def ask(self, action: str, body: bytes | memoryview = b"", **facts: Any) -> tuple[dict[str, Any], memoryview]:
        """Has the service do something; returns its answer. An error there is an OSError here."""
        try:
            self._connection.send({"do": action, **facts}, body)
            answer, content = self._connection.receive()
        except OSError as error:
            raise self._explain(error) from None
        if "error" in answer:
            number = answer.get("errno")
            text = f"{answer['error']!s:.200} (on {self.service.host})"
            raise OSError(number if isinstance(number, int) else errno.EIO, text)
        return answer, content

    def set_timeout(self, seconds: float) -> None:
        """Sets how long an answer may take."""
        self._connection.set_timeout(seconds)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PartSender:
    """Sends what this worker writes of a checkpoint."""

    def __init__(self, service: ServiceAddress, part: CheckpointPart) -> None:
        self._client, self._part = RunClient(service), part
        self._facts: dict[str, Any] = {"step": part.step, "token": part.token, "rank": part.rank}

    def send_file(self, content: Sequence[bytes | memoryview], rest: Callable[[], None] | None) -> dict[str, Any]:
        """Sends the only file of a part; returns its size and digest. `rest` is called after each small piece of it."""
        self._client.ask("create", **self._facts)
        digest, size, most = hashlib.sha256(), 0, MOST_BODY_BYTES if rest is None else PACED_BYTES
        for piece in content:
            for begin in range(0, len(piece), most):
                chunk = memoryview(piece)[begin : begin + most]
                digest.update(chunk)
                size += len(chunk)
                self._client.ask("write", chunk)
                if rest is not None:
                    rest()
            faults.at("write", self._part.step)
        facts = {"bytes": size, "sha256": digest.hexdigest()}
        self._client.ask("finish", facts=facts)
        return facts

    def mark(self, facts: Mapping[str, Any]) -> None:
        self._client.ask("mark", facts=facts, **self._facts)

    def close(self) -> None:
        self._client.close()


def tell_failure(service: ServiceAddress, part: CheckpointPart, failure: Mapping[str, Any]) -> None:
    """Tells the first worker that this part will not come, if it can be told."""
    with suppress(OSError), RunClient(service, 1.0) as client:
        client.ask("mark", facts={"failure": failure}, step=part.step, token=part.token, rank=part.rank)


def fetch_file(client: RunClient, checkpoint: str, name: str, facts: Mapping[str, Any], to: Path) -> None:
    """Fetches a file of a checkpoint whose manifest says `facts` of it. What arrived otherwise is an OSError."""
    to.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with to.open("wb", buffering=0) as file:
        while size < facts["bytes"]:
            content = client.ask("read", checkpoint=checkpoint, file=name, at=size)[1]
            if not content:
                break
            digest.update(content)
            size += len(content)
            while content:
                content = content[file.write(content) :]
    if size != facts["bytes"] or digest.hexdigest() != facts["sha256"]:
        raise OSError(errno.EIO, f"{checkpoint}/{name} did not arrive as {client.service.host} has it")
    sync(to)
