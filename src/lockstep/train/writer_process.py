"""The writer process of a worker: `python -m lockstep.train.writer_process PARENT DESCRIPTOR`.

It writes checkpoints from memory that it shares with the worker, while the worker trains on. Requests come on stdin and
answers go to stdout, one JSON object per line; the line HURRY ends the rests in which it leaves processor and memory to
the training. It dies with its worker. It imports no torch.
"""

import json
import mmap
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

from lockstep.errors import LockstepError
from lockstep.process import die_with_parent
from lockstep.run.retention import keep_best_and_last
from lockstep.run_service.run_client import ServiceAddress
from lockstep.train.checkpoint_parts import (
    CheckpointPart,
    Content,
    Failure,
    Pace,
    SaveFailed,
    complete,
    describe_failure,
    write_part,
)

HURRY = json.dumps("hurry") + "\n"
NICENESS = 10
"""A tenth of a busy core: training is hardly slowed, and the write still ends on a machine that is never idle."""


class Completion(TypedDict):
    """What the primary adds to make the parts a checkpoint."""

    progress: dict[str, Any]
    config: dict[str, Any]
    keep: tuple[int, int, bool, int | None]  # the arguments of keep_best_and_last


class Request(TypedDict):
    """A part of a checkpoint. Files are places in the shared memory, each a begin and a length."""

    folder: str
    step: int
    token: str
    rank: int
    workers: int
    memory: int  # bytes in use
    files: list[tuple[str, list[tuple[int, int]]]]
    completion: Completion | None  # of the primary
    service: dict[str, Any] | None  # a ServiceAddress, where this host does not share the run folder


class WriteAnswer(TypedDict):
    """What became of a request."""

    bytes: int  # of the whole checkpoint, from the primary
    failure: Failure | None


class WriterDied(LockstepError):
    """The writer process is gone. A restart of this worker may succeed."""

    def __init__(self, pid: int, exit_code: int) -> None:
        how = (
            f"was killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"ended with exit code {exit_code}"
        )
        super().__init__(
            f"The process {pid}, which writes checkpoints, {how}.",
            "Start the same command again: it continues from the last checkpoint.",
        )


def main() -> None:
    parent, descriptor = map(int, sys.argv[1:])
    die_with_parent(parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the worker obeys them, and waits for this process
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError):  # some containers allow neither
        os.nice(NICENESS)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    for line in sys.stdin:
        if line != HURRY:  # one that came too late
            print(json.dumps(write(json.loads(line), descriptor)), flush=True)


def write(request: Request, descriptor: int) -> WriteAnswer:
    """Writes a worker's part; of the primary, also completes the checkpoint."""
    part = CheckpointPart(
        Path(request["folder"]), request["step"], request["token"], request["rank"], request["workers"]
    )
    try:
        memory = memoryview(mmap.mmap(descriptor, request["memory"], prot=mmap.PROT_READ))
        files = [(name, _cut(memory, places)) for name, places in request["files"]]
        service = None if request["service"] is None else ServiceAddress(**request["service"])
        pace = Pace(sys.stdin.fileno(), 1 if service is None else service.senders)
        write_part(part, files, pace, service)
        completion = request["completion"]
        size = 0
        if completion is not None:
            keep = keep_best_and_last(*completion["keep"])
            size = complete(part, completion["progress"], completion["config"], keep)
    except SaveFailed as error:
        return {"bytes": 0, "failure": error.failure}
    except Exception as error:
        return {"bytes": 0, "failure": describe_failure(error)}
    return {"bytes": size, "failure": None}


def _cut(memory: memoryview, places: list[tuple[int, int]]) -> Content:
    return [memory[begin : begin + length] for begin, length in places]


if __name__ == "__main__":
    main()
