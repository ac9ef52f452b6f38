"""Processes with torch's own variables (torchrun, Ray Train, scripts) or torchft's."""

from lockstep.errors import LockstepError
from lockstep.launch.environments.placement import (
    ALONE_REMEDY,
    DEFAULT_PORT,
    Variables,
    WorkerPlacement,
    check_below,
    read_number,
    read_optional_number,
    read_port,
    require,
)
from lockstep.launch.environments.slurm import count_tasks, is_slurm_task


def place_torchft_group(variables: Variables) -> WorkerPlacement:
    """Returns the place of a replica group of torchft, which is one worker here. They meet at their lighthouse."""
    rank, size = read_number(variables, "REPLICA_GROUP_ID"), read_number(variables, "NUM_REPLICA_GROUPS")
    check_below("REPLICA_GROUP_ID", rank, "NUM_REPLICA_GROUPS", size)
    names = ("REPLICA_GROUP_ID", "NUM_REPLICA_GROUPS")
    local_rank = read_optional_number(variables, "LOCAL_RANK") or 0
    local_size = read_optional_number(variables, "LOCAL_WORLD_SIZE")
    return WorkerPlacement("torchft", names, rank, size, local_rank, local_size)


def place_torch_process(variables: Variables, is_elastic: bool) -> WorkerPlacement:
    """Returns the place of a process whose engine sets torch's variables. `is_elastic`: the job may have fewer processes
    than its scheduler has started."""
    rank, size = read_number(variables, "RANK"), read_number(variables, "WORLD_SIZE")
    local_rank, local_size = read_number(variables, "LOCAL_RANK"), read_optional_number(variables, "LOCAL_WORLD_SIZE")
    check_below("RANK", rank, "WORLD_SIZE", size)
    if local_size is not None:
        check_below("LOCAL_RANK", local_rank, "LOCAL_WORLD_SIZE", local_size)
        if local_size > size:
            raise LockstepError(f"LOCAL_WORLD_SIZE is {local_size}, but WORLD_SIZE is {size}.", ALONE_REMEDY, code=2)
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK"]
    family = "an engine with torch's variables"
    if "TORCHELASTIC_RUN_ID" in variables:
        family, names = "torchrun", [*names, "TORCHELASTIC_RUN_ID"]
    elif ray := next((name for name in sorted(variables) if name.startswith("RAY_")), None):
        family, names = "Ray Train", [*names, ray]
    if not is_elastic:
        _compare_with_slurm(variables, size)
    host = variables.get("MASTER_ADDR")
    port = None if "MASTER_PORT" not in variables else read_port(variables, "MASTER_PORT", DEFAULT_PORT)
    return WorkerPlacement(family, tuple(names), rank, size, local_rank, local_size, host, port)


def _compare_with_slurm(variables: Variables, size: int) -> None:
    """Refuses a job with fewer processes than srun has started tasks: each task would be a world of its own."""
    if not is_slurm_task(variables, is_in_shell=False):
        return
    name, tasks = count_tasks(variables)
    if size < tasks:
        raise LockstepError(
            f"{name} is {tasks}, but WORLD_SIZE is {size}: Slurm has started {tasks} tasks, and not all of them would "
            "train together.",
            "Give torchrun --nnodes, or unset RANK and WORLD_SIZE so that Slurm's numbers are used.",
            code=2,
        )


def compare_ranks(variables: Variables, placement: WorkerPlacement) -> None:
    """Refuses RANK and WORLD_SIZE that say something else than the engine that was recognized."""
    for name, number, source in (
        ("RANK", placement.rank, placement.names[0]),
        ("WORLD_SIZE", placement.size, placement.names[1]),
    ):
        if name in variables and read_number(variables, name) != number:
            raise LockstepError(
                f"{source} is {number}, but {name} is {require(variables, name)}.",
                f"Unset RANK and WORLD_SIZE: {placement.family} has its own.",
                code=2,
            )
