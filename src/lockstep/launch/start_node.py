"""Starts the workers of one node of several, where a platform starts only one process on each: torchrun does it."""

import os
import re
import socket
import time

from lockstep.errors import LockstepError
from lockstep.launch.environments.placement import NodePlacement, is_loopback
from lockstep.notices import warn
from lockstep.run import environment_variables

LOOK_SECONDS = 1.0


def start_node(placement: NodePlacement, workers: int, words: list[str], timeout_seconds: float) -> int:
    """Has torchrun start `lockstep train WORDS` as `workers` processes of this node, whose ranks follow those of the nodes
    before. Returns the exit code of the first process that failed, or 0."""
    await_name(placement.host, placement.family, timeout_seconds)
    threads = environment_variables.threads_per_process(workers)
    os.environ.update(LOCKSTEP_NODE=placement.family, OMP_NUM_THREADS=str(threads))
    import torch.distributed as dist
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        torchrun.run(torchrun.parse_args(choose_options(placement, workers, words, timeout_seconds)))
    except ChildFailedError as error:  # the process has said what went wrong
        code = error.get_first_failure()[1].exitcode
        return code if code > 0 else 128 - code
    except SignalException as signalled:
        return 128 + int(signalled.sigval)
    except dist.DistError as error:
        raise _explain_rendezvous(placement, str(error), timeout_seconds) from None
    return 0


def choose_options(placement: NodePlacement, workers: int, words: list[str], timeout_seconds: float) -> list[str]:
    """Returns the words of a torchrun command for a node."""
    options = {
        "nnodes": placement.nodes,
        "node-rank": placement.rank,
        "nproc-per-node": workers,
        "master-addr": placement.host,
        "master-port": placement.port,
        "max-restarts": 0,  # torchrun's static rendezvous cannot start again, and the platform can
        "rdzv-backend": "static",
        "rdzv-conf": f"timeout={max(1, round(timeout_seconds))}",
    }
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [*given, "-m", "lockstep", "--", "train", *words]


def _explain_rendezvous(placement: NodePlacement, text: str, timeout_seconds: float) -> LockstepError:
    """Returns the error for what torchrun's rendezvous says when nodes are missing."""
    address, remedy = f"{placement.host}:{placement.port}", "Check that the job was started on every node."
    if counts := re.search(r"(\d+)/(\d+) clients joined", text):
        sentence = f"{counts[1]} of {placement.nodes} nodes joined at {address} within {timeout_seconds:.0f} seconds."
        if is_loopback(placement.host):
            remedy = f"{placement.host} is each machine itself: {placement.family} must name the first node."
        return LockstepError(sentence, remedy)
    if "EADDRINUSE" in text or "already in use" in text:
        return LockstepError(
            f"Port {address} is already in use.", "Set MASTER_PORT to a free one on all nodes.", code=2
        )
    sentence = f"Node {placement.rank} of {placement.nodes} lost or could not reach the first node at {address}."
    return LockstepError(sentence, f"{remedy} No firewall may be between them.")


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
