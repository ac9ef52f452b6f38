"""Kubernetes: a TrainJob of Kubeflow Trainer, or with --plain an Indexed Job with a headless service."""

import json
import time
from collections.abc import Mapping
from typing import Any

from lockstep.errors import LockstepError
from lockstep.job_secret import make_secret_environment
from lockstep.jobs.job import Job
from lockstep.jobs.judge_run import judge_run
from lockstep.jobs.kind import JobProcess, JobState, Submission
from lockstep.jobs.kinds.pods import Containers, describe_containers, expand_references, mount_paths, read_environment
from lockstep.jobs.manifest import read_documents, write_manifest
from lockstep.jobs.programs import ask, call, require_program

CLOSING_SECONDS = 600
"""What the cluster adds to --max-hours before it ends the job by force."""
RESTARTS = 6
"""How often a pod is started again."""
TRAINER_PORT = 29500
"""Of Kubeflow Trainer's torch runtimes: `constants.ContainerTrainerPort`."""
HEAD = """{what}. Written by `lockstep launch --on kubernetes --print`.
Before it, make the job's secret, by which its workers know each other:
  openssl rand -hex 32 | kubectl create secret generic {name} --from-file=secret=/dev/stdin
Then: kubectl apply -f FILE"""
COMMENTS = {
    "numProcPerNode": "Always a number: without GPUs Kubeflow takes `auto` for the CPUs that are requested.",
    "activeDeadlineSeconds": "--max-hours, and ten minutes to save and close",
    "runtimePatches": "The volume for the run, in the pods of the runtime",
    "secretKeyRef": "By reference: the secret itself is never written here",
}


class KubernetesKind:
    """Prints the manifest, and follows the job with kubectl."""

    name = "kubernetes"

    def print_job(self, job: Job) -> str:
        is_plain = job.option("plain") == "yes"
        pods = describe_containers(job, _plain_rendezvous(job) if is_plain else "torchrun")
        documents = _describe_plain(job, pods) if is_plain else [_describe_train_job(job, pods)]
        what = "An Indexed Job and the service that names its pods" if is_plain else "A TrainJob of Kubeflow Trainer"
        return write_manifest(HEAD.format(what=what, name=job.name), documents, COMMENTS)

    def parse(self, text: str) -> list[JobProcess]:
        documents = read_documents(text)
        for document in documents:
            match document.get("kind"):
                case "TrainJob":
                    return _parse_train_job(document)
                case "Job":
                    return _parse_indexed_job(document)
        raise LockstepError("The text has neither a TrainJob nor a Job.", "Print it again with --print.", code=2)

    def submit(self, job: Job) -> Submission:
        require_program("kubectl")
        text = self.print_job(job)
        secret = make_secret_environment()["LOCKSTEP_SECRET"]
        what = "job" if job.option("plain") == "yes" else "trainjob"
        call(["kubectl", "create", "secret", "generic", job.name, "--from-file=secret=/dev/stdin"], secret)
        try:
            call(["kubectl", "create", "-f", "-"], text)
        except LockstepError:
            ask(["kubectl", "delete", "secret", job.name])
            raise
        return Submission(self.name, job.name, f"{what}/{job.name}", job.run, time.time())

    def read_state(self, submission: Submission) -> JobState:
        answer = ask(["kubectl", "get", submission.id, "-o", "json"])
        return judge_run(submission) if answer is None else judge_conditions(json.loads(answer))

    def read_logs(self, submission: Submission) -> str:
        what, name = submission.id.split("/")
        label = "job-name" if what == "job" else "jobset.sigs.k8s.io/jobset-name"
        return call(["kubectl", "logs", "--selector", f"{label}={name}", "--prefix", "--tail=-1"])

    def cancel(self, submission: Submission) -> None:
        what, name = submission.id.split("/")
        others = [f"service/{name}"] if what == "job" else []
        call(["kubectl", "delete", "--ignore-not-found", submission.id, *others, f"secret/{name}"])


def judge_conditions(resource: Mapping[str, Any]) -> JobState:
    """Returns how a Job or TrainJob stands by the conditions that its controller has set."""
    status = resource.get("status", {})
    active = {one["type"] for one in status.get("conditions", []) if one.get("status") == "True"}
    if active & {"Complete", "SuccessCriteriaMet"}:
        return JobState.FINISHED
    if active & {"Failed", "FailureTarget"}:
        return JobState.FAILED
    counts = [status, *status.get("jobsStatus", [])]
    return JobState.RUNNING if any(count.get("active") for count in counts) else JobState.WAITING


def _plain_rendezvous(job: Job) -> str:
    """Returns the torchrun command of a pod whose number is in JOB_COMPLETION_INDEX."""
    return (
        f'torchrun --nnodes {job.count_equal_nodes()} --node-rank "$JOB_COMPLETION_INDEX" '
        f"--nproc-per-node {job.workers_per_node} --master-addr {job.name}-0.{job.name} --master-port {job.port}"
    )


def _limit_time(job: Job) -> dict[str, object]:
    seconds = {} if job.max_hours is None else {"activeDeadlineSeconds": round(job.max_hours * 3600) + CLOSING_SECONDS}
    return dict(seconds)


def _describe_train_job(job: Job, pods: Containers) -> dict[str, object]:
    trainer: dict[str, object] = {
        "image": job.require_image(),
        "command": pods.command,
        "args": pods.arguments,
        "numNodes": job.count_equal_nodes(),
        "numProcPerNode": job.workers_per_node,
        "env": pods.environment,
    }
    if pods.resources:
        trainer["resourcesPerNode"] = pods.resources
    spec: dict[str, object] = {
        "runtimeRef": {"name": job.option("runtime") or "torch-distributed"},
        "trainer": trainer,
        **_limit_time(job),
    }
    if pods.volumes:
        pod = {"volumes": pods.volumes, "containers": [{"name": "node", "volumeMounts": pods.volume_mounts}]}
        replicated = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
        patch = {"template": {"spec": {"replicatedJobs": replicated}}}
        spec["runtimePatches"] = [{"manager": "lockstep.dev/launch", "trainingRuntimeSpec": patch}]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": job.name},
        "spec": spec,
    }


def _describe_plain(job: Job, pods: Containers) -> list[dict[str, object]]:
    nodes = job.count_equal_nodes()
    container: dict[str, object] = {
        "name": "node",
        "image": job.require_image(),
        "command": pods.command,
        "args": pods.arguments,
        "env": pods.environment,
    }
    if pods.resources:
        container["resources"] = pods.resources
    pod: dict[str, object] = {"subdomain": job.name, "restartPolicy": "Never", "containers": [container]}
    if pods.volumes:
        container["volumeMounts"] = pods.volume_mounts
        pod["volumes"] = pods.volumes
    names: dict[str, object] = {"clusterIP": "None", "publishNotReadyAddresses": True}
    spec = {
        "completionMode": "Indexed",
        "completions": nodes,
        "parallelism": nodes,
        "backoffLimit": RESTARTS * nodes,
        **_limit_time(job),
        "template": {"spec": pod},
    }
    metadata = {"name": job.name}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata.copy(),
            "spec": {**names, "selector": {"job-name": job.name}},
        },
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec},
    ]


def _parse_train_job(document: Mapping[str, Any]) -> list[JobProcess]:
    """Kubeflow Trainer injects the variables of torchrun, PET_*, where `spec.trainer` is there: pkg/runtime/framework/
    plugins/torch/torch.go of Kubeflow Trainer 2.2. The pods are those of an Indexed Job in a JobSet."""
    name, spec = str(document["metadata"]["name"]), document["spec"]
    trainer = spec["trainer"]
    given = read_environment(trainer.get("env", []))
    if reserved := [key for key in given if key.startswith("PET_")]:
        raise LockstepError(f"Kubeflow rejects a TrainJob that sets {reserved[0]}.", "Remove it.", code=2)
    if not isinstance(trainer.get("numProcPerNode"), int):
        raise LockstepError("The TrainJob has no numProcPerNode.", "Without it Kubeflow counts requested CPUs.", code=2)
    mounts: dict[str, str] = {}
    for patch in spec.get("runtimePatches", []):
        for job in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]:
            mounts |= mount_paths(job["template"]["spec"]["template"]["spec"]["containers"])
    processes = []
    for node in range(trainer["numNodes"]):
        injected = {
            "PET_NNODES": str(trainer["numNodes"]),
            "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
            "PET_NODE_RANK": str(node),
            "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
            "PET_MASTER_PORT": str(TRAINER_PORT),
            "JOB_COMPLETION_INDEX": str(node),
            "HOSTNAME": f"{name}-node-0-{node}",
        }
        words = expand_references([*trainer["command"], *trainer["args"]], given)
        names = (f"{name}-node-0-{node}.{name}", f"{name}-node-0-{node}")
        processes.append(JobProcess(words, given | injected, node, names, mounts))
    return processes


def _parse_indexed_job(document: Mapping[str, Any]) -> list[JobProcess]:
    """Kubernetes gives every pod of an Indexed Job its number and the host name JOB-NUMBER ("Indexed Job" in the
    documentation of Job); the headless service with the pods' subdomain makes JOB-NUMBER.SUBDOMAIN."""
    name, spec = str(document["metadata"]["name"]), document["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    given = read_environment(container.get("env", []))
    words = expand_references([*container["command"], *container["args"]], given)
    mounts = mount_paths(pod["containers"])
    return [
        JobProcess(
            words,
            given | {"JOB_COMPLETION_INDEX": str(node), "HOSTNAME": f"{name}-{node}"},
            node,
            (f"{name}-{node}.{pod['subdomain']}", f"{name}-{node}"),
            mounts,
        )
        for node in range(spec["completions"])
    ]
