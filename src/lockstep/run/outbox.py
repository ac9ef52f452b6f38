"""What a host that does not share the run folder keeps of its own: `.outbox/LAUNCH/` in its local folder of that name.

The workers of the host write their journals and logs there, and send them to the run folder, which is on the host of the
first worker. What could not be sent any more, the next launch of the host sends.
"""

import fcntl
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from lockstep.files import read_json, write_json

NAME = ".outbox"
HOME = "home"


@dataclass(frozen=True)
class OutboxMember:
    """Of which run this host has an outbox."""

    run: str  # the name that only this run has
    home: str  # the host that has the run folder
    launch: str  # the last one in which this host took part


def read_membership(folder: Path) -> OutboxMember | None:
    """Returns the membership of the host whose folder this is; None if the folder is the run folder itself."""
    facts = read_json(folder / NAME / "member.json")
    try:
        return None if facts is None else OutboxMember(**facts)
    except TypeError:
        return None


def find_own_folder(folder: Path) -> Path:
    """Returns the folder into which programs of this host write journals and logs: the run folder, or the outbox of the
    last launch."""
    try:
        member = read_membership(folder)
    except Exception:  # a damaged file must not end a monitor
        member = None
    return folder if member is None else folder / NAME / member.launch


def join_run(folder: Path, member: OutboxMember) -> Path:
    """Makes the outbox of a launch, and moves one of another run aside. Returns its folder."""
    root = folder / NAME
    before = read_membership(folder)
    if before is not None and before.run != member.run:
        root.rename(root.with_name(f"{NAME}.aside-{secrets.token_hex(4)}"))
    own = root / member.launch
    for name in ("journal", "logs"):
        (own / name).mkdir(parents=True, exist_ok=True)
    (own / HOME).write_text(member.home, encoding="utf-8")
    write_json(root / "member.json", asdict(member))
    return own


def read_home(outbox: Path) -> str:
    """Returns the host to which the files of an outbox belong."""
    try:
        return (outbox / HOME).read_text(encoding="utf-8")
    except FileNotFoundError:  # killed before anything was written
        return ""


def list_earlier(folder: Path, launch: str) -> list[Path]:
    """Returns the outboxes of other launches, oldest first."""
    paths = [path for path in (folder / NAME).glob("*") if path.is_dir() and path.name != launch]
    return sorted(paths, key=lambda path: path.stat().st_mtime)


def list_files(outbox: Path) -> list[str]:
    """Returns the names of the files of an outbox, as in the run folder."""
    paths = [*sorted(outbox.glob("journal/*.jsonl")), *sorted(outbox.glob("logs/*.log"))]
    return [str(path.relative_to(outbox)) for path in paths]


def hold(outbox: Path) -> TextIO:
    """Keeps others from emptying the outbox while the returned file is open."""
    file = (outbox / ".lock").open("a")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


@contextmanager
def take_over(outbox: Path) -> Iterator[bool]:
    """Holds the outbox of an earlier launch alone, if no worker writes to it any more; yields whether that is so."""
    with (outbox / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def remove(outbox: Path) -> None:
    """Removes the outbox of a launch whose files have all been sent."""
    shutil.rmtree(outbox, ignore_errors=True)


def leave(folder: Path) -> None:
    """Ends the membership of a host that has the run folder itself again."""
    (folder / NAME / "member.json").unlink(missing_ok=True)
    with suppress(OSError):
        (folder / NAME).rmdir()
