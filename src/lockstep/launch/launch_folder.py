"""The temporary folder in which the processes of one launch leave marks and errors.

Its name says who owns it, so that the next launch can remove the folder of a launcher that was killed.
"""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

PREFIX = "lockstep-launch-"
_OWNER = re.compile(rf"{PREFIX}(?P<place>[0-9a-f]{{8}})-(?P<pid>\d+)-(?P<start>\d+)-")


@contextmanager
def make_launch_folder() -> Iterator[str]:
    """Yields a new folder that is removed at the end. Folders whose launcher is dead are removed first."""
    owner = ""
    if sys.platform == "linux":
        _remove_leftovers(Path(tempfile.gettempdir()))
        owner = f"{_name_place()}-{os.getpid()}-{_read_start(os.getpid())}-"
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{owner}", ignore_cleanup_errors=True) as folder:
        yield folder


def _remove_leftovers(parent: Path) -> None:
    """Removes folders of dead launchers. A process number may be used again, but not with the same time of start."""
    for folder in parent.glob(f"{PREFIX}*"):
        owner = _OWNER.match(folder.name)
        if owner and owner["place"] == _name_place() and _read_start(int(owner["pid"])) != int(owner["start"]):
            shutil.rmtree(folder, ignore_errors=True)  # it leaves links and the folders of other users alone


def _read_start(pid: int) -> int | None:
    """Returns when a process started, in ticks since the machine did; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


def _name_place() -> str:
    """Names this start of this machine and, in a container, its process numbers: others cannot be compared with ours."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return sha256(f"{boot} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:8]
