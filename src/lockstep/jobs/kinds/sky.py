"""SkyPilot: a task for any cloud, on spot machines that are replaced when they are taken away."""

import json
import os
import shlex
import time
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from lockstep.errors import LockstepError
from lockstep.job_secret import make_secret_environment
from lockstep.jobs.job import Job
from lockstep.jobs.judge_run import judge_run
from lockstep.jobs.kind import JobProcess, JobState, Submission
from lockstep.jobs.manifest import read_documents, write_manifest
from lockstep.jobs.programs import ask, call, require_program

CONFIG = "/tmp/lockstep.yaml"
PACKAGE = "'lockstep-train[train,s3,gcs]'"
RESOURCES = ("infra", "accelerators", "cpus", "memory", "instance_type", "disk_size")
HEAD = """A task of SkyPilot. Written by `lockstep launch --on sky --print`. To start it:
  LOCKSTEP_SECRET="$(openssl rand -hex 32)" sky jobs launch --name {name} --secret LOCKSTEP_SECRET FILE
`sky jobs` replaces spot machines that are taken away, and the run continues from its last checkpoint."""
COMMENTS = {
    "mode": "Files are written here first and then to the bucket, which cannot rename folders.",
    "use_spot": "Cheap machines that may be taken away at any moment",
    "secrets": "The value is not written here: `--secret` takes it from the environment.",
    "setup": "Once on every machine; an image (--image) has it already",
    "run": "On every machine; the first one is where the workers meet.",
}
STATES = {
    "PENDING": JobState.WAITING,
    "SUBMITTED": JobState.WAITING,
    "STARTING": JobState.WAITING,
    "RUNNING": JobState.RUNNING,
    "RECOVERING": JobState.RUNNING,
    "CANCELLING": JobState.RUNNING,
    "SUCCEEDED": JobState.FINISHED,
    "CANCELLED": JobState.CANCELLED,
}
"""What the states of a managed job mean. All others are failures."""


class SkyKind:
    """Prints the task, and follows it as a managed job."""

    name = "sky"

    def print_job(self, job: Job) -> str:
        resources: dict[str, object] = {key: value for key in RESOURCES if (value := job.option(key)) is not None}
        resources["use_spot"] = job.option("spot") != "no"
        if job.image is not None:
            resources["image_id"] = f"docker:{job.image}"
        task: dict[str, object] = {
            "name": job.name,
            "num_nodes": job.count_equal_nodes(),
            "resources": resources,
            "file_mounts": _list_mounts(job),
            "secrets": {"LOCKSTEP_SECRET": None},
        }
        if job.interface is not None:
            task["envs"] = {f"{name}_SOCKET_IFNAME": job.interface for name in ("GLOO", "NCCL")}
        if job.image is None:
            task["setup"] = f"pip install {job.option('install') or PACKAGE}\n"
        task["run"] = _write_run(job)
        return write_manifest(HEAD.format(name=job.name), [task], COMMENTS)

    def parse(self, text: str) -> list[JobProcess]:
        (task,) = read_documents(text)
        return parse_task(task)

    def submit(self, job: Job) -> Submission:
        require_program("sky")
        text = self.print_job(job)
        with TemporaryDirectory(prefix="lockstep-") as folder:
            path = Path(folder) / f"{job.name}.yaml"
            path.write_text(text, encoding="utf-8")
            words = ["sky", "jobs", "launch", "--name", job.name, "--secret", "LOCKSTEP_SECRET"]
            secret = make_secret_environment()["LOCKSTEP_SECRET"]
            call([*words, "--detach-run", "--yes", str(path)], secret=secret)
        return Submission(self.name, job.name, job.name, job.run, time.time())

    def read_state(self, submission: Submission) -> JobState:
        answer = ask(["sky", "jobs", "queue", "--all", "--output", "json"])
        records = json.loads(answer) if answer else []
        status = next((one.get("status") for one in records if one.get("job_name") == submission.id), None)
        return judge_run(submission) if status is None else STATES.get(status, JobState.FAILED)

    def read_logs(self, submission: Submission) -> str:
        return call(["sky", "jobs", "logs", "--name", submission.id, "--no-follow"])

    def cancel(self, submission: Submission) -> None:
        call(["sky", "jobs", "cancel", "--name", submission.id, "--yes"])


def _list_mounts(job: Job) -> dict[str, object]:
    """Returns the files and buckets on the machines: the config, and a bucket for a run that is a folder."""
    mounts: dict[str, object] = {CONFIG: str(Path(job.config).absolute())}
    if "://" in job.run:
        return mounts
    folder = PurePosixPath(job.run)
    if not folder.is_absolute() or len(folder.parts) < 3:
        raise LockstepError(
            f"--run {job.run} is no folder below a bucket.", "Write it as /runs/first, or as s3://bucket/first.", code=2
        )
    bucket = job.require_option("bucket", f"The bucket for {folder.parent}")
    mounts[str(folder.parent)] = {"source": bucket, "mode": "MOUNT_CACHED"}
    return mounts


def _write_run(job: Job) -> str:
    command, _, *rest = job.train_words
    return (
        'torchrun --nnodes "$SKYPILOT_NUM_NODES" --node-rank "$SKYPILOT_NODE_RANK" \\\n'
        f'  --nproc-per-node {job.workers_per_node} --master-addr "$(echo "$SKYPILOT_NODE_IPS" | head -n 1)" '
        f"--master-port {job.port} \\\n"
        f"  -m lockstep -- {shlex.join([command, CONFIG, *rest])}\n"
    )


def parse_task(task: dict[str, Any]) -> list[JobProcess]:
    """SkyPilot runs `run` on every machine, with variables from "Environment variables" of its documentation (0.14):
    SKYPILOT_NODE_IPS, SKYPILOT_NODE_RANK, SKYPILOT_NUM_NODES, SKYPILOT_NUM_GPUS_PER_NODE and SKYPILOT_TASK_ID."""
    nodes = int(task["num_nodes"])
    addresses = [f"10.128.0.{number}" for number in range(2, nodes + 2)]
    accelerators = str(task["resources"].get("accelerators", ""))
    gpus = (accelerators.partition(":")[2] or "1") if accelerators else "0"
    given = {name: str(value) for name, value in task.get("envs", {}).items()}
    for name, value in task.get("secrets", {}).items():
        given[name] = make_secret_environment()["LOCKSTEP_SECRET"] if value is None else str(value)
    mounts = {path: source if isinstance(source, str) else "" for path, source in task["file_mounts"].items()}
    return [
        JobProcess(
            ("bash", "-c", str(task["run"])),
            given
            | {
                "SKYPILOT_NODE_IPS": "\n".join(addresses),
                "SKYPILOT_NODE_RANK": str(node),
                "SKYPILOT_NUM_NODES": str(nodes),
                "SKYPILOT_NUM_GPUS_PER_NODE": gpus,
                "SKYPILOT_TASK_ID": f"sky-managed-2026-01-01-00-00-00-000000_{task['name']}_1-0",
            },
            node,
            (addresses[node],),
            {os.path.normpath(path): source for path, source in mounts.items()},
        )
        for node in range(nodes)
    ]
