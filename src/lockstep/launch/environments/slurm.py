"""Tasks that srun has started."""

from lockstep.errors import LockstepError
from lockstep.launch.environments.host_lists import expand_hosts, expand_task_counts
from lockstep.launch.environments.placement import (
    ALONE_REMEDY,
    LOOPBACK,
    Variables,
    WorkerPlacement,
    check_below,
    derive_port,
    is_loopback,
    read_number,
    read_optional_number,
    read_port,
)

SHELLS = ("bash", "sh", "zsh", "interactive")
FIRST_SPECIAL_STEP = 0xFFFFFFF0
"""Slurm numbers the batch script, an interactive shell and such from here."""
STEP_NAMES = ("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST")


def is_slurm_task(variables: Variables, is_in_shell: bool) -> bool:
    """Whether srun has started this process as one of several tasks. What runs in a batch script, in the shell of salloc
    or in that of `srun --pty bash` is none."""
    if "SLURM_PROCID" not in variables:
        return False
    if is_in_shell and ("SLURM_PTY_PORT" in variables or variables.get("SLURM_JOB_NAME") in SHELLS):
        return False
    step = variables.get("SLURM_STEP_ID") or variables.get("SLURM_STEPID") or ""
    if step.isdecimal() and int(step) >= FIRST_SPECIAL_STEP:
        return False
    if not any(name in variables for name in STEP_NAMES):
        return read_number(variables, "SLURM_PROCID") > 0  # a batch script is always number 0
    return count_tasks(variables)[1] > 1


def check_batch_script(variables: Variables) -> None:
    """Refuses to train on one node of several because srun was forgotten in a batch script."""
    is_batch = variables.get("SLURM_PROCID") == "0" and not any(name in variables for name in STEP_NAMES)
    nodes = read_optional_number(variables, "SLURM_JOB_NUM_NODES") or read_optional_number(variables, "SLURM_NNODES")
    if is_batch and nodes is not None and nodes > 1 and variables.get("SLURM_JOB_NAME") not in SHELLS:
        raise LockstepError(
            f"The Slurm job has {nodes} nodes, but this process was started on one of them only, and not by srun.",
            "Write srun before the command. LOCKSTEP_ENVIRONMENT=none trains on this node only.",
            code=2,
        )


def count_tasks(variables: Variables) -> tuple[str, int]:
    """Returns the variable that says how many tasks the step has, and their number."""
    for name in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"):
        if name in variables:
            return name, read_number(variables, name)
    raise LockstepError("SLURM_PROCID is set, but SLURM_NTASKS is not.", ALONE_REMEDY, code=2)


def place_slurm_task(variables: Variables) -> WorkerPlacement:
    """Returns the place of a task."""
    size_name, size = count_tasks(variables)
    rank, local_rank = read_number(variables, "SLURM_PROCID"), read_number(variables, "SLURM_LOCALID")
    check_below("SLURM_PROCID", rank, size_name, size)
    local_size = _find_local_size(variables, size_name, size)
    if local_size is not None:
        check_below("SLURM_LOCALID", local_rank, "the number of tasks on this node", local_size)
    list_name, hosts = list_slurm_hosts(variables)
    host = variables.get("MASTER_ADDR")
    names = ("SLURM_PROCID", size_name, "SLURM_LOCALID")
    if host is None and not hosts:
        raise LockstepError(
            "SLURM_PROCID is set, but neither SLURM_STEP_NODELIST nor MASTER_ADDR says where task 0 is.",
            "Pass Slurm's variables on to the container, or set MASTER_ADDR.",
            code=2,
        )
    if host is not None and is_loopback(host) and len(hosts) > 1:
        raise LockstepError(
            f"MASTER_ADDR is {host}, which is each machine itself, but {list_name} names {len(hosts)} nodes.",
            "Unset MASTER_ADDR: the first node of the list is used then.",
            code=2,
        )
    job = f"{variables.get('SLURM_JOB_ID', '')}.{variables.get('SLURM_STEP_ID', '')}"
    return WorkerPlacement(
        "Slurm",
        (*names, "MASTER_ADDR" if host else list_name),
        rank,
        size,
        local_rank,
        local_size,
        host or (LOOPBACK if local_size == size else hosts[0]),
        read_port(variables, "MASTER_PORT", derive_port(job)),
        is_derived=host is None,
    )


def list_slurm_hosts(variables: Variables) -> tuple[str, list[str]]:
    """Returns the variable with the nodes of the step, or else of the job, and the nodes; none if there is none."""
    for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        if name in variables:
            return name, expand_hosts(variables[name])
    return "", []


def _find_local_size(variables: Variables, size_name: str, size: int) -> int | None:
    """Returns the tasks on this node. Those of the step must add up; those of the job may be others."""
    node = read_optional_number(variables, "SLURM_NODEID")
    for name in ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"):
        if name not in variables:
            continue
        counts = expand_task_counts(variables[name])
        if sum(counts) == size:
            if len(counts) == 1:
                return size
            if node is None:
                return None
            check_below("SLURM_NODEID", node, f"the number of nodes in {name}", len(counts))
            return counts[node]
        if name == "SLURM_STEP_TASKS_PER_NODE":
            raise LockstepError(
                f"{name} is {variables[name]}, which are {sum(counts)} tasks, but {size_name} is {size}.",
                ALONE_REMEDY,
                code=2,
            )
    return None
