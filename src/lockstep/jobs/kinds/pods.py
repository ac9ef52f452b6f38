"""What runs in a container of Kubernetes: the command, its variables, volumes and resources."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from lockstep.errors import LockstepError
from lockstep.jobs.job import Job
from lockstep.jobs.manifest import CONFIG_VARIABLE, quote_train_words, read_config_text, write_config_command

REFERENCE = re.compile(r"\$(\$?)\(([A-Za-z_][\w.-]*)\)")
STORE_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL")


@dataclass(frozen=True)
class Containers:
    """The container of every pod, in the words of Kubernetes."""

    command: list[str]
    arguments: list[str]
    environment: list[dict[str, object]]
    volumes: list[dict[str, object]]
    volume_mounts: list[dict[str, object]]
    resources: dict[str, object]


def describe_containers(job: Job, launcher: str) -> Containers:
    """`launcher` is the torchrun command, as far as it does not depend on the training."""
    volumes, mounts = _describe_volume(job)
    shell = f"{write_config_command()}\nexec {launcher} -m lockstep -- {quote_train_words(job)}\n"
    return Containers(["bash", "-c"], [shell], _list_environment(job), volumes, mounts, _list_resources(job))


def _describe_volume(job: Job) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    if "://" in job.run:
        return [], []
    folder = PurePosixPath(job.run)
    if not folder.is_absolute() or len(folder.parts) < 3:
        raise LockstepError(
            f"--run {job.run} is no folder below a volume.", "Write it as /runs/first, or as s3://bucket/first.", code=2
        )
    claim = job.require_option("claim", f"The name of the volume claim for {folder.parent}")
    volume: dict[str, object] = {"name": "runs", "persistentVolumeClaim": {"claimName": claim}}
    return [volume], [{"name": "runs", "mountPath": str(folder.parent)}]


def _list_environment(job: Job) -> list[dict[str, object]]:
    variables: list[dict[str, object]] = [
        {"name": CONFIG_VARIABLE, "value": escape_references(read_config_text(job))},
        _refer("LOCKSTEP_SECRET", job.name, "secret"),
    ]
    if job.interface is not None:
        variables += [{"name": f"{name}_SOCKET_IFNAME", "value": job.interface} for name in ("GLOO", "NCCL")]
    if store := job.option("store-secret"):
        variables += [_refer(key, store, key, is_optional=True) for key in STORE_KEYS]
    return variables


def _refer(name: str, secret: str, key: str, is_optional: bool = False) -> dict[str, object]:
    reference: dict[str, object] = {"name": secret, "key": key}
    if is_optional:
        reference["optional"] = True
    return {"name": name, "valueFrom": {"secretKeyRef": reference}}


def _list_resources(job: Job) -> dict[str, object]:
    requests = {key: value for key in ("cpu", "memory") if (value := job.option(key)) is not None}
    gpus = job.option("gpus")
    limits = {} if gpus is None else {"nvidia.com/gpu": gpus}
    return {name: part for name, part in (("requests", requests), ("limits", limits)) if part}


def escape_references(text: str) -> str:
    """Kubernetes takes `$(NAME)` for a reference, and `$$(NAME)` for that text."""
    return text.replace("$(", "$$(")


def read_environment(entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Returns the variables of a container. Instead of a secret's content, which only the cluster knows, they have a random
    text; those that may be missing are missing."""
    variables: dict[str, str] = {}
    for entry in entries:
        if "value" in entry:
            (variables[str(entry["name"])],) = expand_references([str(entry["value"])], variables)
        elif not entry["valueFrom"]["secretKeyRef"].get("optional"):
            variables[str(entry["name"])] = secrets.token_hex(32)
    return variables


def expand_references(words: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Replaces `$(NAME)` as Kubernetes does; what it does not know remains as it is."""

    def replace(match: re.Match[str]) -> str:
        return match[0][1:] if match[1] else variables.get(match[2], match[0])

    return tuple(REFERENCE.sub(replace, word) for word in words)


def mount_paths(containers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Returns the paths at which volumes are mounted."""
    return {str(mount["mountPath"]): "" for one in containers for mount in one.get("volumeMounts", [])}
