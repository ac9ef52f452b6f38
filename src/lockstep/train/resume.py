"""What a launch writes down about itself, and whether it may go on where an earlier one stopped."""

import os
import platform
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lockstep.ablation import disabled
from lockstep.config import RunConfig, build, differences, read_yaml
from lockstep.errors import LockstepError
from lockstep.files import read_json, write_json, write_whole
from lockstep.remote.place import is_remote
from lockstep.run.directory import RunDirectory

SHOWN_SECONDS = 90.0
"""Network file systems may show a file that late."""

if TYPE_CHECKING:
    import torch

    from lockstep.tasks.task import Task
    from lockstep.team import Team


def check_resume(run: RunDirectory, config: RunConfig) -> None:
    """Refuses settings that the state in the run directory does not fit. Without a checkpoint there is no state."""
    if not (run.config.exists() and _has_checkpoint(run)):
        return
    kept, _ = differences(_config_of(run), config)
    if kept:
        shown = ", ".join(f"{key} {old!r} -> {new!r}" for key, (old, new) in kept.items())
        raise LockstepError(
            f"The run {run.name} was started with other settings, and its state does not fit the new ones: {shown}.",
            "Choose another --run folder, or keep these settings.",
            code=2,
        )


def check_foreign(run: RunDirectory) -> None:
    if run.config.exists() and not run.choices.exists():
        raise LockstepError(
            f"{run.path} holds a config.yaml that is not a run's and would be overwritten.",
            "Choose another --run folder.",
            code=2,
        )


def check_state(run: RunDirectory, config: RunConfig) -> None:
    check_resume(run, config)
    if disabled() and _has_checkpoint(run):
        raise LockstepError(
            f"LOCKSTEP_WITHOUT is set, and the run {run.name} has a checkpoint that such a run would go on from.",
            "Choose another --run folder, or unset it.",
            code=2,
        )


def launch_name() -> str:
    """What the workers of one launch have in common and no other launch has."""
    return os.environ.get("LOCKSTEP_LAUNCH") or os.environ["TORCHFT_LIGHTHOUSE"]


def is_recorded(run: RunDirectory, launch: str | None) -> bool:
    """Has a worker of this launch made the records? The last of them tells."""
    environment = read_json(run.environment) or {"choices": {}}
    return launch is not None and environment["choices"].get("launch") == launch


def check_shared(run: RunDirectory, launch: str, timeout_seconds: float) -> None:
    """All workers write checkpoints, so each must see the folder in which the first one has made its records. Says so
    before those who see it give up waiting for this worker."""
    deadline = time.monotonic() + min(SHOWN_SECONDS, timeout_seconds / 2)
    while not is_recorded(run, launch):
        if time.monotonic() > deadline:
            mirrored = is_remote(run.name)
            raise LockstepError(
                f"{socket.gethostname()} does not see the first worker's run folder {run.path}"
                f"{f', in which {run.name} works' if mirrored else ''}.",
                f"{'Set LOCKSTEP_CACHE to' if mirrored else 'Choose'} a folder that all machines share.",
            )
        time.sleep(0.2)


def make_choices(run: RunDirectory, config: RunConfig, team: "Team") -> dict[str, Any]:
    """Makes every choice once: what a run with a checkpoint has chosen before is kept."""
    from lockstep.train.precision import resolve

    known = read_json(run.choices) or {"launches": 0}
    if team.elastic and is_recorded(run, launch_name()):
        return known
    choices: dict[str, Any] = known if _has_checkpoint(run) else {"launches": known["launches"]}
    choices["launches"] += 1
    choices["launch"] = launch_name() if team.elastic else uuid4().hex
    if config.train.precision != "auto":
        choices["precision"] = config.train.precision
    choices.setdefault("precision", resolve("auto", team.device))
    threads = choices.setdefault("threads", {})
    if config.train.threads is not None:
        threads[str(team.size)] = config.train.threads
    here = int(os.environ.get("LOCAL_WORLD_SIZE", team.size))
    threads.setdefault(str(team.size), max(1, len(os.sched_getaffinity(0)) // here))
    if config.strategy.name == "local" and config.strategy.every is not None:
        choices["every"] = config.strategy.every
    choices.setdefault("every", max(1, min(500, config.train.steps // 20)))
    factor = team.size if config.batch.per == "worker" else 1
    budgets = {"words": config.batch.words, "sentences": config.batch.sentences, "images": config.batch.images}
    choices.setdefault("batch", {name: n and n * factor for name, n in budgets.items()} | {"per": "global"})
    return choices


def record_launch(
    run: RunDirectory, config: RunConfig, choices: dict[str, Any], task: "Task", hosts: list[dict[str, Any]]
) -> dict[str, tuple[Any, Any]]:
    """Writes down what this launch is; returns the settings that changed since the last one."""
    known = read_json(run.data)
    old, new = known and known["digest"], task.data_facts["digest"]
    if is_recorded(run, choices.get("launch")):
        if old != new:
            raise LockstepError("The workers see different corpora.", "Prepare it once and share it, or copy it.")
        return {}
    if old != new and known is not None and _has_checkpoint(run):
        raise LockstepError(
            f"The run {run.name} was trained on another corpus (digest {old[:12]}, now {new[:12]}).",
            "Choose another --run folder, or restore the corpus.",
            code=2,
        )
    data = config.data
    corpus = task.data_folder if data.corpus is None or not is_remote(data.corpus) else data.corpus
    places = {"folder": data.folder, "corpus": corpus}
    if data.images is not None:
        places = {"images": data.images}
    kept = {name: place if is_remote(place) else Path(place).expanduser().absolute() for name, place in places.items()}
    config = config.model_copy(update={"data": data.model_copy(update=kept)})
    changed = differences(_config_of(run), config)[1] if run.config.exists() else {}
    write_json(run.choices, choices)
    write_whole(run.config, config.to_yaml())
    write_json(run.data, task.data_facts)
    write_json(run.environment, _environment(hosts, choices))
    return changed


def _has_checkpoint(run: RunDirectory) -> bool:
    return any(run.checkpoints.glob("step-*"))


def _config_of(run: RunDirectory) -> RunConfig:
    return build(read_yaml(run.config), str(run.config))


def host_facts(device: "torch.device") -> dict[str, Any]:
    import torch

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    facts = {"host": socket.gethostname(), "device": str(device), "device_name": name, "cores": os.cpu_count()}
    if device.type == "cuda":
        facts["gpu"] = str(torch.cuda.get_device_properties(device).uuid)
    return facts | {"memory": memory}


def check_gpus(hosts: list[dict[str, Any]]) -> None:
    """An engine may have shown the same GPU to two workers; NCCL would only say that a connection was lost."""
    owners: dict[str, int] = {}
    for rank, facts in enumerate(hosts):
        if (gpu := facts.get("gpu")) is not None and owners.setdefault(gpu, rank) != rank:
            raise LockstepError(
                f"Workers {owners[gpu]} and {rank} on {facts['host']} have the same GPU ({facts['device_name']}).",
                "Start at most one worker per GPU, and let CUDA_VISIBLE_DEVICES show each its own or all of them.",
                code=2,
            )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _environment(hosts: list[dict[str, Any]], choices: dict[str, Any]) -> dict[str, Any]:
    from importlib.metadata import version

    names = ("lockstep-train", "torch", "numpy", "sentencepiece", "sacrebleu", "safetensors")
    versions = {"python": platform.python_version()} | {name: version(name) for name in names}
    return {"versions": versions, "platform": platform.platform(), "workers": hosts, "choices": choices}
