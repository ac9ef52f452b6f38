"""Platforms that start one process on each node: Kubeflow, SkyPilot, dstack, SageMaker, Kubernetes, and scripts."""

import json
from collections.abc import Sequence
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.launch.environments.placement import (
    ALONE_REMEDY,
    DEFAULT_PORT,
    LOOPBACK,
    NodePlacement,
    Variables,
    check_below,
    read_number,
    read_optional_number,
    read_port,
    require,
)

SAGEMAKER_FILE = Path("/opt/ml/input/config/resourceconfig.json")
TORCHRUN_REMEDY = "Start `torchrun -m lockstep -- train ...`, which reads the PET_ variables itself."


def place_kubeflow_node(variables: Variables) -> NodePlacement:
    """Returns the place of a node of Kubeflow Trainer, whose PET_ variables are meant for torchrun. Version 1 also sets
    RANK and WORLD_SIZE: the number of the node, and that of the nodes or of all workers."""
    text = require(variables, "PET_NNODES", "PET_NODE_RANK is")
    if ":" in text or ("PET_RDZV_ENDPOINT" in variables and "PET_MASTER_ADDR" not in variables):
        raise LockstepError("The PET_ variables ask for torchrun's elastic rendezvous.", TORCHRUN_REMEDY, code=2)
    rank, nodes = read_number(variables, "PET_NODE_RANK"), read_number(variables, "PET_NNODES")
    check_below("PET_NODE_RANK", rank, "PET_NNODES", nodes)
    workers = variables.get("PET_NPROC_PER_NODE", "")
    count = int(workers) if workers.isdecimal() and len(workers) < 6 else None
    if "RANK" in variables and read_number(variables, "RANK") != rank:
        raise LockstepError(f"PET_NODE_RANK is {rank}, but RANK is {variables['RANK']}.", ALONE_REMEDY, code=2)
    if "WORLD_SIZE" in variables and read_number(variables, "WORLD_SIZE") not in (nodes, nodes * (count or 1)):
        size = variables["WORLD_SIZE"]
        raise LockstepError(f"PET_NNODES is {nodes}, but WORLD_SIZE is {size}.", ALONE_REMEDY, code=2)
    prefix = "PET_" if "PET_MASTER_ADDR" in variables else ""
    host = _find_host(variables, f"{prefix}MASTER_ADDR", nodes, "PET_NNODES")
    port = read_port(variables, f"{prefix}MASTER_PORT", DEFAULT_PORT)
    return NodePlacement("Kubeflow", ("PET_NODE_RANK", "PET_NNODES"), rank, nodes, host, port, count)


def place_skypilot_node(variables: Variables) -> NodePlacement:
    """Returns the place of a node of a SkyPilot task."""
    addresses = require(variables, "SKYPILOT_NODE_IPS", "SKYPILOT_NODE_RANK is").split()
    names = ("SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", "SKYPILOT_NODE_IPS")
    return _place_listed_node(variables, "SkyPilot", names, addresses, "SKYPILOT_NUM_GPUS_PER_NODE")


def place_dstack_node(variables: Variables) -> NodePlacement:
    """Returns the place of a node of a dstack task."""
    names = ("DSTACK_NODE_RANK", "DSTACK_NODES_NUM", "DSTACK_MASTER_NODE_IP")
    rank, nodes = read_number(variables, names[0]), read_number(variables, names[1])
    check_below(names[0], rank, names[1], nodes)
    host = _find_host(variables, names[2], nodes, names[1])
    gpus = read_optional_number(variables, "DSTACK_GPUS_PER_NODE")
    return NodePlacement(
        "dstack", names, rank, nodes, host, read_port(variables, "MASTER_PORT", DEFAULT_PORT), gpus=gpus
    )


def _place_listed_node(
    variables: Variables, family: str, names: tuple[str, str, str], hosts: Sequence[str], gpus_name: str
) -> NodePlacement:
    rank, nodes = read_number(variables, names[0]), read_optional_number(variables, names[1])
    if nodes is not None and nodes != len(hosts):
        raise LockstepError(f"{names[1]} is {nodes}, but {names[2]} has {len(hosts)} addresses.", ALONE_REMEDY, code=2)
    check_below(names[0], rank, f"the number of addresses in {names[2]}", len(hosts))
    port, gpus = read_port(variables, "MASTER_PORT", DEFAULT_PORT), read_optional_number(variables, gpus_name)
    used = tuple(name for name in names if name in variables)
    return NodePlacement(family, used, rank, len(hosts), hosts[0], port, gpus=gpus)


def is_sagemaker(variables: Variables, file: Path = SAGEMAKER_FILE) -> bool:
    return "SM_HOSTS" in variables or "SM_CURRENT_HOST" in variables or file.is_file()


def place_sagemaker_node(variables: Variables, file: Path = SAGEMAKER_FILE) -> NodePlacement:
    """Returns the place of a node of a SageMaker job, from the toolkit's variables or from the platform's file. Nodes have
    the order of their sorted names, which is the same everywhere."""
    if "SM_HOSTS" in variables or "SM_CURRENT_HOST" in variables:
        names = ("SM_CURRENT_HOST", "SM_HOSTS")
        current: object = require(variables, "SM_CURRENT_HOST", "SM_HOSTS is")
        hosts = parse_json("SM_HOSTS", require(variables, "SM_HOSTS", "SM_CURRENT_HOST is"))
    else:
        names = ("current_host", f"hosts in {file}")
        try:
            facts = parse_json(str(file), file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            raise LockstepError(f"{file} cannot be read.", ALONE_REMEDY, code=2) from None
        facts = facts if isinstance(facts, dict) else {}
        current, hosts = facts.get("current_host"), facts.get("hosts")
    if not isinstance(hosts, list) or not hosts or not all(isinstance(host, str) and host for host in hosts):
        raise LockstepError(f"{names[1]} is no list of host names.", ALONE_REMEDY, code=2)
    ordered = sorted(set(hosts))
    if current not in ordered:
        raise LockstepError(f"{names[0]} is {current!r}, which is not one of {names[1]}.", ALONE_REMEDY, code=2)
    port, gpus = read_port(variables, "MASTER_PORT", DEFAULT_PORT), read_optional_number(variables, "SM_NUM_GPUS")
    return NodePlacement("SageMaker", names, ordered.index(current), len(ordered), ordered[0], port, gpus=gpus)


def place_indexed_job(variables: Variables) -> NodePlacement:
    """Returns the place of a pod of an Indexed Job. Kubernetes tells a pod its number only; the manifest must tell the
    rest."""
    rank = read_number(variables, "JOB_COMPLETION_INDEX")
    if "WORLD_SIZE" not in variables:
        raise LockstepError(
            f"JOB_COMPLETION_INDEX says that this is pod {rank}, but nothing says of how many.",
            "Set WORLD_SIZE to spec.completions in the manifest, and MASTER_ADDR to <job>-0.<service>. "
            "LOCKSTEP_ENVIRONMENT=none trains in each pod by itself.",
            code=2,
        )
    nodes = read_number(variables, "WORLD_SIZE")
    check_below("JOB_COMPLETION_INDEX", rank, "WORLD_SIZE", nodes)
    if "RANK" in variables and read_number(variables, "RANK") != rank:
        raise LockstepError(f"JOB_COMPLETION_INDEX is {rank}, but RANK is {variables['RANK']}.", ALONE_REMEDY, code=2)
    names = ("JOB_COMPLETION_INDEX", "WORLD_SIZE", "MASTER_ADDR")
    host = _find_host(variables, "MASTER_ADDR", nodes, "WORLD_SIZE")
    return NodePlacement(
        "a Kubernetes Indexed Job", names, rank, nodes, host, read_port(variables, "MASTER_PORT", DEFAULT_PORT)
    )


def place_ranked_node(variables: Variables) -> NodePlacement:
    """Returns the place of a process with RANK and WORLD_SIZE but without LOCAL_RANK: Kubeflow's PyTorchJob and Alibaba PAI
    number nodes that way."""
    for name in ("RANK", "WORLD_SIZE"):
        require(variables, name, f"{'WORLD_SIZE' if name == 'RANK' else 'RANK'} is")
    if "LOCAL_WORLD_SIZE" in variables:
        raise LockstepError(
            "LOCAL_WORLD_SIZE is set, but LOCAL_RANK is not.",
            "Set both for one process per worker, or neither for one process per node.",
            code=2,
        )
    rank, nodes = read_number(variables, "RANK"), read_number(variables, "WORLD_SIZE")
    check_below("RANK", rank, "WORLD_SIZE", nodes)
    host = _find_host(variables, "MASTER_ADDR", nodes, "WORLD_SIZE")
    port, workers = read_port(variables, "MASTER_PORT", DEFAULT_PORT), read_optional_number(variables, "NPROC_PER_NODE")
    names = ("RANK", "WORLD_SIZE", "no LOCAL_RANK")
    return NodePlacement("an engine that numbers nodes", names, rank, nodes, host, port, workers)


def _find_host(variables: Variables, name: str, nodes: int, because: str) -> str:
    return variables.get(name, LOOPBACK) if nodes == 1 else require(variables, name, f"{because} is {nodes}")


def parse_json(name: str, text: str) -> object:
    """Returns what JSON from outside says."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise LockstepError(f"{name} is no JSON.", ALONE_REMEDY, code=2) from None
