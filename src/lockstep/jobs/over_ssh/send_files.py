"""Sends files to the hosts that do not have them, in parts, through their agents."""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.files import sha256
from lockstep.hosts.agent_channel import AgentChannel

PART_BYTES = 1 << 20
"""An agent that has heard nothing for a while ends itself, so a part must arrive in that time."""
DIGEST_SECONDS = 600.0
"""How long a host may compute digests."""


@dataclass(frozen=True)
class Payload:
    """A file, or a folder with files, that every host needs."""

    source: Path  # on this machine
    place: Path  # on every host
    files: dict[str, tuple[int, str]]  # size and SHA-256 by name; the name of a single file is empty

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(repr(sorted(self.files.items())).encode()).hexdigest()

    @property
    def bytes(self) -> int:
        return sum(size for size, _ in self.files.values())

    def as_json(self) -> JsonValue:
        return {name: [size, digest] for name, (size, digest) in self.files.items()}

    def find(self, name: str) -> Path:
        return self.source / name if name else self.source


def read_payload(source: Path, place: Path | None = None) -> Payload:
    """Describes what is on this machine; it goes to the same place on the hosts. Raises LockstepError if nothing is."""
    if source.is_file():
        return Payload(source, place or source, {"": _describe(source)})
    paths = sorted(path for path in source.rglob("*") if path.is_file() and not path.name.startswith("."))
    if not paths:
        raise LockstepError(f"There is nothing at {source}.", "Prepare it here: lockstep prepare CONFIG", code=2)
    files = {path.relative_to(source).as_posix(): _describe(path) for path in paths}
    return Payload(source, place or source, files)


def _describe(path: Path) -> tuple[int, str]:
    return path.stat().st_size, sha256(path)


def send_payload(
    channel: AgentChannel, payload: Payload, tell: Callable[[str], None], check: Callable[[], None] = lambda: None
) -> None:
    """Brings a payload to a host, unless it is there. `check` may raise, between two parts."""
    place, files = str(payload.place), payload.as_json()
    if channel.ask("compare files", DIGEST_SECONDS, place=place, files=files):
        return
    tell(f"Sending {payload.place.name} ({payload.bytes / 1e6:,.1f} MB) to {channel.name}.")
    parts = channel.ask("begin files", DIGEST_SECONDS, place=place, files=files, digest=payload.digest)
    assert isinstance(parts, dict)
    for name in payload.files:
        offset = _find_offset(payload.find(name), parts[name])
        with payload.find(name).open("rb") as file:
            file.seek(offset)
            while True:
                check()
                part = file.read(PART_BYTES)
                if part or offset == 0:
                    data = base64.b64encode(part).decode()
                    where: dict[str, JsonValue] = {"place": place, "digest": payload.digest, "name": name}
                    channel.ask("add part", 120, **where, offset=offset, data=data)
                offset += len(part)
                if len(part) < PART_BYTES:
                    break
    before = channel.ask("finish files", DIGEST_SECONDS, place=place, files=files, digest=payload.digest)
    if before is not None:
        tell(f"{channel.name} had another {payload.place}: it is now {before}.")


def _find_offset(path: Path, part: JsonValue) -> int:
    """Returns how much of a file need not be sent again."""
    assert isinstance(part, list)
    size, digest = int(str(part[0])), str(part[1])
    with path.open("rb") as file:
        content = hashlib.sha256()
        left = size
        while left and (block := file.read(min(left, PART_BYTES))):
            content.update(block)
            left -= len(block)
    return size if content.hexdigest() == digest and left == 0 else 0
