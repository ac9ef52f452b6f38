"""Runs a printed job on this machine: the processes that its text names, with the variables that the platform injects.

Where root allows, every node is an emulated host, with the names and addresses that the text uses. Otherwise all processes
run beside each other, and all names are this machine.
"""

import json
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.jobs.kind import MADE_UP_SECRET, JobProcess
from lockstep.lab.emulated_network import EmulatedNetwork, check_can_emulate
from lockstep.launch.run_all import Program, run_all
from lockstep.remote.place import is_remote

MARK = "pretended"
"""A file in the folder of a trial: what is there may be removed."""
LOOPBACK = "127.0.0.1"
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def can_emulate() -> bool:
    """Whether this machine can emulate hosts."""
    try:
        check_can_emulate()
    except LockstepError:
        return False
    return True


def make_trial_folder(run: str, processes: Sequence[JobProcess]) -> tuple[Path, str]:
    """Returns a new folder for the files of a trial, and where its run is on this machine. An earlier trial there is
    removed. `run` is a folder in that of the trial, below a mounted path, or an address."""
    mounts = {path for process in processes for path, source in process.mounts.items() if not source}
    path = next((path for path in mounts if Path(run).is_relative_to(path)), None)
    is_elsewhere = path is not None or is_remote(run)
    place = (Path("runs") / Path(run).name if is_elsewhere else Path(run).parent).absolute()
    if place.exists() and not (place / MARK).exists():
        raise LockstepError(f"{place} is in the way of the trial.", "Remove or rename it.", code=2)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True, mode=0o700)
    (place / MARK).touch()
    return place, run if path is None else str(_find_mount(place, path) / Path(run).relative_to(path))


def _find_mount(folder: Path, path: str) -> Path:
    return folder / "mounts" / path.strip("/").replace("/", "-")


def pretend(processes: Sequence[JobProcess], folder: Path, on_poll: Callable[[], None], emulates: bool) -> None:
    """Runs the processes of a job until it ends. The `folder` takes the place of what the platform mounts."""
    places = _make_places(processes, folder)
    own = [_replace_paths(process, places) for process in processes]
    names = [_list_names(own, node) for node in range(_count_nodes(own))]
    interface = next(
        (process.variables[name] for process in own for name in INTERFACES if name in process.variables), ""
    )
    if not emulates:
        own = [_stay_here(process, names) for process in own]
    with EmulatedNetwork(len(names)) if emulates else nullcontext() as network:
        prefixes: list[Callable[[Sequence[str]], list[str]]] = [list] * len(names)
        if network is not None:
            network.name_hosts(names, interface or None)
            prefixes = [host.command for host in network.members]
        programs = [Program(prefix(_write_node(own, node, folder)), {}) for node, prefix in enumerate(prefixes)]
        errors = run_all(programs, on_poll)
    if errors:
        raise LockstepError(f"The pretended job failed: {errors}", "See its text with --print.")


def _count_nodes(processes: Sequence[JobProcess]) -> int:
    return 1 + max(process.node for process in processes)


def _list_names(processes: Sequence[JobProcess], node: int) -> tuple[str, ...]:
    return next((process.names for process in processes if process.node == node), ())


def _make_places(processes: Sequence[JobProcess], folder: Path) -> dict[str, str]:
    """Returns what is here in the place of every path that the platform mounts."""
    places = {}
    for path, source in {path: source for process in processes for path, source in process.mounts.items()}.items():
        here = _find_mount(folder, path)
        if source == MADE_UP_SECRET:
            here.parent.mkdir(parents=True, exist_ok=True)
            here.touch(mode=0o600)
            here.write_text(secrets.token_hex(32))
        elif source:
            here = Path(source)
        else:
            here.mkdir(parents=True, exist_ok=True)
        places[path] = str(here)
    return places


def _replace_paths(process: JobProcess, places: Mapping[str, str]) -> JobProcess:
    """Returns the process with the paths of this machine, the longest first: one may be below another."""
    if not places:
        return process
    paths = "|".join(re.escape(path) for path in sorted(places, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w/.-])({paths})(?![\w.-])")

    def translate(text: str) -> str:
        return pattern.sub(lambda match: places[match[1]], text)

    return _translate(process, translate)


def _stay_here(process: JobProcess, names: Sequence[Sequence[str]]) -> JobProcess:
    """Returns the process with the name of this machine in the place of every name of a node, and as the first node. It is
    not loopback, which Lockstep refuses for several nodes."""
    here = _find_own_name()
    known = sorted({name for one in names for name in one if name != "localhost"}, key=len, reverse=True)
    if known:
        pattern = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, known))})(?![\w-]|\.\w)")
        process = _translate(process, lambda text: pattern.sub(here, text))
    own = dict.fromkeys(INTERFACES, "lo")
    return replace(process, variables={"MASTER_ADDR": here, **process.variables, **own})


def _find_own_name() -> str:
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return LOOPBACK
    return name


def _translate(process: JobProcess, translate: Callable[[str], str]) -> JobProcess:
    variables = {name: translate(value) for name, value in process.variables.items()}
    return replace(process, words=tuple(map(translate, process.words)), variables=variables)


def _write_node(processes: Sequence[JobProcess], node: int, folder: Path) -> list[str]:
    """Writes the processes of a node into a file that only its owner can read, because there may be a secret in it. Returns
    the command that runs them."""
    own_folder = folder / f"node-{node}"
    own_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = own_folder / "processes.json"
    path.touch(mode=0o600)
    here = [process for process in processes if process.node == node]
    facts = [
        {"words": process.words, "variables": {"TMPDIR": str(own_folder), **process.variables}} for process in here
    ]
    path.write_text(json.dumps(facts), encoding="utf-8")
    return [sys.executable, "-m", "lockstep.jobs.pretended_node", str(path)]
