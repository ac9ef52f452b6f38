"""Each engine's variables, as its documentation has them, give the place of the process; what contradicts is refused."""

import contextlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockstep.errors import LockstepError
from lockstep.launch.environments import nodes
from lockstep.launch.environments.first_host import choose_address, list_own_interfaces, settle_host
from lockstep.launch.environments.host_lists import expand_hosts, expand_task_counts
from lockstep.launch.environments.mpi import list_uri_addresses
from lockstep.launch.environments.placement import NodePlacement, WorkerPlacement, derive_port
from lockstep.launch.environments.recognize import recognize
from lockstep.launch.start_node import choose_options

TORCH = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
TORCH |= {"MASTER_ADDR": "node1", "MASTER_PORT": "29401"}
TORCHRUN = TORCH | {"GROUP_RANK": "1", "TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "0"}
RAY = TORCH | {"NODE_RANK": "1", "RAY_JOB_ID": "01000000"}
SLURM = {
    "SLURM_JOB_ID": "4242",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_JOB_NODELIST": "gpu[07-09]",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_MCA_ess_base_jobid": "1058209793",
    "OMPI_MCA_orte_hnp_uri": "1058209792.0;tcp://10.0.0.1,192.168.7.1:50027;tcp6://[fd00::2]:51891",
    "PMIX_RANK": "3",
}
OPEN_MPI_5 = {name: value for name, value in OPEN_MPI.items() if "MCA" not in name} | {"PMIX_NAMESPACE": "prterun-a@1"}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "MASTER_ADDR": "node1"}
PALS = {"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "2", "MASTER_ADDR": "node1"}
MVAPICH = {f"MV2_COMM_WORLD_{name}": value for name, value in zip(("RANK", "SIZE"), "34", strict=True)}
MVAPICH |= {"MV2_COMM_WORLD_LOCAL_RANK": "1", "MV2_COMM_WORLD_LOCAL_SIZE": "2", "MASTER_ADDR": "node1"}
JSRUN = {"JSM_NAMESPACE_RANK": "3", "JSM_NAMESPACE_SIZE": "4", "JSM_NAMESPACE_LOCAL_RANK": "1", "LSB_JOBID": "77"}
JSRUN |= {"LSB_MCPU_HOSTS": "batch1 1 a01 42 a02 42", "OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "3"}
SINGLE_HOST = {f"OMPI_COMM_WORLD_{name}": value for name, value in zip(("RANK", "SIZE"), "12", strict=True)}
SINGLE_HOST |= {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
TORCHFT = {"REPLICA_GROUP_ID": "1", "NUM_REPLICA_GROUPS": "3", "TORCHFT_LIGHTHOUSE": "http://a:1"}


@pytest.mark.parametrize(
    ("variables", "family", "place"),
    [
        (TORCHRUN, "torchrun", (3, 4, 1, 2, "node1", 29401)),
        (RAY, "Ray Train", (3, 4, 1, 2, "node1", 29401)),
        (TORCH, "an engine with torch's variables", (3, 4, 1, 2, "node1", 29401)),
        (SLURM, "Slurm", (3, 4, 1, 2, "gpu07", derive_port("4242.0"))),
        (SLURM | {"MASTER_ADDR": "ib7", "MASTER_PORT": "5"}, "Slurm", (3, 4, 1, 2, "ib7", 5)),
        (OPEN_MPI, "Open MPI", (3, 4, 1, 2, "10.0.0.1", derive_port("1058209793"))),
        (SINGLE_HOST, "Open MPI", (1, 2, 1, 2, "127.0.0.1", 29400)),
        (OPEN_MPI_5 | {"MASTER_ADDR": "a"}, "Open MPI", (3, 4, 1, 2, "a", derive_port("prterun-a@1"))),
        (HYDRA, "MPICH or Intel MPI", (3, 4, 1, 2, "node1", 29400)),
        (PALS, "mpiexec", (3, 4, 1, 2, "node1", 29400)),
        (MVAPICH, "MVAPICH", (3, 4, 1, 2, "node1", 29400)),
        (JSRUN, "jsrun", (3, 4, 1, None, "a01", derive_port("77"))),
        (TORCHFT, "torchft", (1, 3, 0, None, None, None)),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_place_of_a_process(variables: dict[str, str], family: str, place: tuple[object, ...]) -> None:
    one = recognize(variables)
    assert isinstance(one, WorkerPlacement)
    assert one.family == family
    assert (one.rank, one.size, one.local_rank, one.local_size, one.host, one.port) == place
    assert all(name in variables for name in one.names)
    assert f"Started by {family} (" in one.describe()
    assert f"process {one.rank} of {one.size}" in one.describe()


PET = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": "1"}
PET |= {"PET_MASTER_ADDR": "job-node-0-0.job", "PET_MASTER_PORT": "29500"}
PYTORCHJOB = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}
SKYPILOT = {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}
SKYPILOT |= {"SKYPILOT_NUM_GPUS_PER_NODE": "8"}
DSTACK = {"DSTACK_NODE_RANK": "1", "DSTACK_NODES_NUM": "2", "DSTACK_MASTER_NODE_IP": "10.0.0.1"}
SAGEMAKER = {"SM_HOSTS": '["algo-2", "algo-1"]', "SM_CURRENT_HOST": "algo-2", "SM_NUM_GPUS": "4"}
INDEXED = {"JOB_COMPLETION_INDEX": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-0.service"}


@pytest.mark.parametrize(
    ("variables", "family", "place"),
    [
        (PET, "Kubeflow", (1, 2, "job-node-0-0.job", 29500, 1, None)),
        (PET | PYTORCHJOB | {"JOB_COMPLETION_INDEX": "1"}, "Kubeflow", (1, 2, "job-node-0-0.job", 29500, 1, None)),
        (PET | {"PET_NPROC_PER_NODE": "auto"}, "Kubeflow", (1, 2, "job-node-0-0.job", 29500, None, None)),
        (PYTORCHJOB, "an engine that numbers nodes", (1, 2, "job-master-0", 23456, None, None)),
        (PYTORCHJOB | {"NPROC_PER_NODE": "8"}, "an engine that numbers nodes", (1, 2, "job-master-0", 23456, 8, None)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, "an engine that numbers nodes", (0, 1, "127.0.0.1", 29400, None, None)),
        (SKYPILOT, "SkyPilot", (1, 2, "10.0.0.1", 29400, None, 8)),
        (DSTACK | {"DSTACK_GPUS_PER_NODE": "2"}, "dstack", (1, 2, "10.0.0.1", 29400, None, 2)),
        (SAGEMAKER, "SageMaker", (1, 2, "algo-1", 29400, None, 4)),
        (INDEXED | {"MASTER_PORT": "7"}, "a Kubernetes Indexed Job", (1, 2, "job-0.service", 7, None, None)),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_place_of_a_node(variables: dict[str, str], family: str, place: tuple[object, ...]) -> None:
    one = recognize(variables)
    assert isinstance(one, NodePlacement)
    assert one.family == family
    assert (one.rank, one.nodes, one.host, one.port, one.workers, one.gpus) == place
    assert f"Started by {family} (" in one.describe()
    assert f"node {one.rank} of {one.nodes}" in one.describe()


def cluster(kind: str, index: int, pools: dict[str, list[str]], name: str = "CLUSTER_SPEC") -> dict[str, str]:
    facts = {"cluster": pools, "environment": "cloud", "task": {"type": kind, "index": index}}
    return {name: json.dumps(facts)}


POOLS = {"workerpool0": ["p-0:2222"], "workerpool1": ["w-0:2222", "w-1:2222"], "workerpool2": ["s-0:2222"]}
POOLS |= {"workerpool3": ["e-0:2222"]}
TF_POOLS = {"chief": ["p-0:2222"], "worker": ["w-0:2222", "w-1:2222"], "ps": ["s-0:2222"]}


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        (cluster("workerpool0", 0, POOLS), (0, 4, "worker", 1)),
        (cluster("workerpool1", 1, POOLS), (2, 4, "worker", 1)),
        (cluster("workerpool2", 0, POOLS), (3, 4, "server", 1)),
        (cluster("workerpool3", 0, POOLS), (0, 4, "evaluator", 1)),
        (cluster("chief", 0, TF_POOLS, "TF_CONFIG"), (0, 4, "worker", 1)),
        (cluster("master", 0, TF_POOLS, "TF_CONFIG"), (0, 4, "worker", 1)),
        (cluster("worker", 0, TF_POOLS, "TF_CONFIG"), (1, 4, "worker", 1)),
        (cluster("ps", 0, TF_POOLS, "TF_CONFIG"), (3, 4, "server", 1)),
        (cluster("evaluator", 0, TF_POOLS, "TF_CONFIG"), (0, 4, "evaluator", 1)),
    ],
)
def test_the_roles_of_vertex(variables: dict[str, str], place: tuple[object, ...]) -> None:
    one = recognize(variables)
    assert isinstance(one, NodePlacement)
    assert (one.rank, one.nodes, one.role, one.servers) == place
    assert (one.host, one.port) == ("p-0", 2222)


def test_sagemaker_is_known_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "resourceconfig.json"
    assert not nodes.is_sagemaker({}, file)
    file.write_text('{"current_host": "algo-1", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth0"}')
    assert nodes.is_sagemaker({}, file)
    one = nodes.place_sagemaker_node({}, file)
    assert (one.rank, one.nodes, one.host) == (0, 2, "algo-1")
    for text in ("{", "[]", '{"current_host": "algo-3", "hosts": ["algo-1"]}', '{"hosts": 1}'):
        file.write_text(text)
        with pytest.raises(LockstepError):
            nodes.place_sagemaker_node({}, file)


BATCH = {name: value for name, value in SLURM.items() if "STEP" not in name}
BATCH |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_JOB_NAME": "train.sh"}


@pytest.mark.parametrize(
    ("variables", "is_in_shell"),
    [
        ({}, True),
        (
            {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_JOB_NAME": "interactive"},
            True,
        ),  # salloc
        (
            SLURM | {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"},
            False,
        ),  # salloc with an interactive step
        (SLURM | {"SLURM_PROCID": "0", "SLURM_PTY_PORT": "42135"}, True),  # srun --ntasks 4 --pty bash
        (SLURM | {"SLURM_PROCID": "0", "SLURM_JOB_NAME": "bash"}, True),
        (SLURM | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "1"}, False),  # one task
        (BATCH, False),  # `lockstep train --workers 4` in a batch script on one node
        (SLURM | {"LOCKSTEP_ENVIRONMENT": "none"}, False),
        (dict.fromkeys(TORCH, ""), False),
    ],
)
def test_an_interactive_shell_is_not_a_job(variables: dict[str, str], is_in_shell: bool) -> None:
    assert recognize(variables, is_in_shell) is None


def test_a_step_of_an_interactive_job_is_a_job() -> None:
    assert isinstance(recognize(SLURM | {"SLURM_JOB_NAME": "interactive", "SLURM_PTY_PORT": "42135"}), WorkerPlacement)


@pytest.mark.parametrize(
    ("variables", "family"),
    [
        (SLURM | TORCHRUN, "torchrun"),  # srun torchrun
        (SLURM | OPEN_MPI, "Open MPI"),  # mpirun in a job of Slurm, whose daemons srun starts
        (SLURM | {"SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"} | HYDRA, "MPICH or Intel MPI"),
        (SLURM | {"PMI_RANK": "3", "PMI_SIZE": "4"}, "Slurm"),  # srun --mpi=pmi2
        (SLURM | {"PMIX_RANK": "3"}, "Slurm"),  # srun --mpi=pmix
        (SLURM | {"RANK": "3", "WORLD_SIZE": "4"}, "Slurm"),  # a script that sets what Slurm says, without LOCAL_RANK
        (SLURM | SKYPILOT, "SkyPilot"),  # SkyPilot on Slurm
        (SKYPILOT | TORCHRUN, "torchrun"),
        (SKYPILOT | OPEN_MPI, "Open MPI"),
        (PET | TORCHRUN, "torchrun"),
        (JSRUN | OPEN_MPI, "jsrun"),
        (TORCHFT | TORCHRUN, "torchft"),
        (INDEXED | {"RANK": "1"}, "a Kubernetes Indexed Job"),
        (RAY | SLURM, "Ray Train"),
    ],
)
def test_what_is_inside_wins(variables: dict[str, str], family: str) -> None:
    one = recognize(variables)
    assert one is not None
    assert one.family == family


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"RANK": "0"}, ["WORLD_SIZE is not set", "RANK is"]),
        ({"WORLD_SIZE": "2"}, ["RANK is not set"]),
        ({"RANK": "0", "WORLD_SIZE": "2"}, ["MASTER_ADDR is not set", "WORLD_SIZE is 2"]),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, ["LOCAL_WORLD_SIZE", "LOCAL_RANK is not"]),
        (TORCH | {"RANK": "4"}, ["RANK is 4", "WORLD_SIZE is 4"]),
        (TORCH | {"RANK": "-1"}, ["RANK is '-1'"]),
        (TORCH | {"LOCAL_RANK": "2"}, ["LOCAL_RANK is 2", "LOCAL_WORLD_SIZE is 2"]),
        (TORCH | {"LOCAL_WORLD_SIZE": "8"}, ["LOCAL_WORLD_SIZE is 8", "WORLD_SIZE is 4"]),
        (TORCH | {"MASTER_PORT": "70000"}, ["MASTER_PORT is 70000"]),
        (SLURM | TORCHRUN | {"RANK": "0", "WORLD_SIZE": "2"}, ["SLURM_STEP_NUM_TASKS is 4", "WORLD_SIZE is 2"]),
        (SLURM | {"RANK": "1", "WORLD_SIZE": "2"}, ["SLURM_PROCID is 3", "RANK is 1"]),
        (SLURM | {"RANK": "3", "WORLD_SIZE": "8"}, ["SLURM_STEP_NUM_TASKS is 4", "WORLD_SIZE is 8"]),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "2(x3)"}, ["SLURM_STEP_TASKS_PER_NODE", "6 tasks", "is 4"]),
        (SLURM | {"SLURM_STEP_NODELIST": "gpu[07-"}, ["gpu[07-", "no list of hosts"]),
        (SLURM | {"SLURM_PROCID": "9"}, ["SLURM_PROCID is 9", "SLURM_STEP_NUM_TASKS is 4"]),
        (SLURM | {"MASTER_ADDR": "localhost"}, ["MASTER_ADDR is localhost", "SLURM_STEP_NODELIST names 2 nodes"]),
        (SLURM | {"SLURM_LOCALID": ""}, ["SLURM_LOCALID is not set"]),
        (
            {name: value for name, value in SLURM.items() if "NODELIST" not in name},
            ["SLURM_STEP_NODELIST", "MASTER_ADDR"],
        ),
        (BATCH | {"SLURM_JOB_NUM_NODES": "2"}, ["2 nodes", "not by srun"]),
        (OPEN_MPI_5, ["Open MPI", "MASTER_ADDR"]),
        (
            OPEN_MPI | {"MASTER_ADDR": "127.0.0.1"},
            ["MASTER_ADDR is 127.0.0.1", "OMPI_COMM_WORLD_LOCAL_SIZE is 2", "is 4"],
        ),
        (OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": ""}, ["OMPI_COMM_WORLD_SIZE is not set"]),
        (OPEN_MPI | {"RANK": "3", "WORLD_SIZE": "2"}, ["OMPI_COMM_WORLD_SIZE is 4", "WORLD_SIZE is 2"]),
        ({"PMIX_RANK": "1"}, ["PMIX_RANK", "how many"]),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, ["PMI_RANK", "MPI_LOCALRANKID"]),
        (PET | {"PET_NNODES": "1:4"}, ["elastic"]),
        (PET | {"PET_NNODES": ""}, ["PET_NNODES is not set"]),
        (PET | {"RANK": "0", "WORLD_SIZE": "2"}, ["PET_NODE_RANK is 1", "RANK is 0"]),
        (PET | {"RANK": "1", "WORLD_SIZE": "3"}, ["PET_NNODES is 2", "WORLD_SIZE is 3"]),
        (PET | {"PET_MASTER_ADDR": ""}, ["MASTER_ADDR is not set"]),
        (SKYPILOT | {"SKYPILOT_NUM_NODES": "3"}, ["SKYPILOT_NUM_NODES is 3", "SKYPILOT_NODE_IPS has 2"]),
        (SKYPILOT | {"SKYPILOT_NODE_RANK": "2"}, ["SKYPILOT_NODE_RANK is 2"]),
        (SKYPILOT | {"SKYPILOT_NODE_IPS": ""}, ["SKYPILOT_NODE_IPS is not set"]),
        (DSTACK | {"DSTACK_MASTER_NODE_IP": ""}, ["DSTACK_MASTER_NODE_IP is not set", "DSTACK_NODES_NUM is 2"]),
        (SAGEMAKER | {"SM_CURRENT_HOST": "algo-3"}, ["SM_CURRENT_HOST is 'algo-3'", "SM_HOSTS"]),
        (SAGEMAKER | {"SM_HOSTS": "algo-1"}, ["SM_HOSTS is no JSON"]),
        (SAGEMAKER | {"SM_HOSTS": ""}, ["SM_HOSTS is not set"]),
        ({"JOB_COMPLETION_INDEX": "1"}, ["JOB_COMPLETION_INDEX", "pod 1", "of how many"]),
        (INDEXED | {"JOB_COMPLETION_INDEX": "2"}, ["JOB_COMPLETION_INDEX is 2", "WORLD_SIZE is 2"]),
        (INDEXED | {"RANK": "0"}, ["JOB_COMPLETION_INDEX is 1", "RANK is 0"]),
        ({"CLUSTER_SPEC": "{"}, ["CLUSTER_SPEC is no JSON"]),
        ({"CLUSTER_SPEC": "[" * 100_000}, ["CLUSTER_SPEC is no JSON"]),
        ({"TF_CONFIG": "[1]"}, ["TF_CONFIG has no cluster"]),
        ({"TF_CONFIG": '{"cluster": {"worker": "a:1"}, "task": {}}'}, ["TF_CONFIG", "no list of addresses"]),
        (cluster("ps", 0, {"ps": ["a:1"]}, "TF_CONFIG"), ["TF_CONFIG names no workers"]),
        (cluster("worker", 7, TF_POOLS, "TF_CONFIG"), ["TF_CONFIG", "worker 7"]),
        (cluster("workerpool1", -1, POOLS), ["index"]),
        (cluster("other", 0, POOLS), ["type"]),
    ],
)
def test_what_contradicts_or_is_missing_is_refused_by_name(variables: dict[str, str], says: list[str]) -> None:
    with pytest.raises(LockstepError) as caught:
        recognize(variables)
    assert [part for part in says if part not in caught.value.message] == []
    assert caught.value.code == 2
    assert caught.value.remedy


def test_an_elastic_torchrun_may_have_fewer_nodes_than_slurm() -> None:
    assert recognize(SLURM | TORCHRUN | {"RANK": "0", "WORLD_SIZE": "2"}, is_elastic=True) is not None


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        (
            "a[01-03,7],b2,c[1-2]d[0-9]",
            ["a01", "a02", "a03", "a7", "b2", *(f"c{c}d{d}" for c in (1, 2) for d in range(10))],
        ),
        ("n[099-101]", ["n099", "n100", "n101"]),
        ("n[0-1]-ib,x-y.z", ["n0-ib", "n1-ib", "x-y.z"]),
        ("one", ["one"]),
        ("[1-2]a", ["1a", "2a"]),
    ],
)
def test_lists_of_hosts(text: str, hosts: list[str]) -> None:
    assert expand_hosts(text) == hosts


@pytest.mark.parametrize(
    "text", ["", ",", "a,,b", "a[", "a]", "a[]", "a[2-1]", "a[1-2", "a[[1]]", "a[x]", "a[1-999999999]"]
)
def test_what_is_no_list_of_hosts(text: str) -> None:
    with pytest.raises(LockstepError, match="no list of hosts"):
        expand_hosts(text)


def compress_hosts(hosts: list[str]) -> str:
    """Returns a list that `expand_hosts` expands to these hosts; consecutive numbers become ranges."""
    parts: list[tuple[str, str, str]] = []  # head, first and last number
    for host in hosts:
        match = re.fullmatch(r"(.*?)(\d{0,18})", host, re.ASCII | re.DOTALL)
        assert match is not None
        head, number = match[1], match[2]
        if parts and number and parts[-1][0] == head and _follows(parts[-1][2], number):
            parts[-1] = (head, parts[-1][1], number)
        else:
            parts.append((head, number, number))
    return ",".join(head + (first if first == last else f"[{first}-{last}]") for head, first, last in parts)


def _follows(last: str, number: str) -> bool:
    return bool(last) and str(int(last) + 1).zfill(len(last)) == number


NAMES = st.from_regex(r"[a-z][a-z.-]{0,3}[0-9]{0,4}", fullmatch=True)


@given(st.lists(NAMES, min_size=1, max_size=30))
@example(["a09", "a10", "a011", "a99", "a100", "a0", "a00", "a01"])
def test_compressed_hosts_expand_again(hosts: list[str]) -> None:
    assert expand_hosts(compress_hosts(hosts)) == hosts


@given(st.text(alphabet="a0129[],-() x", max_size=12))
def test_any_list_of_hosts_expands_or_is_refused(text: str) -> None:
    with contextlib.suppress(LockstepError):
        assert all(expand_hosts(text))


def test_consecutive_hosts_become_ranges() -> None:
    assert compress_hosts(["a08", "a09", "a10", "a12", "b"]) == "a[08-10],a12,b"


def test_tasks_per_node() -> None:
    assert expand_task_counts("2(x3),1") == [2, 2, 2, 1]
    with pytest.raises(LockstepError, match="2x3"):
        expand_task_counts("2x3")


def test_the_address_in_a_network_of_this_machine_is_chosen() -> None:
    (own, *_) = [one for one in list_own_interfaces() if not one.is_loopback] or [list_own_interfaces()[0]]
    expected = str(own.ip) if not own.is_loopback else "203.0.113.1"
    assert choose_address(["203.0.113.1", str(own.ip)], list_own_interfaces()) == expected
    assert list_uri_addresses(OPEN_MPI["OMPI_MCA_orte_hnp_uri"]) == ["10.0.0.1", "192.168.7.1", "fd00::2"]
    assert list_uri_addresses("x;tcp://127.0.0.1:1;junk") == []


def test_process_zero_refuses_a_first_host_that_is_another_one() -> None:
    first = recognize(SLURM | {"SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "203.0.113.1,203.0.113.2"})
    assert isinstance(first, WorkerPlacement)
    with pytest.raises(LockstepError, match=r"Process 0 of Slurm runs on .* SLURM_STEP_NODELIST names 203\.0\.113\.1"):
        settle_host(first)


def test_torchrun_gets_the_place_of_the_node() -> None:
    one = recognize(SKYPILOT)
    assert isinstance(one, NodePlacement)
    words = " ".join(choose_options(one, 2, ["my.yaml", "--run", "r"], 600.0))
    assert "--nnodes 2 --node-rank 1 --nproc-per-node 2 --master-addr 10.0.0.1 --master-port 29400" in words
    assert words.endswith("-m lockstep -- train my.yaml --run r")
