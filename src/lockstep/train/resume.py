"""What a launch records about itself, and whether it may continue where an earlier one stopped."""

import os
import platform
import socket
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import yaml

from lockstep.ablation import Ablation
from lockstep.config import RunConfig, build, differences, keep_first_behaviour, read_yaml
from lockstep.errors import LockstepError
from lockstep.files import read_json, write_atomically, write_json
from lockstep.remote.place import is_remote
from lockstep.run import environment_variables
from lockstep.run.directory import RunDirectory
from lockstep.train.choices import Choices, make_choices, read_choices
from lockstep.yaml_text import parse_yaml

if TYPE_CHECKING:
    import torch

    from lockstep.tasks.task import Task
    from lockstep.team import Team


def check_resume(run: RunDirectory, config: RunConfig) -> None:
    """Refuses settings that do not fit the state in the run directory. Without a checkpoint there is no state."""
    if not (run.config.exists() and _has_checkpoint(run)):
        return
    fixed, _ = differences(_read_config(run), config)
    if fixed:
        shown = ", ".join(f"{key} {old!r} -> {new!r}" for key, (old, new) in fixed.items())
        raise LockstepError(
            f"The run {run.name} was started with other settings, and its state does not fit the new ones: {shown}.",
            "Choose another --run folder, or keep these settings.",
            code=2,
        )


def keep_behaviour(config: RunConfig, recorded: bytes | None) -> RunConfig:
    """Returns the config with the data.cleaning and search.normalise of the run that it continues, unless it sets others
    itself. So a config file of an earlier version continues its runs. `recorded` is the run's config.yaml, if there is
    one."""
    if recorded is None:
        return config
    try:
        tree = parse_yaml(recorded)
        keep_first_behaviour(tree)
        if config.data.images is None and "cleaning" not in config.data.model_fields_set:
            data = config.data.model_copy(update={"cleaning": int(tree["data"]["cleaning"])})
            config = config.model_copy(update={"data": data})
        if "normalise" not in config.search.model_fields_set:
            search = config.search.model_copy(update={"normalise": tree["search"]["normalise"]})
            config = config.model_copy(update={"search": search})
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
        return config  # `check_resume` reports a damaged file
    return config


def check_foreign(run: RunDirectory) -> None:
    """Refuses a folder whose config.yaml does not belong to a run."""
    if run.config.exists() and not run.choices.exists():
        raise LockstepError(
            f"{run.path} holds a config.yaml that is not a run's and would be overwritten.",
            "Choose another --run folder.",
            code=2,
        )


def check_state(run: RunDirectory, config: RunConfig, ablation: Ablation) -> None:
    """Refuses to continue a run with settings that do not fit, and to continue it in an ablation run."""
    check_resume(run, config)
    if ablation.active and _has_checkpoint(run):
        raise LockstepError(
            f"LOCKSTEP_WITHOUT is set, and the run {run.name} has a checkpoint. An ablation run must not continue it.",
            "Choose another --run folder, or unset LOCKSTEP_WITHOUT.",
            code=2,
        )


def is_recorded(run: RunDirectory, launch: str) -> bool:
    """Whether a worker of this launch has written all records; environment.json is written last."""
    choices = (read_json(run.environment) or {}).get("choices")
    return isinstance(choices, dict) and choices.get("launch") == launch


def settle_choices(
    run: RunDirectory, config: RunConfig, team: "Team", has_kernels: bool, hosts: list["HostFacts"]
) -> Choices:
    """Returns the choices of this launch. A run with a checkpoint keeps the earlier ones. Of an elastic launch the first
    worker chooses, and the others read what it recorded."""
    if team.elastic and is_recorded(run, environment_variables.launch_id()):
        recorded = read_choices(run)
        assert recorded is not None
        return recorded
    precision = choose_precision(hosts)
    return make_choices(run, config, team, has_kernels, precision, may_keep=_has_checkpoint(run))


def record_launch(
    run: RunDirectory, config: RunConfig, choices: Choices, task: "Task", hosts: list["HostFacts"]
) -> dict[str, list[Any]]:
    """Records what this launch is; returns the settings that changed since the last one, each before and after."""
    data_before = read_json(run.data)
    old, new = data_before and str(data_before.get("digest")), task.data_facts["digest"]
    if is_recorded(run, choices.launch):
        if old != new:
            raise LockstepError("The workers see different corpora.", "Prepare it once and share it, or copy it.")
        return {}
    if old != new and data_before is not None and _has_checkpoint(run):
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
    absolute = {
        name: place if is_remote(place) else Path(place).expanduser().absolute() for name, place in places.items()
    }
    update: dict[str, object] = {"data": data.model_copy(update=absolute)}
    start = config.train.start_from
    if start is not None and not is_remote(start):
        update["train"] = config.train.model_copy(update={"start_from": Path(start).expanduser().absolute()})
    config = config.model_copy(update=update)
    changed = differences(_read_config(run), config)[1] if run.config.exists() else {}
    choices.write(run)
    write_atomically(run.config, config.to_yaml())
    write_json(run.data, task.data_facts)
    write_json(run.environment, _describe_environment(hosts, choices))
    return {name: list(values) for name, values in changed.items()}


def _has_checkpoint(run: RunDirectory) -> bool:
    return any(run.checkpoints.glob("step-*"))


def _read_config(run: RunDirectory) -> RunConfig:
    return build(read_yaml(run.config), str(run.config))


class HostFacts(TypedDict):
    """What environment.json says of one worker."""

    host: str
    device: str
    device_name: str
    cores: int | None
    memory: int  # bytes
    gpu: NotRequired[str]  # its UUID
    capability: NotRequired[list[int]]  # major and minor version of what the GPU can execute
    bf16: NotRequired[bool]  # whether the device has products in bf16


def collect_host_facts(device: "torch.device") -> HostFacts:
    import torch

    from lockstep.train.precision import has_native_bf16

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _name_processor()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    facts: HostFacts = {
        "host": socket.gethostname(),
        "device": str(device),
        "device_name": name,
        "cores": os.cpu_count(),
        "memory": memory,
        "bf16": has_native_bf16(device),
    }
    if device.type == "cuda":
        facts["gpu"] = str(torch.cuda.get_device_properties(device).uuid)
        facts["capability"] = list(torch.cuda.get_device_capability(device))
    return facts


def check_devices(hosts: list[HostFacts]) -> None:
    """Refuses workers on different kinds of devices: the first exchange of tensors would wait for ever."""
    kinds = {facts["device"].partition(":")[0]: (rank, facts) for rank, facts in reversed(list(enumerate(hosts)))}
    if len(kinds) > 1:
        places = (f"worker {rank} on {facts['host']} computes on {facts['device']}" for rank, facts in kinds.values())
        raise LockstepError(
            f"The workers have different kinds of devices: {', '.join(places)}.",
            "Repair the GPUs of that machine, leave it out, or set train.device=cpu for all.",
            code=2,
        )


def check_gpus(hosts: list[HostFacts]) -> None:
    """Refuses two workers on one GPU: NCCL would only report a lost connection."""
    owners: dict[str, int] = {}
    for rank, facts in enumerate(hosts):
        if (gpu := facts.get("gpu")) is not None and owners.setdefault(gpu, rank) != rank:
            raise LockstepError(
                f"Workers {owners[gpu]} and {rank} on {facts['host']} have the same GPU ({facts['device_name']}).",
                "Start at most one worker per GPU, and let CUDA_VISIBLE_DEVICES show each its own or all of them.",
                code=2,
            )


def choose_precision(hosts: list[HostFacts]) -> str:
    """Returns the fastest precision that all workers' devices compute in: bf16, else fp16 on GPUs from Volta on, else
    fp32."""
    if all(facts.get("bf16") for facts in hosts):
        return "bf16"
    return "fp16" if all(facts.get("capability", [0]) >= [7] for facts in hosts) else "fp32"


def _name_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _describe_environment(hosts: list[HostFacts], choices: Choices) -> dict[str, object]:
    from importlib.metadata import version

    names = ("lockstep-train", "torch", "numpy", "sentencepiece", "sacrebleu", "safetensors")
    versions = {"python": platform.python_version()} | {name: version(name) for name in names}
    return {"versions": versions, "platform": platform.platform(), "workers": hosts, "choices": asdict(choices)}
