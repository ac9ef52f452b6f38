"""Detects whether torchrun, mpirun or another engine started this process as one of its workers."""

import os

from lockstep.errors import LockstepError


def adopt_engine_environment() -> bool:
    """Returns whether an engine started this process. If so, RANK, WORLD_SIZE and what else torch.distributed reads are
    set in `os.environ`, whatever names the engine uses."""
    if "REPLICA_GROUP_ID" in os.environ and "NUM_REPLICA_GROUPS" in os.environ:  # torchft: an engine for each worker
        os.environ.update(RANK=os.environ["REPLICA_GROUP_ID"], WORLD_SIZE=os.environ["NUM_REPLICA_GROUPS"])
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return True
    if "OMPI_COMM_WORLD_RANK" not in os.environ:
        return False
    names = {"RANK": "RANK", "WORLD_SIZE": "SIZE", "LOCAL_RANK": "LOCAL_RANK", "LOCAL_WORLD_SIZE": "LOCAL_SIZE"}
    for name, open_mpi_name in names.items():
        os.environ[name] = os.environ[f"OMPI_COMM_WORLD_{open_mpi_name}"]
    if os.environ["WORLD_SIZE"] == os.environ["LOCAL_WORLD_SIZE"]:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    elif "MASTER_ADDR" not in os.environ:
        raise LockstepError(
            "mpirun started workers on several machines, but MASTER_ADDR does not say where the first one is.",
            "Add `-x MASTER_ADDR=<first host>` to the mpirun command.",
            code=2,
        )
    job = int(os.environ.get("OMPI_MCA_ess_base_jobid", "0"))  # noqa: SIM112
    os.environ.setdefault("MASTER_PORT", str(20_000 + job % 20_000))
    return True
