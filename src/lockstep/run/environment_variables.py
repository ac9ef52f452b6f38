"""The environment variables that Lockstep reads; `launch/environments/` knows those of other engines.

docs/use/environment-variables.md explains all of them.

Values are read at each call, not at import: local workers are forked and get their variables afterwards.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def rank() -> int:
    """This process among all processes of the launch."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """The number of processes of the launch, on all hosts."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_rank() -> int:
    """This process among those of its host."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def local_world_size(default: int | None = None) -> int:
    """The number of processes on this host."""
    known = os.environ.get("LOCAL_WORLD_SIZE")
    return int(known) if known is not None else world_size() if default is None else default


def rendezvous() -> tuple[str, str] | None:
    """Host and port of the first process; None when the environment does not name both."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    return None if host is None or port is None else (host, port)


def restarts() -> int:
    """How often the launcher, ours or torchrun, has restarted this worker."""
    return int(os.environ.get("LOCKSTEP_RESTARTS") or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def launcher_pid() -> int | None:
    """The process id of our own launcher; None when another engine started this process."""
    pid = os.environ.get("LOCKSTEP_LAUNCHER")
    return None if pid is None else int(pid)


def launch_id() -> str:
    """A name that the workers of one elastic launch share: LOCKSTEP_LAUNCH, otherwise the address of their lighthouse."""
    return os.environ.get("LOCKSTEP_LAUNCH") or os.environ["TORCHFT_LIGHTHOUSE"]


def lighthouse() -> str | None:
    """The address of torchft's lighthouse."""
    return os.environ.get("TORCHFT_LIGHTHOUSE")


def secret() -> str:
    """The secret of this job; empty if none was given this way."""
    return os.environ.get("LOCKSTEP_SECRET", "")


def copy_without_secret() -> dict[str, str]:
    """Returns the environment for a process that does not need the secret of this job. The system shows it to others."""
    return {name: value for name, value in os.environ.items() if name != "LOCKSTEP_SECRET"}


def copy() -> dict[str, str]:
    """Returns all variables, in which `launch/environments/` looks for those of engines."""
    return dict(os.environ)


def node_platform() -> str | None:
    """The platform for which `lockstep train` has become the torchrun that started this process."""
    return os.environ.get("LOCKSTEP_NODE")


def torchrun_nodes() -> str:
    """The number or range of nodes that is given to torchrun by a variable."""
    return os.environ.get("PET_NNODES", "")


def slurm_task_pid() -> int | None:
    """The process that Slurm has started as this task."""
    pid = os.environ.get("SLURM_TASK_PID", "")
    return int(pid) if pid.isdecimal() else None


def skypilot_task() -> str | None:
    """The name of this SkyPilot task, which stays the same when a lost machine is replaced; fit for a folder."""
    return re.sub(r"[^\w.-]", "-", os.environ.get("SKYPILOT_TASK_ID", "").strip()).strip(".-") or None


def secret_file() -> Path | None:
    """The file with the secret of this job."""
    path = os.environ.get("LOCKSTEP_SECRET_FILE")
    return Path(path).expanduser() if path else None


def run_port() -> int:
    """The port at which the first worker's host offers the run folder to hosts that do not share it; 0 for any free one."""
    port = os.environ.get("LOCKSTEP_RUN_PORT", "")
    return int(port) if port.isdecimal() and int(port) < 2**16 else 0


def launcher_hosts_store() -> bool:
    """Whether torchrun, and not the first worker, runs the rendezvous store."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def heartbeat_folder() -> Path | None:
    """Where the launcher reads the heartbeats of its workers; None when nobody watches them."""
    folder = os.environ.get("LOCKSTEP_HEARTBEATS")
    return Path(folder) if folder else None


def monitor_folder() -> Path | None:
    """Where the workers of this host find their monitor, if another engine than our launcher started them."""
    return heartbeat_folder() if launcher_pid() is None else None


def name_launch() -> tuple[str, ...]:
    """What all workers that one engine has started on this host share, and no other start does."""
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "GROUP_RANK")
    return (str(os.getppid()), *(os.environ.get(name, "") for name in names))


def torchrun_facts() -> tuple[int, bool] | None:
    """How often torchrun restarts the workers, and whether all starts share one store; None under another engine."""
    most = os.environ.get("TORCHELASTIC_MAX_RESTARTS")
    return None if most is None else (int(most), os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True")


def last_death() -> tuple[float, str] | None:
    """When a worker of the launch before died, in seconds since 1970, and the sentence about it; None if none did."""
    moment, _, sentence = os.environ.get("LOCKSTEP_DEATH", "").partition(" ")
    return (float(moment), sentence) if moment else None


def start_folder() -> Path | None:
    """Where the workers of our own elastic launcher wait for each other."""
    folder = os.environ.get("LOCKSTEP_START")
    return Path(folder) if folder else None


def error_file() -> Path | None:
    """Where a worker writes why it failed, for its launcher."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    return Path(path) if path else None


def hides_gpus() -> bool:
    """Whether somebody hides all GPUs from this process."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1", "NoDevFiles")


def engine_selects_gpus() -> bool:
    """Whether another engine than our launcher set CUDA_VISIBLE_DEVICES for this worker."""
    return bool(os.environ.get("CUDA_VISIBLE_DEVICES")) and launcher_pid() is None


def socket_interface(backend: str) -> str:
    """The network interfaces that the user named for Gloo or NCCL; empty when none."""
    return os.environ.get(f"{backend.upper()}_SOCKET_IFNAME", "")


def keep_gloo_on_loopback() -> None:
    """Lets Gloo listen on this machine only, unless the user has named an interface."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def counts_waits() -> bool:
    """Whether torch says in the log what makes a worker wait for its GPU. `lockstep doctor --gpu` asks for it."""
    return os.environ.get("LOCKSTEP_COUNT_WAITS") == "1"


def make_cublas_deterministic() -> None:
    """Gives cuBLAS the workspace without which torch refuses deterministic products. It must be called before the first
    product. What the user has set stays."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def let_nccl_peers_die() -> None:
    """Keeps the watchdog of torch's NCCL from ending this process when a peer has died: torchft aborts the group, and the
    step is repeated. It must be called before the first group is made. What the user has set stays."""
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")


def disabled_parts() -> tuple[str, ...]:
    """What an ablation run leaves out."""
    return tuple(name for name in os.environ.get("LOCKSTEP_WITHOUT", "").split(",") if name)


def is_emulated_host() -> bool:
    """Whether this process is on one of several emulated hosts, which share the cores of one machine."""
    return os.environ.get("LOCKSTEP_EMULATED") == "1"


def faults() -> str:
    """The faults that a test injects."""
    return os.environ.get("LOCKSTEP_FAULT", "")


def profiles_gradients() -> bool:
    """Whether the journal gets a line about when each gradient is ready. `lockstep plan` asks for it."""
    return os.environ.get("LOCKSTEP_PROFILE") == "1"


@contextmanager
def profiling() -> Iterator[None]:
    """Sets LOCKSTEP_PROFILE for the processes that are started inside."""
    before = os.environ.get("LOCKSTEP_PROFILE")
    os.environ["LOCKSTEP_PROFILE"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["LOCKSTEP_PROFILE"]
        else:
            os.environ["LOCKSTEP_PROFILE"] = before


@contextmanager
def silencing_torch() -> Iterator[None]:
    """Keeps a torch that is imported inside from printing C++ stacks for errors that we explain in this process. Processes
    that are started outside print them."""
    before = os.environ.get("TORCH_CPP_LOG_LEVEL")
    os.environ["TORCH_CPP_LOG_LEVEL"] = before or "FATAL"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TORCH_CPP_LOG_LEVEL"]


def python_path() -> str | None:
    """The import path that is passed on to processes that this one starts."""
    return os.environ.get("PYTHONPATH")


def cache_folder() -> Path:
    """Where copies of remote files are on this machine. It may be deleted whenever nothing runs."""
    if folder := os.environ.get("LOCKSTEP_CACHE"):
        return Path(folder).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "lockstep"


def state_folder() -> Path:
    """Where Lockstep remembers the jobs that were launched from here."""
    if folder := os.environ.get("LOCKSTEP_STATE"):
        return Path(folder).expanduser().absolute()
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser().absolute() / "lockstep"


BASICS = ("PATH", "HOME", "LANG", "PYTHONPATH", "LOCKSTEP_CACHE", "XDG_CACHE_HOME", "LOCKSTEP_EMULATED")


def copy_basics() -> dict[str, str]:
    """Returns what a process needs to find its programs and caches, and nothing that decides about a training."""
    return {name: os.environ[name] for name in BASICS if name in os.environ}


def openmp_threads() -> int | None:
    """OMP_NUM_THREADS: threads of a process that computes."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(threads) if threads.isdecimal() else None


def threads_per_process(processes: int) -> int:
    """OMP_NUM_THREADS if it is set, otherwise this machine's cores divided by its processes."""
    threads = os.environ.get("OMP_NUM_THREADS")
    return int(threads) if threads else max(1, len(os.sched_getaffinity(0)) // processes)
