"""The printed texts of all kinds: as reviewed, without a secret, and as the platforms read them."""

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep.errors import LockstepError
from lockstep.hosts.hosts_file import Host, read_hosts
from lockstep.jobs.job import Job
from lockstep.jobs.kind import MADE_UP_SECRET, Kind
from lockstep.jobs.kinds.pods import expand_references, read_environment
from lockstep.jobs.registry import KINDS, read_options

GOLDEN = Path(__file__).parents[1] / "golden" / "jobs"
CONFIG = "data:\n  corpus: s3://texts/corpus   # prepared\ntrain:\n  steps: 50000\n"
SERVER = ("strategy.name=server", "strategy.servers=1")
SECRET = "no-text-may-have-this-in-it"


def make_job(folder: Path) -> Job:
    config = folder / "nmt.yaml"
    config.write_text(CONFIG)
    return Job(
        name="nmt-1",
        config=str(config),
        settings=("train.steps=2000",),
        run="s3://bucket/nmt",
        nodes=2,
        workers_per_node=2,
        image="registry.example/lockstep:1",
        max_hours=8,
        python=sys.executable,
    )


CASES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "local": ("local", {"nodes": 1}),
    "mpi": ("mpi", {"hosts": tuple(read_hosts("node1:2,node2:2")), "interface": "eth0"}),
    "slurm": ("slurm", {"options": read_options("slurm", ["partition=gpu", "gpus-per-node=2", "cpus-per-task=8"])}),
    "slurm-secret-file": ("slurm", {"secret_file": "/home/me/secret", "interface": "ib0", "max_hours": None}),
    "trainjob": ("kubernetes", {"run": "/runs/nmt", "options": read_options("kubernetes", ["claim=runs", "gpus=2"])}),
    "indexed-job": (
        "kubernetes",
        {"options": read_options("kubernetes", ["plain=yes", "store-secret=store", "cpu=8"])},
    ),
    "sky": ("sky", {"run": "/runs/nmt", "options": read_options("sky", ["bucket=s3://bucket", "accelerators=A100:2"])}),
    "vertex": (
        "vertex",
        {
            "run": "gs://bucket/nmt",
            "settings": SERVER,
            "servers": 1,
            "workers_per_node": 1,
            "options": read_options("vertex", ["bucket=bucket", "accelerator=NVIDIA_TESLA_V100"]),
        },
    ),
}


def print_case(name: str, folder: Path) -> tuple[Kind, str]:
    kind_name, changes = CASES[name]
    kind = KINDS[kind_name].load()
    return kind, kind.print_job(replace(make_job(folder), **changes))


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the texts take from this machine is the same everywhere."""
    monkeypatch.setenv("LOCKSTEP_SECRET", SECRET)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_a_printed_text_is_the_one_that_was_reviewed(name: str, tmp_path: Path) -> None:
    _, text = print_case(name, tmp_path)
    assert (
        text.replace(str(tmp_path), "/home/me").replace(sys.executable, "/opt/lockstep/bin/python")
        == (GOLDEN / f"{name}.txt").read_text()
    )


@pytest.mark.parametrize("name", CASES)
def test_no_text_and_no_command_line_has_a_secret(name: str, tmp_path: Path) -> None:
    kind, text = print_case(name, tmp_path)
    assert SECRET not in text
    assert not re.search(r"[0-9a-f]{32}", text)
    for process in kind.parse(text):
        secret = process.variables.get("LOCKSTEP_SECRET") or "not there"
        assert secret not in " ".join(process.words)
        assert secret != SECRET, "a new one for every job"


@pytest.mark.parametrize("name", CASES)
def test_workers_know_each_other_by_a_secret(name: str, tmp_path: Path) -> None:
    kind, text = print_case(name, tmp_path)
    processes = kind.parse(text)
    if name == "local":
        return  # `lockstep train` makes it for its workers
    by_file = {one.variables.get("LOCKSTEP_SECRET_FILE") for one in processes}
    if by_file == {None} and name != "vertex":
        secrets = {process.variables["LOCKSTEP_SECRET"] for process in processes}
        assert all(len(secret) >= 32 for secret in secrets)
    elif name == "vertex":
        assert all(MADE_UP_SECRET in process.mounts.values() for process in processes)
    else:
        assert by_file == {"/home/me/secret"}


@pytest.mark.parametrize("name", CASES)
def test_a_trial_reads_the_text_alone(name: str, tmp_path: Path) -> None:
    kind, text = print_case(name, tmp_path)
    for process in kind.parse(text.replace("train.max_hours=8", "train.max_hours=3").replace("nmt.yaml", "mt.yaml")):
        words = " ".join([*process.words, *process.mounts.values()])
        assert "train.max_hours=8" not in words
        assert "nmt.yaml" not in words


def test_the_first_host_of_mpirun_has_the_address_that_the_others_are_told(tmp_path: Path) -> None:
    hosts = (Host("node1", 1, address="10.0.0.1"), Host("node2", 1))
    kind = KINDS["mpi"].load()
    processes = kind.parse(kind.print_job(replace(make_job(tmp_path), hosts=hosts)))
    assert [process.names for process in processes] == [("node1", "10.0.0.1"), ("node2",)]
    assert processes[1].variables["MASTER_ADDR"] == "10.0.0.1"


def test_a_train_job_is_what_kubeflow_defines(tmp_path: Path) -> None:
    from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob

    _, text = print_case("trainjob", tmp_path)
    document = yaml.safe_load(text)
    train_job = TrainerV1alpha1TrainJob.from_dict(document)
    assert train_job is not None
    assert train_job.to_dict() == document, "it has no field that Kubeflow does not know"
    assert document["spec"]["trainer"]["numProcPerNode"] == 2


def test_an_indexed_job_has_the_fields_of_kubernetes(tmp_path: Path) -> None:
    from kubeflow_trainer_api.models import IoK8sApiBatchV1JobSpec

    _, text = print_case("indexed-job", tmp_path)
    service, job = yaml.safe_load_all(text)
    spec = IoK8sApiBatchV1JobSpec.from_dict(job["spec"])
    assert spec is not None
    assert spec.to_dict() == job["spec"]
    assert service["metadata"]["name"] == job["spec"]["template"]["spec"]["subdomain"]


def test_the_platforms_variables_are_those_of_their_documentation(tmp_path: Path) -> None:
    injected = {
        "mpi": {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "MASTER_ADDR": "node1"},
        "slurm": {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_STEP_NODELIST": "h[1-2]"},
        "trainjob": {"PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "2", "PET_MASTER_ADDR": "nmt-1-node-0-0.nmt-1"},
        "indexed-job": {"JOB_COMPLETION_INDEX": "1", "HOSTNAME": "nmt-1-1"},
        "sky": {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.128.0.2\n10.128.0.3"},
    }
    for name, variables in injected.items():
        kind, text = print_case(name, tmp_path)
        assert variables.items() <= kind.parse(text)[-1].variables.items(), name


def test_the_pools_of_vertex_are_master_workers_and_parameter_servers(tmp_path: Path) -> None:
    kind, text = print_case("vertex", tmp_path)
    tasks = [yaml.safe_load(process.variables["CLUSTER_SPEC"])["task"] for process in kind.parse(text)]
    assert [task["type"] for task in tasks] == ["workerpool0", "workerpool1", "workerpool2"]
    job = replace(make_job(tmp_path), nodes=1, run="gs://b/r", servers=2, options=(("bucket", "b"),))
    pools = yaml.safe_load(kind.print_job(job))["workerPoolSpecs"]
    assert [pool.get("replicaCount", 0) for pool in pools] == [1, 0, 2], "a pool without machines keeps its place"


def test_what_kubeflow_would_reject_is_refused(tmp_path: Path) -> None:
    kind, text = print_case("trainjob", tmp_path)
    with pytest.raises(LockstepError, match="PET_NNODES"):
        kind.parse(text.replace("TRAINING_CONFIG\n", "PET_NNODES\n"))
    with pytest.raises(LockstepError, match="numProcPerNode"):
        kind.parse(text.replace("numProcPerNode: 2", "numProcPerNode: auto"))


def test_references_are_expanded_as_kubernetes_does() -> None:
    assert expand_references(["$(A) $$(A) $(B) $A"], {"A": "1"}) == ("1 $(A) $(B) $A",)
    entries = [{"name": "A", "value": "x"}, {"name": "B", "value": "$(A)y"}, {"name": "C", "value": "$$(A)"}]
    assert read_environment(entries) == {"A": "x", "B": "xy", "C": "$(A)"}


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("mpi", {"hosts": tuple(read_hosts("a:1"))[:0]}, "needs machines"),
        ("trainjob", {"options": ()}, "volume claim"),
        ("trainjob", {"servers": 1}, "1 servers do not fill nodes with 2 processes"),
        ("indexed-job", {"image": None}, "--image is missing"),
        ("vertex", {"run": "/runs/nmt"}, "lost with the container"),
        ("local", {"nodes": 2}, "for this machine only"),
    ],
)
def test_a_job_that_cannot_run_is_refused_in_a_sentence(
    name: str, changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    kind_name, own = CASES[name]
    job = replace(make_job(tmp_path), **{**own, **changes})
    with pytest.raises(LockstepError, match=sentence) as error:
        KINDS[kind_name].load().print_job(job)
    assert error.value.remedy


def test_options_of_another_kind_are_refused() -> None:
    with pytest.raises(LockstepError, match="--on sky has no option partition"):
        read_options("sky", ["partition=gpu"])
    with pytest.raises(LockstepError, match="not understood"):
        read_options("slurm", ["partition"])
    assert read_options("slurm", ["qos=high"]) == (("qos", "high"),)


def test_a_job_without_its_secret_does_not_start(tmp_path: Path) -> None:
    for name in ("mpi", "slurm"):
        kind_name, changes = CASES[name]
        kind = KINDS[kind_name].load()
        text = kind.print_job(replace(make_job(tmp_path), **{**changes, "python": "/no/python"}))
        with pytest.raises(LockstepError, match="ended with code 127"):
            kind.parse(text)
