"""A cluster's network on one Linux machine: every host is a network namespace, a bridge in another one joins them.

Needs root. What a killed process left behind is found by the process in its name and removed at the next start.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from lockstep.errors import LockstepError

INTERFACE = "eth0"
MOST_HOSTS = 250
_OURS = re.compile(r"^lockstep-(\d+)-(\d+)-(\w+)$")  # process, when it began, what it is
_RATE = re.compile(r"^(\d+(?:\.\d+)?)([kmg]?)bit$")


def rate_bits(rate: str) -> float:
    """What a rate in tc's words, such as 1gbit, is in bits per second."""
    found = _RATE.match(rate.lower())
    if found is None or not float(found[1]):
        raise LockstepError(f"{rate!r} is not the rate of a link.", "Write it as 100mbit, 1gbit or 2.5gbit.", code=2)
    return float(found[1]) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[found[2]]


def check_able() -> None:
    """Refuses where no network can be emulated, before anything has begun."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise LockstepError(
            "An emulated network needs root on Linux.", "Start the command with sudo, or leave the link out.", code=2
        )
    needed = ("ip", "tc", "unshare", "setpriv")
    missing = [name for name in needed if shutil.which(name) is None]
    if missing:
        raise LockstepError(
            f"An emulated network needs {' and '.join(missing)}.",
            "On Debian and Ubuntu they are in the packages iproute2 and util-linux.",
            code=2,
        )


def _ip(*words: str) -> str:
    result = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LockstepError(
            f"The emulated network could not be made: `ip {' '.join(words)}` says {result.stderr.strip()}.",
            "It needs root on Linux, with network namespaces.",
        )
    return result.stdout


@dataclass(frozen=True)
class EmulatedHost:
    """One emulated machine."""

    name: str
    address: str
    namespace: str

    def command(self, words: Sequence[str]) -> list[str]:
        """Runs a program there, with a host name, process numbers and shared memory of its own. Killing this command is
        the crash of the host: nothing there survives it."""
        inside = f'hostname {self.name}; mount -t tmpfs shm /dev/shm; exec "$@"'
        own = ["unshare", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return ["ip", "netns", "exec", self.namespace, *own, "sh", "-c", inside, "sh", *words]

    def counter(self, name: str, interface: str = INTERFACE) -> int:
        """A counter of an interface, such as tx_bytes."""
        path = f"/sys/class/net/{interface}/statistics/{name}"
        return int(_ip("netns", "exec", self.namespace, "cat", path))


@dataclass
class EmulatedNetwork:
    """Hosts h1, h2, ... on one switch. `rate` is what every port lets through each way, in tc's words ("1gbit")."""

    hosts: int
    rate: str | None = None
    members: list[EmulatedHost] = field(default_factory=list)

    def __enter__(self) -> Self:
        check_able()
        if not 1 <= self.hosts <= MOST_HOSTS:
            raise LockstepError(f"{self.hosts} hosts cannot be emulated.", f"Choose from 1 to {MOST_HOSTS}.", code=2)
        clean_up()
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def sent(self) -> list[int]:
        """Bytes that each host has sent so far, headers included, as the switch counted them."""
        ports = json.loads(_ip("-json", "-statistics", "-netns", self._name("switch"), "link", "show"))
        counted = {port["ifname"]: int(port["stats64"]["rx"]["bytes"]) for port in ports}
        return [counted[f"port{number}"] for number in range(1, self.hosts + 1)]

    def _build(self) -> None:
        switch = self._namespace("switch")
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        names = {number: f"10.77.0.{number}" for number in range(1, self.hosts + 1)}
        known = "127.0.0.1 localhost\n" + "".join(f"{address} h{number}\n" for number, address in names.items())
        for number, address in names.items():
            host = EmulatedHost(f"h{number}", address, self._namespace(f"h{number}"))
            self.members.append(host)
            port = f"port{number}"
            _ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", INTERFACE, "netns", host.namespace)
            _ip("-n", switch, "link", "set", port, "master", "bridge", "up")
            _ip("-n", host.namespace, "address", "add", f"{address}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                _ip("-n", host.namespace, "link", "set", interface, "up")
            folder = Path("/etc/netns") / host.namespace  # `ip netns exec` lays these files over /etc
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts").write_text(known)
            if self.rate is not None:
                for namespace, interface in ((host.namespace, INTERFACE), (switch, port)):
                    _limit(namespace, interface, self.rate)

    def _name(self, name: str) -> str:
        return f"lockstep-{os.getpid()}-{_began(os.getpid())}-{name}"

    def _namespace(self, name: str) -> str:
        namespace = self._name(name)
        _ip("netns", "add", namespace)
        return namespace

    def _remove(self) -> None:
        for name, owner in _namespaces():
            if owner == os.getpid():
                _delete(name)
        self.members.clear()


def _limit(namespace: str, interface: str, rate: str) -> None:
    burst = max(128 * 1024, int(rate_bits(rate) / 8 * 0.001))  # what passes in a millisecond
    words = ["tc", "-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf", "rate", rate]
    words += ["burst", str(burst), "latency", "50ms"]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LockstepError(
            f"A rate of {rate} could not be set: {result.stderr.strip()}.", "For example 1gbit.", code=2
        )


def clean_up() -> None:
    """Removes what processes that are gone have left."""
    for name, owner in _namespaces():
        if owner is None:
            _delete(name)


def _namespaces() -> list[tuple[str, int | None]]:
    """Ours, each with the living process that made it."""
    names = [line.split()[0] for line in _ip("netns", "list").splitlines() if line.strip()]
    found = ((name, match) for name in names if (match := _OURS.match(name)))
    return [(name, int(match[1]) if _began(int(match[1])) == int(match[2]) else None) for name, match in found]


def _began(process: int) -> int:
    """When a process began, in the kernel's ticks, which no other process of this number has; 0: there is none."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return 0


def _delete(name: str) -> None:
    for pid in _ip("netns", "pids", name).split():
        subprocess.run(["kill", "-9", pid], capture_output=True, check=False)
    _ip("netns", "delete", name)
    folder = Path("/etc/netns") / name
    (folder / "hosts").unlink(missing_ok=True)
    if folder.exists():
        folder.rmdir()
