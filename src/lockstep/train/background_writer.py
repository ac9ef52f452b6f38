"""The worker's end of its writer process: copies what a checkpoint contains, and hears what became of it."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

from torch import Tensor

from lockstep.run import environment_variables
from lockstep.run_service.run_client import ServiceAddress
from lockstep.train.checkpoint_parts import CheckpointPart
from lockstep.train.shared_memory import SharedMemory
from lockstep.train.tensors import ALIGNMENT
from lockstep.train.writer_process import HURRY, Completion, Request, WriteAnswer, WriterDied

FileContent = tuple[str, Sequence[bytes | Tensor]]
"""The name of a file in a checkpoint, and its content in pieces. Tensors are live."""
Place = tuple[int, int]


def is_supported() -> bool:
    return hasattr(os, "memfd_create")


class BackgroundWriter:
    """Takes one save at a time."""

    def __init__(self) -> None:
        self.memory = SharedMemory()
        self._process = self._start_process()
        self.answer: WriteAnswer | None = None  # to the last request
        self.is_busy = False
        self._begin = self.seconds = 0.0  # of the last write

    def _start_process(self) -> subprocess.Popen[str]:
        """It stays in this process's session: niceness counts among the processes of one session only."""
        descriptor = self.memory.descriptor
        program = [sys.executable, "-m", "lockstep.train.writer_process", str(os.getpid()), str(descriptor)]
        pipe, environment = subprocess.PIPE, environment_variables.copy_without_secret()
        return subprocess.Popen(program, stdin=pipe, stdout=pipe, pass_fds=[descriptor], text=True, env=environment)

    def restart(self) -> None:
        """Gives the request up that is being carried out."""
        self._end_process()
        self._process, self.answer, self.is_busy = self._start_process(), None, False

    def start(
        self,
        part: CheckpointPart,
        layout: "MemoryLayout",
        completion: Completion | None,
        service: ServiceAddress | None = None,
    ) -> None:
        """Copies what `layout` contains and has it written, with a service to the run folder on another host. There must be
        room for it."""
        assert not self.is_busy, "one save at a time"
        layout.copy_to(self.memory)
        request: Request = {
            "folder": str(part.folder.absolute()),
            "step": part.step,
            "token": part.token,
            "rank": part.rank,
            "workers": part.workers,
            "memory": self.memory.size,
            "files": layout.files,
            "completion": completion,
            "service": None if service is None else asdict(service),
        }
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._explain_death() from None
        self.answer, self.is_busy, self._begin = None, True, time.perf_counter()

    def hurry(self) -> None:
        """Lets the write take all the processor time that it can use: somebody waits for it."""
        assert self._process.stdin is not None
        if self.is_busy:
            with suppress(BrokenPipeError):  # `wait` notices the death
                self._process.stdin.write(HURRY)
                self._process.stdin.flush()

    def wait(self, seconds: float) -> bool:
        """Waits for the answer at most so long; returns whether it is there. Raises WriterDied."""
        assert self._process.stdout is not None
        if self.is_busy and select.select([self._process.stdout], [], [], seconds)[0]:
            line = self._process.stdout.readline()
            if not line.endswith("\n"):
                raise self._explain_death()
            self.answer, self.is_busy = json.loads(line), False
            self.seconds = time.perf_counter() - self._begin
        return not self.is_busy

    def _explain_death(self) -> WriterDied:
        return WriterDied(self._process.pid, self._process.wait())

    def _end_process(self) -> None:
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        """Ends the process. What it has not completed is lost."""
        self._end_process()
        self.memory.close()


class MemoryLayout:
    """Where the content of files is in the shared memory. What two files have in common is there once."""

    def __init__(self, files: Sequence[FileContent]) -> None:
        self.size = 0
        self.files: list[tuple[str, list[Place]]] = []
        self._texts: list[tuple[int, bytes]] = []
        self._tensors: list[tuple[int, Tensor]] = []
        known: dict[tuple[int, int], int] = {}  # places of contiguous tensors, by address and size
        for name, pieces in files:
            places: list[Place] = []
            self.size += -self.size % ALIGNMENT
            for piece in pieces:
                self._add(piece, places, known)
            self.files.append((name, places))

    def _add(self, piece: bytes | Tensor, places: list[Place], known: dict[tuple[int, int], int]) -> None:
        length = len(piece) if isinstance(piece, bytes) else piece.nbytes
        place = self.size
        if isinstance(piece, bytes):
            self._texts.append((place, piece))
        elif piece.is_contiguous() and length:
            place = known.setdefault((piece.data_ptr(), length), self.size)
        if isinstance(piece, Tensor) and place == self.size and length:
            self._tensors.append((place, piece))
        if place == self.size:
            self.size += length
        if places and sum(places[-1]) == place:
            places[-1] = (places[-1][0], places[-1][1] + length)
        elif length:
            places.append((place, length))

    def copy_to(self, memory: SharedMemory) -> None:
        for place, text in self._texts:
            memory.put(place, text)
        memory.copy(self._tensors)
