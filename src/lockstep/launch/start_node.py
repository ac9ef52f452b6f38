"""Starts the workers of one node of several, where a platform starts only one process on each: torchrun does it."""

import os
import socket
import sys
import time
from typing import NoReturn

from lockstep.errors import LockstepError
from lockstep.launch.environments.placement import NodePlacement
from lockstep.notices import warn
from lockstep.run import environment_variables

LOOK_SECONDS = 1.0


def start_node(placement: NodePlacement, workers: int, words: list[str], timeout_seconds: float) -> NoReturn:
    """Becomes a torchrun that starts `lockstep train WORDS` as `workers` processes of this node. Their ranks follow those
    of the processes of the nodes before."""
    await_name(placement.host, placement.family, timeout_seconds)
    threads = environment_variables.threads_per_process(workers)
    own = {"LOCKSTEP_NODE": placement.family, "OMP_NUM_THREADS": str(threads)}
    sys.stdout.flush()
    sys.stderr.flush()
    command = make_command(placement, workers, words, timeout_seconds)
    os.execve(sys.executable, command, os.environ | own)  # noqa: S606


def make_command(placement: NodePlacement, workers: int, words: list[str], timeout_seconds: float) -> list[str]:
    """Returns the torchrun command of a node."""
    options = {
        "nnodes": placement.nodes,
        "node-rank": placement.rank,
        "nproc-per-node": workers,
        "master-addr": placement.host,
        "master-port": placement.port,
        "max-restarts": 0,  # torchrun's static rendezvous cannot start again, and the platform can
        "rdzv-conf": f"timeout={round(timeout_seconds)}",
    }
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend", "static", *given]
    return [*command, "-m", "lockstep", "--", "train", *words]


def await_name(host: str, family: str, timeout_seconds: float) -> None:
    """Waits until the name of the first node is known: platforms announce it when that node has started."""
    deadline, has_warned = time.monotonic() + timeout_seconds, False
    while True:
        try:
            socket.getaddrinfo(host, None)
        except OSError as error:
            if time.monotonic() > deadline:
                raise LockstepError(
                    f"The name of the first node, {host}, is not known here ({error.strerror}); {family} named it.",
                    "Check that the first node was started and that its name can be looked up (on Kubernetes: a headless "
                    "service, and its name as the pods' subdomain).",
                ) from None
            if not has_warned:
                warn(f"Waiting for the name of the first node, {host}.")
                has_warned = True
            time.sleep(LOOK_SECONDS)
        else:
            return
