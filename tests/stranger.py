"""A program that joins a job as worker 1 and sends a pickle, which makes a folder in whoever reads it.

`stranger.py pickle FOLDER` joins as any program of torch would; `stranger.py lockstep FOLDER` knows how Lockstep joins, and
the secret that its environment gives.
"""

import os
import pickle
import struct
import sys
from collections.abc import Callable

import torch.distributed as dist


class Payload:
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self.folder,)


def join_as_torch(payload: Payload) -> None:
    dist.init_process_group("gloo")
    dist.all_gather_object([None, None], payload)


def join_as_lockstep(payload: Payload) -> None:
    from lockstep.messages import exchange_bytes
    from lockstep.team import join

    facts = join("cpu").facts
    assert facts is not None
    content = pickle.dumps(payload)
    exchange_bytes(struct.pack("<?q", True, len(content)), facts)
    exchange_bytes(content, facts)


if __name__ == "__main__":
    way, folder = sys.argv[1:]
    (join_as_lockstep if way == "lockstep" else join_as_torch)(Payload(folder))
