"""Which device a worker computes on, and whether this build of torch can use the GPUs that are there."""

import re
import time
from collections.abc import Callable, Sequence

import torch

from lockstep.errors import LockstepError
from lockstep.gpu_driver import list_gpus
from lockstep.run import environment_variables

Capability = tuple[int, int]
"""Major and minor version of what a GPU can execute: (7, 0) is Volta, (8, 0) is Ampere."""

FREE_SHARE = 0.8
"""Of a GPU's memory, what must be free before a restarted worker begins."""
FREE_SECONDS, POLL_SECONDS = 30.0, 0.5
"""How long it waits for that."""

_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def pick_device(wanted: str, local_rank: int) -> torch.device:
    """Returns the device of a worker. Raises if the machine has GPUs that this torch cannot use: training on the CPU of a
    rented GPU machine must not happen by itself."""
    if wanted == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        unused = _find_unused_gpu()
        if unused is not None:
            raise LockstepError(f"This machine has {unused}", _advise_build(), code=2)
        if wanted == "cuda":
            raise LockstepError(
                "train.device is cuda, but this machine has no usable GPU.", "Set train.device=auto.", 2
            )
        return torch.device("cpu")
    if environment_variables.engine_selects_gpus() and torch.cuda.device_count() == 1:
        local_rank = 0  # the engine shows each worker one GPU
    if local_rank >= torch.cuda.device_count():
        raise LockstepError(
            f"Worker {local_rank} on this machine has no GPU: there are {torch.cuda.device_count()}.",
            "Start at most one worker per GPU.",
            code=2,
        )
    device = torch.device("cuda", local_rank)
    _check_kernels(device)
    return device


def _check_kernels(device: torch.device) -> None:
    """Raises if this build of torch has no kernels for the GPU: torch would only find out when it runs the first one."""
    architectures = [name for name in torch.cuda.get_arch_list() if _ARCHITECTURE.fullmatch(name)]
    if not architectures:  # a build for other devices
        return
    capability = torch.cuda.get_device_capability(device)
    if can_execute(capability, architectures):
        return
    raise LockstepError(
        f"torch {torch.__version__} has no kernels for {torch.cuda.get_device_name(device)} (compute capability "
        f"{capability[0]}.{capability[1]}), only for {', '.join(architectures)}.",
        _advise_build(capability),
        code=2,
    )


def can_execute(capability: Capability, architectures: Sequence[str]) -> bool:
    """Can a GPU execute kernels that were built for these architectures? Binaries (sm_86) run on the same major version
    with the same or a later minor one, PTX (compute_86) on everything later. The suffix a means this very version, f the
    same major version."""
    for architecture in architectures:
        match = _ARCHITECTURE.fullmatch(architecture)
        if match is None:
            continue
        kind, suffix, built = match[1], match[4], (int(match[2]), int(match[3]))
        if suffix == "a":
            fits = capability == built
        elif kind == "sm" or suffix == "f":
            fits = capability[0] == built[0] and capability >= built
        else:
            fits = capability >= built
        if fits:
            return True
    return False


def _advise_build(capability: Capability | None = None) -> str:
    if capability is not None and capability < (7, 5):
        return (
            "Install the build of the same version for CUDA 12.6, the last one for GPUs before Turing (docs/use/gpus.md), "
            "or set train.device=cpu."
        )
    if capability is not None:
        return "Install a build for a later version of CUDA (docs/use/gpus.md), or set train.device=cpu."
    return "Update the driver or install a build of torch for it (docs/use/gpus.md), or set train.device=cpu."


def _find_unused_gpu() -> str | None:
    """Returns the end of a sentence about GPUs that the driver knows and torch cannot use, or None."""
    if environment_variables.hides_gpus():
        return None
    names, driver = list_gpus()
    if not names:
        return None
    count = f"{len(names)} GPU{'s' * (len(names) > 1)} ({', '.join(sorted(set(names)))}; driver {driver})"
    build = "is built for CPUs only" if torch.version.cuda is None else f"is built for CUDA {torch.version.cuda}"
    return f"{count} that torch cannot use: torch {torch.__version__} {build}."


def wait_for_memory(device: torch.device, sleep: Callable[[float], None] = time.sleep) -> None:
    """Lets a restarted worker wait until its GPU has the memory of the dead one again: the driver takes seconds to end a
    process that was killed. If another program keeps the memory, the worker tries with what there is."""
    if device.type != "cuda" or not environment_variables.restarts():
        return
    for _ in range(int(FREE_SECONDS / POLL_SECONDS)):
        if _measure_free_share(device) >= FREE_SHARE:
            return
        sleep(POLL_SECONDS)


def _measure_free_share(device: torch.device) -> float:
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:  # there is not even room for this process's own context
        return 0.0
    return float(free / total)
