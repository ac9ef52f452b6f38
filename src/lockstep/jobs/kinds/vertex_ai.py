"""Vertex AI: a custom job with a pool for the master, one for the other workers and one for parameter servers."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lockstep.errors import LockstepError
from lockstep.job_secret import make_secret_environment
from lockstep.jobs.job import Job
from lockstep.jobs.judge_run import judge_run
from lockstep.jobs.kind import MADE_UP_SECRET, JobProcess, JobState, Submission
from lockstep.jobs.kinds.pods import escape_references, expand_references
from lockstep.jobs.manifest import (
    CONFIG_VARIABLE,
    quote_train_words,
    read_config_text,
    read_documents,
    write_config_command,
    write_manifest,
)
from lockstep.jobs.programs import ask, call, require_program

MACHINE = "n1-standard-8"
SECRET_VARIABLE = "JOB_SECRET"
BUCKETS = "/gcs"
"""Where Vertex AI mounts Cloud Storage in every container."""
CLOSING_SECONDS = 600
"""What the platform's limit has beyond --max-hours."""
PORT = 2222
"""Of the addresses in CLUSTER_SPEC."""
HEAD = """The specification of a custom job of Vertex AI. Written by `lockstep launch --on vertex --print`.
Before it, make the job's secret, by which its workers know each other, in a bucket that only the job reads:
  openssl rand -hex 32 | gcloud storage cp - gs://{bucket}/{name}-secret
Then: gcloud ai custom-jobs create --region {region} --display-name {name} --config FILE"""
COMMENTS = {
    "workerPoolSpecs": "In the order that Vertex AI fixes: master, workers, parameter servers",
    "timeout": "--max-hours, and ten minutes to save and close",
    "restartJobOnWorkerRestart": "A machine that is replaced starts all again, from the last checkpoint.",
}
STATES = {
    "JOB_STATE_QUEUED": JobState.WAITING,
    "JOB_STATE_PENDING": JobState.WAITING,
    "JOB_STATE_RUNNING": JobState.RUNNING,
    "JOB_STATE_CANCELLING": JobState.RUNNING,
    "JOB_STATE_SUCCEEDED": JobState.FINISHED,
    "JOB_STATE_CANCELLED": JobState.CANCELLED,
    "JOB_STATE_FAILED": JobState.FAILED,
    "JOB_STATE_EXPIRED": JobState.FAILED,
}


class VertexKind:
    """Prints the specification, and follows the job with gcloud."""

    name = "vertex"

    def print_job(self, job: Job) -> str:
        if "://" not in job.run and not job.run.startswith(f"{BUCKETS}/"):
            raise LockstepError(
                f"--run {job.run} would be lost with the container.", "Write it as gs://BUCKET/runs/first.", code=2
            )
        machine = _describe_machine(job, job.option("machine-type") or MACHINE, with_gpus=True)
        pools: list[dict[str, object]] = [_describe_pool(job, machine, 1)]
        if job.nodes > 1:
            pools.append(_describe_pool(job, machine, job.nodes - 1))
        if job.servers:
            server = _describe_machine(job, job.option("server-machine-type") or MACHINE, with_gpus=False)
            pools += [{}] * (2 - len(pools)) + [_describe_pool(job, server, job.servers)]
        scheduling: dict[str, object] = {"restartJobOnWorkerRestart": True}
        if job.max_hours is not None:
            scheduling["timeout"] = f"{round(job.max_hours * 3600) + CLOSING_SECONDS}s"
        if job.option("spot") == "yes":
            scheduling["strategy"] = "SPOT"
        spec: dict[str, object] = {"workerPoolSpecs": pools, "scheduling": scheduling}
        if account := job.option("service-account"):
            spec["serviceAccount"] = account
        region = job.option("region") or "us-central1"
        head = HEAD.format(bucket=_require_bucket(job), name=job.name, region=region)
        return write_manifest(head, [spec], COMMENTS)

    def parse(self, text: str) -> list[JobProcess]:
        (spec,) = read_documents(text)
        return parse_custom_job(spec)

    def submit(self, job: Job) -> Submission:
        require_program("gcloud")
        text, region = self.print_job(job), job.require_option("region", "The region of Vertex AI")
        secret = make_secret_environment()["LOCKSTEP_SECRET"]
        call(["gcloud", "storage", "cp", "-", f"gs://{_require_bucket(job)}/{job.name}-secret"], secret)
        with TemporaryDirectory(prefix="lockstep-") as folder:
            path = Path(folder) / "job.yaml"
            path.write_text(text, encoding="utf-8")
            words = ["--region", region, "--display-name", job.name, "--config", str(path)]
            answer = call(["gcloud", "ai", "custom-jobs", "create", *words, "--format", "value(name)"])
        return Submission(self.name, job.name, answer.strip(), job.run, time.time(), {"region": region})

    def read_state(self, submission: Submission) -> JobState:
        words = [submission.id, "--region", submission.facts["region"], "--format", "value(state)"]
        answer = ask(["gcloud", "ai", "custom-jobs", "describe", *words])
        return judge_run(submission) if answer is None else STATES.get(answer.strip(), JobState.UNKNOWN)

    def read_logs(self, submission: Submission) -> str:
        query = f'resource.type="ml_job" AND resource.labels.job_id="{submission.id.rpartition("/")[2]}"'
        return call(["gcloud", "logging", "read", query, "--order", "asc", "--format", "value(jsonPayload.message)"])

    def cancel(self, submission: Submission) -> None:
        call(["gcloud", "ai", "custom-jobs", "cancel", submission.id, "--region", submission.facts["region"]])


def _require_bucket(job: Job) -> str:
    return job.require_option("bucket", "The bucket for the secret of the job").removeprefix("gs://").rstrip("/")


def _describe_machine(job: Job, machine_type: str, with_gpus: bool) -> dict[str, object]:
    machine: dict[str, object] = {"machineType": machine_type}
    if with_gpus and (accelerator := job.option("accelerator")):
        machine |= {"acceleratorType": accelerator, "acceleratorCount": job.workers_per_node}
    return machine


def _describe_pool(job: Job, machine: Mapping[str, object], replicas: int) -> dict[str, object]:
    """All pools have the same command: CLUSTER_SPEC tells a container what it is."""
    copy = '"${TMPDIR:-/tmp}/job-secret"'
    lines = [
        write_config_command(),
        f'(umask 077; cat "${SECRET_VARIABLE}" > {copy})',
        f"export LOCKSTEP_SECRET_FILE={copy}",
        f"exec python -m lockstep {quote_train_words(job)} --workers {job.workers_per_node}",
    ]
    environment = [
        {"name": CONFIG_VARIABLE, "value": escape_references(read_config_text(job))},
        {"name": SECRET_VARIABLE, "value": f"{BUCKETS}/{_require_bucket(job)}/{job.name}-secret"},
    ]
    if job.interface is not None:
        environment += [{"name": f"{name}_SOCKET_IFNAME", "value": job.interface} for name in ("GLOO", "NCCL")]
    container = {
        "imageUri": job.require_image(),
        "command": ["bash", "-c"],
        "args": ["\n".join(lines) + "\n"],
        "env": environment,
    }
    return {"machineSpec": dict(machine), "replicaCount": replicas, "containerSpec": container}


def parse_custom_job(spec: Mapping[str, Any]) -> list[JobProcess]:
    """Vertex AI injects CLUSTER_SPEC and TF_CONFIG ("Distributed training" in its documentation) and mounts Cloud Storage
    below /gcs."""
    pools: list[Mapping[str, Any]] = spec["workerPoolSpecs"]
    cluster = {
        f"workerpool{number}": [
            f"cmle-training-workerpool{number}-0000000000-{index}:{PORT}" for index in range(pool["replicaCount"])
        ]
        for number, pool in enumerate(pools)
        if pool
    }
    processes: list[JobProcess] = []
    for number, pool in enumerate(pools):
        for index, address in enumerate(cluster.get(f"workerpool{number}", [])):
            container = pool["containerSpec"]
            given: dict[str, str] = {}
            for entry in container.get("env", []):
                (given[entry["name"]],) = expand_references([entry["value"]], given)
            task = {"cluster": cluster, "task": {"type": f"workerpool{number}", "index": index}, "environment": "cloud"}
            injected = {"CLUSTER_SPEC": json.dumps(task), "TF_CONFIG": json.dumps(_name_as_tensorflow(task))}
            mounts = {BUCKETS: "", given[SECRET_VARIABLE]: MADE_UP_SECRET}
            words = (*container["command"], *container["args"])
            name = address.rpartition(":")[0]
            processes.append(JobProcess(words, given | injected, len(processes), (name,), mounts))
    return processes


def _name_as_tensorflow(task: Mapping[str, Any]) -> dict[str, object]:
    """The same facts, with TensorFlow's names of the pools."""
    names = {"workerpool0": "chief", "workerpool1": "worker", "workerpool2": "ps", "workerpool3": "evaluator"}
    own = {**task["task"], "type": names[task["task"]["type"]]}
    return {"cluster": {names[pool]: hosts for pool, hosts in task["cluster"].items()}, "task": own}
