"""Recognizes what started this process. The order is from the inside to the outside: who sets ranks for processes comes
before who starts one process per node, and a platform before the scheduler below it."""

from lockstep.launch.environments import mpi, nodes
from lockstep.launch.environments.placement import Placement, Variables
from lockstep.launch.environments.slurm import check_batch_script, is_slurm_task, place_slurm_task
from lockstep.launch.environments.torch_processes import compare_ranks, place_torch_process, place_torchft_group
from lockstep.launch.environments.vertex import place_vertex_node

MPI_ORDER = (mpi.JSRUN, mpi.OPEN_MPI, mpi.MVAPICH, mpi.PALS, mpi.HYDRA)


def recognize(environment: Variables, is_in_shell: bool = False, is_elastic: bool = False) -> Placement | None:
    """Returns the place that these environment variables give to this process; None if it is to start its workers itself.
    Raises a LockstepError if they contradict each other or do not say enough.

    `is_in_shell`: a person has typed the command. `is_elastic`: torchrun may continue with fewer nodes.
    """
    variables = {name: value.strip() for name, value in environment.items() if value.strip()}
    if variables.get("LOCKSTEP_ENVIRONMENT") == "none":
        return None
    if {"REPLICA_GROUP_ID", "NUM_REPLICA_GROUPS"} <= set(variables):
        return place_torchft_group(variables)
    if {"RANK", "WORLD_SIZE", "LOCAL_RANK"} <= set(variables):
        return place_torch_process(variables, is_elastic)
    for names in MPI_ORDER:
        if mpi.is_started_by(names, variables):
            placement = mpi.place_mpi_process(names, variables)
            compare_ranks(variables, placement)
            return placement
    platform = _recognize_platform(variables)
    if platform is not None:
        return platform
    if is_slurm_task(variables, is_in_shell):
        placement = place_slurm_task(variables)
        compare_ranks(variables, placement)
        return placement
    if "JOB_COMPLETION_INDEX" in variables:
        return nodes.place_indexed_job(variables)
    if "RANK" in variables or "WORLD_SIZE" in variables:
        return nodes.place_ranked_node(variables)
    if "SLURM_PROCID" not in variables:  # srun sets PMI_RANK and PMIX_RANK for a single task, too
        mpi.refuse_bare_rank(variables)
    if not is_in_shell:
        check_batch_script(variables)
    return None


def _recognize_platform(variables: Variables) -> Placement | None:
    """Returns the place of this node on a platform that starts one process on each."""
    if "PET_NODE_RANK" in variables:
        return nodes.place_kubeflow_node(variables)
    if "SKYPILOT_NODE_RANK" in variables:
        return nodes.place_skypilot_node(variables)
    if "DSTACK_NODE_RANK" in variables:
        return nodes.place_dstack_node(variables)
    if nodes.is_sagemaker(variables):
        return nodes.place_sagemaker_node(variables)
    if "CLUSTER_SPEC" in variables or "TF_CONFIG" in variables:
        return place_vertex_node(variables)
    return None
