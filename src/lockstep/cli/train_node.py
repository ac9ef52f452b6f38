"""`lockstep train` as the only process that a platform has started on each node: how many workers it starts there."""

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from lockstep.errors import LockstepError, require

if TYPE_CHECKING:
    from lockstep.config import RunConfig
    from lockstep.launch.environments.placement import NodePlacement


def join_as_node(
    placement: "NodePlacement", config: "RunConfig", workers: int | None, words: list[str], port: int
) -> int | None:
    """Starts the workers of this node of several and does not return, or returns their number if there is one node only.
    `workers` is what the user said."""
    from lockstep.launch.start_node import start_node
    from lockstep.notices import warn
    from lockstep.run.environment_variables import silencing_torch

    require("Training", "torch", "train")
    if placement.role == "evaluator":
        warn("Lockstep evaluates in worker 0: there is nothing to do for an evaluator.")
        sys.exit(0)
    _check_servers(placement, config)
    count = workers or config.train.workers or placement.workers
    if placement.nodes > 1:
        with silencing_torch():
            import torch  # noqa: F401
        count = 1 if placement.role == "server" else count or choose_node_workers(placement, config)
        if placement.rank == 0:
            warn(
                f"torchrun starts {count} worker{'s' * (count > 1)} here, and does not start them again after a death."
            )
        sys.exit(
            start_node(replace(placement, port=port or placement.port), count, words, config.train.timeout_seconds)
        )
    return count


def choose_node_workers(placement: "NodePlacement", config: "RunConfig") -> int:
    """Returns one worker per GPU of this node, or one for every CORES_PER_WORKER cores."""
    from lockstep.cli.train_command import CORES_PER_WORKER

    if config.train.device != "cpu":
        import torch

        visible = torch.cuda.device_count()
        if placement.gpus and placement.gpus != visible:
            raise LockstepError(
                f"{placement.family} says that this node has {placement.gpus} GPUs, but torch sees {visible}.",
                "Install a torch for these GPUs, or say how many workers to start: --workers N.",
                code=2,
            )
        if visible:
            return visible
    return max(1, len(os.sched_getaffinity(0)) // CORES_PER_WORKER)


def _check_servers(placement: "NodePlacement", config: "RunConfig") -> None:
    """Refuses parameter servers of the platform that the strategy does not have, and the other way round."""
    servers = config.strategy.servers if config.strategy.name == "server" else 0
    if placement.servers and config.strategy.name != "server":
        raise LockstepError(
            f"{placement.family} has {placement.servers} nodes that are parameter servers, but strategy.name is "
            f"{config.strategy.name}.",
            "Set strategy.name=server, or leave those nodes out.",
            code=2,
        )
    if placement.servers not in (0, servers):  # without nodes of their own, the last workers' processes are the servers
        raise LockstepError(
            f"{placement.family} has {placement.servers} nodes that are parameter servers, but strategy.servers is "
            f"{servers}.",
            f"Set strategy.servers={placement.servers}: each of those nodes runs one.",
            code=2,
        )
