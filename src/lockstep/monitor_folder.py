"""The folder in memory in which the workers of one host and their monitor find each other, under torchrun or mpirun.

It has the workers' heartbeats, a file about each worker, and where the monitors of the other hosts listen. Its name follows
from the run and from the start of the job, so all workers of a host find the same one. Strangers' folders are not used.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

from lockstep.files import write_json
from lockstep.run import environment_variables

MEMORY = Path("/dev/shm")  # noqa: S108
WORKER_FILE = re.compile(r"worker-(\d{1,9})\.json")
PATIENCE_SECONDS = 5.0
"""How long a worker waits for the monitor of its host to start."""
CAUSE_SECONDS = 5.0
"""How long a worker waits for the monitor to find out why another worker went away. It needs half of that."""
DEATH = "death.json"
LEFTOVER_SECONDS = 600.0
"""A note about a death that is older does not explain a start."""
REASONS = ("finished", "stopped", "failed", "lost")
"""How a worker may say that it ends. `lost`: another worker went away."""


class Peer(TypedDict):
    """A monitor, for those of other hosts."""

    host: str
    address: str
    port: int
    ranks: list[int]


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    start: int  # ticks since the machine was started

    @classmethod
    def of(cls, pid: int) -> "Process":
        return cls(pid, read_start(pid) or 0)

    def is_alive(self) -> bool:
        return read_start(self.pid) == self.start


@dataclass(frozen=True)
class LocalWorker:
    """A worker of this host."""

    rank: int
    process: Process
    engine: Process  # that started it
    error_file: str | None  # where the engine reads why it failed


def read_start(pid: int) -> int | None:
    """Returns when a process was started, in ticks since the machine was; None if there is no such process, or if it only
    waits for its parent to notice its end."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def make_monitor_folder(run: str) -> Path | None:
    """Returns the folder of this start of this run on this host, and makes it; None if it could be somebody else's."""
    job = _find_job_folder(run)
    folder = job / _digest(*environment_variables.name_launch())
    _remove_leftovers(job.parent)
    return folder if _make_own(job) and _make_own(folder) else None


def _remove_leftovers(parent: Path) -> None:
    """Removes what monitors that were killed have left, and notes that no start has read."""
    now = time.time()
    for job in parent.glob(f"lockstep-job-{os.getuid()}-*"):
        with suppress(OSError):
            for path in job.iterdir() if job.lstat().st_uid == os.getuid() else ():
                if now - path.lstat().st_mtime < LEFTOVER_SECONDS or is_locked(path / "lock"):
                    continue
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
            job.rmdir()  # fails if it is not empty


def remove_job_folder(run: str) -> None:
    """Removes all folders of a run on this host, whose workers and monitors were killed."""
    shutil.rmtree(_find_job_folder(run), ignore_errors=True)


def _find_job_folder(run: str) -> Path:
    return _find_parent() / f"lockstep-job-{os.getuid()}-{_digest(run, *_name_host())}"


def _find_parent() -> Path:
    return MEMORY if os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a folder, which is this file."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _make_own(folder: Path) -> bool:
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
        return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o077
    return False


def _name_host() -> tuple[str, str, str]:
    """Names this machine and, in a container, its process numbers, which cannot be compared with others."""
    boot = "".join(_read(Path("/proc/sys/kernel/random/boot_id")).split())
    return socket.gethostname(), boot, os.readlink("/proc/self/ns/pid") if Path("/proc/self/ns/pid").exists() else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]


def register_worker(folder: Path, rank: int) -> None:
    """Tells the monitor which process is this worker."""
    file = environment_variables.error_file()
    worker = LocalWorker(rank, Process.of(os.getpid()), Process.of(os.getppid()), None if file is None else str(file))
    (folder / f"ended-{rank}").unlink(missing_ok=True)
    write_json(folder / f"worker-{rank}.json", asdict(worker))


def read_workers(folder: Path) -> list[LocalWorker]:
    workers = []
    for path in sorted(folder.glob("worker-*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            facts = json.loads(path.read_text(encoding="utf-8"))
            process, engine = Process(**facts["process"]), Process(**facts["engine"])
            if WORKER_FILE.fullmatch(path.name):
                workers.append(LocalWorker(int(facts["rank"]), process, engine, facts["error_file"]))
    return workers


def note_end(reason: str, sentence: str = "") -> None:
    """Tells the monitor, if there is one, that this worker is about to end, and why."""
    folder = environment_variables.monitor_folder()
    if folder is not None:
        with suppress(OSError):
            write_json(folder / f"ended-{environment_variables.rank()}", {"reason": reason, "sentence": sentence})


def await_cause() -> None:
    """Waits until the monitor has told why another worker went away, but not for long. In a container the monitor dies with
    the engine, and the engine ends as soon as its workers have."""
    folder, deadline = environment_variables.monitor_folder(), time.monotonic() + CAUSE_SECONDS
    while folder is not None and not (folder.parent / DEATH).exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def read_end(folder: Path, rank: int) -> tuple[str, str] | None:
    """Returns how a worker has said that it ends, and its sentence; None if it has said nothing."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        facts = json.loads((folder / f"ended-{rank}").read_text(encoding="utf-8"))
        return (facts["reason"], str(facts["sentence"])) if facts["reason"] in REASONS else None
    return None


def read_own_peer() -> Peer | None:
    """Returns where the monitor of this host listens, as soon as it does; None if there is none."""
    folder = environment_variables.monitor_folder()
    if folder is None:
        return None
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError):
            facts = json.loads((folder / "monitor.json").read_text(encoding="utf-8"))
            return check_peer(facts | {"ranks": [environment_variables.rank()]})
        time.sleep(0.05)
    return None


def check_peer(facts: object) -> Peer | None:
    """Returns facts about a monitor if they are well-formed."""
    if not isinstance(facts, dict):
        return None
    host, address, port, ranks = (facts.get(name) for name in ("host", "address", "port", "ranks"))
    is_text = isinstance(host, str) and isinstance(address, str) and len(host) <= 64 and len(address) <= 256
    if not is_text or not isinstance(port, int) or not 0 < port < 1 << 16 or not isinstance(ranks, list):
        return None
    if not all(isinstance(rank, int) and rank >= 0 for rank in ranks):
        return None
    return Peer(host=str(host), address=str(address), port=port, ranks=ranks)


def write_peers(peers: list[Peer | None], secret: str) -> None:
    """Tells the monitor of this host where those of all hosts listen, and the key of their messages."""
    folder = environment_variables.monitor_folder()
    merged: dict[tuple[str, int], Peer] = {}
    for peer in filter(None, peers):
        known = merged.setdefault((peer["address"], peer["port"]), Peer(**{**peer, "ranks": []}))
        known["ranks"].extend(peer["ranks"])
    if folder is not None:
        with suppress(OSError):  # a training does not end because nobody watches it
            write_json(folder / "peers.json", {"secret": secret, "peers": list(merged.values())})


def read_peers(folder: Path) -> tuple[list[Peer], bytes] | None:
    """Returns the monitors of all hosts and the key of their messages; None before all workers have joined."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        facts = json.loads((folder / "peers.json").read_text(encoding="utf-8"))
        peers = [check_peer(peer) for peer in facts["peers"]]
        return [peer for peer in peers if peer is not None], bytes.fromhex(facts["secret"])
    return None


def write_death(folder: Path, moment: float, sentence: str) -> None:
    """Leaves a note about a death for the workers that this host starts next."""
    with suppress(OSError):
        write_json(folder.parent / DEATH, {"time": moment, "sentence": sentence})


def take_death(folder: Path) -> tuple[float, str] | None:
    """Returns the last note about a death, and removes it."""
    path = folder.parent / DEATH
    with suppress(OSError, ValueError, KeyError, TypeError):
        facts = json.loads(path.read_text(encoding="utf-8"))
        path.unlink(missing_ok=True)
        return float(facts["time"]), str(facts["sentence"])
    return None
