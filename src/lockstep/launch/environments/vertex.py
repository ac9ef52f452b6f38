"""Nodes of Vertex AI, and of others that describe a cluster in CLUSTER_SPEC or TF_CONFIG."""

from typing import Literal

from lockstep.errors import LockstepError
from lockstep.launch.environments.nodes import parse_json
from lockstep.launch.environments.placement import ALONE_REMEDY, DEFAULT_PORT, NodePlacement, Variables, read_port

POOLS = {
    "CLUSTER_SPEC": ("workerpool0", "workerpool1", "workerpool2", "workerpool3"),
    "TF_CONFIG": ("chief", "worker", "ps", "evaluator"),
}
"""The names of the primary, the other workers, the parameter servers and the evaluators."""
OTHER_NAMES = {"master": "chief"}


def place_vertex_node(variables: Variables) -> NodePlacement:
    """Returns the place of a node: workers come first, parameter servers last, and evaluators take no part."""
    name = "CLUSTER_SPEC" if "CLUSTER_SPEC" in variables else "TF_CONFIG"
    family = "Vertex AI" if name == "CLUSTER_SPEC" else "a cluster with TF_CONFIG"
    *training, evaluator = POOLS[name]
    pools, kind, index = _read_cluster(name, variables[name])
    nodes = [address for pool in training for address in pools.get(pool, [])]
    servers = len(pools.get(training[2], []))
    if len(nodes) == servers:
        raise LockstepError(f"{name} names no workers.", ALONE_REMEDY, code=2)
    host, port = _split_address(nodes[0])
    port = read_port(variables, "MASTER_PORT", port)
    if kind == evaluator:
        return NodePlacement(family, (name,), 0, len(nodes), host, port, role="evaluator", servers=servers)
    if index >= len(pools.get(kind, [])):
        raise LockstepError(
            f"{name} says that this is {kind} {index}, which is not in its cluster.", ALONE_REMEDY, code=2
        )
    rank = sum(len(pools.get(pool, [])) for pool in training[: training.index(kind)]) + index
    role: Literal["worker", "server"] = "server" if kind == training[2] else "worker"
    return NodePlacement(family, (name,), rank, len(nodes), host, port, role=role, servers=servers)


def _read_cluster(name: str, text: str) -> tuple[dict[str, list[str]], str, int]:
    """Returns the addresses of each pool, and pool and number of this node."""
    facts = parse_json(name, text)
    cluster, task = (facts.get("cluster"), facts.get("task")) if isinstance(facts, dict) else (None, None)
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        raise LockstepError(f"{name} has no cluster or no task.", ALONE_REMEDY, code=2)
    pools: dict[str, list[str]] = {}
    for pool, addresses in cluster.items():
        if not isinstance(addresses, list) or not all(isinstance(one, str) and one for one in addresses):
            raise LockstepError(f"{name}: {pool!r} is no list of addresses.", ALONE_REMEDY, code=2)
        pools.setdefault(OTHER_NAMES.get(str(pool), str(pool)), []).extend(addresses)
    kind, index = str(task.get("type")), task.get("index")
    kind = OTHER_NAMES.get(kind, kind)
    if kind not in POOLS[name]:
        pools_text = ", ".join(POOLS[name])
        raise LockstepError(f"{name}: the task's type is none of {pools_text}.", ALONE_REMEDY, code=2)
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise LockstepError(f"{name}: the task's index is no number.", ALONE_REMEDY, code=2)
    return pools, kind, index


def _split_address(address: str) -> tuple[str, int]:
    """Returns host and port of `host:2222`, `[fd00::1]:2222` or a host alone."""
    host, _, port = address.rpartition(":")
    is_whole = bool(host) and port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 1 << 16
    if not is_whole or (":" in host and not host.startswith("[")):
        return address.strip("[]"), DEFAULT_PORT
    return host.strip("[]"), int(port)
