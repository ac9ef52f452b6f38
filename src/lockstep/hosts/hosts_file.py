"""Which machines a launch may use: a hosts file, or a list such as `node1:2,node2:2`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.errors import LockstepError

KEYS = ("slots", "port", "user", "address")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:%-]*")
"""It becomes a word of an ssh command, so it must not look like an option."""
EXAMPLE = (
    "A line of a hosts file is `node1 slots=2 port=4444 user=me address=10.0.0.1`; all but the name may be left out."
)


@dataclass(frozen=True)
class Host:
    """A machine."""

    name: str  # as ssh knows it
    slots: int = 1  # workers
    port: int | None = None  # of sshd
    user: str | None = None
    address: str | None = None  # under which the other machines reach it, if not under its name

    @property
    def public_name(self) -> str:
        return self.address or self.name

    @property
    def place(self) -> str:
        """What ssh takes as its destination."""
        return self.name if self.user is None else f"{self.user}@{self.name}"


def read_hosts(text: str) -> list[Host]:
    """Reads the file of that name, or a list such as `node1:2,node2:2` as mpirun takes it."""
    path = Path(text)
    if path.is_file():
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        words = [(f"{text}, line {number}", line.partition("#")[0].split()) for number, line in enumerate(lines, 1)]
        hosts = [_parse_line(place, line) for place, line in words if line]
    elif "/" in text or text.endswith(".txt"):
        raise LockstepError(f"There is no hosts file {text}.", EXAMPLE, code=2)
    else:
        hosts = [_parse_item(item) for item in filter(None, text.split(","))]
    _check_unique(hosts, text)
    return hosts


def _parse_line(place: str, words: Sequence[str]) -> Host:
    name, *rest = words
    values: dict[str, str] = {}
    for word in rest:
        key, equals, value = word.partition("=")
        if key not in KEYS or not equals or not value:
            raise LockstepError(f"{place}: {word!r} is not understood.", EXAMPLE, code=2)
        if key in values:
            raise LockstepError(f"{place}: {key} is there twice.", EXAMPLE, code=2)
        values[key] = value
    return _make(
        place,
        name,
        slots=_parse_number(place, "slots", values.get("slots", "1"), 10_000),
        port=_parse_number(place, "port", values["port"], 65_535) if "port" in values else None,
        user=values.get("user"),
        address=values.get("address"),
    )


def _parse_item(item: str) -> Host:
    name, _, slots = item.partition(":")
    return _make(item, name, _parse_number(item, "slots", slots or "1", 10_000))


def _make(
    place: str,
    name: str,
    slots: int,
    port: int | None = None,
    user: str | None = None,
    address: str | None = None,
) -> Host:
    for word in filter(None, (name, user, address)):
        if not NAME.fullmatch(word):
            raise LockstepError(f"{place}: {word!r} is not the name of a host or user.", EXAMPLE, code=2)
    return Host(name, slots, port, user, address)


def _parse_number(place: str, key: str, text: str, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        raise LockstepError(f"{place}: {key} is {text!r}, not a number from 1 to {most:,}.", EXAMPLE, code=2)
    return int(text)


def _check_unique(hosts: Sequence[Host], text: str) -> None:
    if not hosts:
        raise LockstepError(f"{text} names no host.", EXAMPLE, code=2)
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise LockstepError(f"{text} names {name} twice.", "Give it one line with more slots.", code=2)
