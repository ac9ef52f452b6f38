"""The service of a run folder: `python -m lockstep.run_service.service`, a process of the first worker.

It makes the run folder usable for hosts that do not share it. It reads its facts from stdin, prints its port, and ends with
the worker. A stranger cannot do more than hold one of a few waiting places for a moment.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from lockstep.errors import LockstepError
from lockstep.process import die_with_parent
from lockstep.run import environment_variables
from lockstep.run.directory import RunDirectory
from lockstep.run_service.requests import BadRequest, Requests
from lockstep.run_service.signed_connection import SignedConnection, accept
from lockstep.run_service.streams import Streams

MOST_STRANGERS = 64
"""Connections that have not proved yet that they belong to the job."""
NICENESS = 5


class ServiceFacts(TypedDict):
    """What the first worker tells the service that it starts."""

    parent: int
    folder: str
    address: str  # to listen at
    port: int  # 0: any free one
    key: str


class Service:
    """Listens, and serves every client in a thread of its own."""

    def __init__(self, folder: Path, address: str, port: int, key: bytes) -> None:
        self._run, self._key = RunDirectory(folder), key
        self._streams = Streams(self._run)
        self._places = threading.BoundedSemaphore(MOST_STRANGERS)
        family, kind, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        self._listener = socket.socket(family, kind)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(place)
        self._listener.listen(128)
        self.port: int = self._listener.getsockname()[1]

    def run(self) -> None:
        while True:
            try:
                end, _ = self._listener.accept()
            except OSError:  # no descriptors are left, or the client is gone already
                threading.Event().wait(0.1)
                continue
            if not self._places.acquire(blocking=False):
                end.close()
                continue
            threading.Thread(target=self._serve, args=(end,), daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        try:
            try:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = accept(end, self._key)
            finally:
                self._places.release()
            connection.set_timeout(None)
            self._answer(connection)
        except OSError:  # a stranger, or a client that is gone
            pass
        finally:
            end.close()

    def _answer(self, connection: SignedConnection) -> None:
        """Answers a client until it goes away."""
        requests = Requests(self._run, self._streams)
        try:
            while True:
                request, body = connection.receive()
                try:
                    answer, content = requests.carry_out(request, body)
                except OSError as error:
                    answer, content = {"error": error.strerror or str(error), "errno": error.errno}, b""
                except (BadRequest, ValueError, TypeError) as error:
                    answer, content = {"error": f"the request was refused: {error}"}, b""
                connection.send(answer, content)
        finally:
            requests.close()


class ServiceProcess:
    """The first worker's end of the service."""

    def __init__(self, run: RunDirectory, address: str, key: bytes) -> None:
        """Starts the service. The key goes through a pipe: the system shows an environment to others."""
        port, pipe = environment_variables.run_port(), subprocess.PIPE
        words = [sys.executable, "-m", "lockstep.run_service.service"]
        environment = environment_variables.copy_without_secret()
        self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=environment)
        facts: ServiceFacts = {
            "parent": os.getpid(),
            "folder": str(run.path.absolute()),
            "address": address,
            "port": port,
            "key": key.hex(),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(facts) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or "{}")
        if "port" not in answer:
            self.close()
            raise LockstepError(
                f"The run folder cannot be offered to the other hosts at {address}, port {port}: "
                f"{answer.get('error', 'the service died')}.",
                "Set LOCKSTEP_RUN_PORT to a free port of this machine, or leave it out.",
            )
        self.port = int(answer["port"])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def main() -> None:
    facts: ServiceFacts = json.loads(sys.stdin.readline())
    die_with_parent(facts["parent"])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the worker obeys them, and ends this process
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError):
        os.nice(NICENESS)
    try:
        service = Service(Path(facts["folder"]), facts["address"], facts["port"], bytes.fromhex(facts["key"]))
    except OSError as error:
        print(json.dumps({"error": error.strerror}), flush=True)
        return
    print(json.dumps({"port": service.port}), flush=True)
    service.run()


if __name__ == "__main__":
    main()
