"""A cluster's network on one Linux machine: every host is a network namespace, a bridge in another one joins them.

Needs root. What a killed process left behind is found by the process number in its name and removed at the next start.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from lockstep.errors import LockstepError

INTERFACE = "eth0"
_OURS = re.compile(r"^lockstep-(\d+)-(\w+)$")


def _ip(*words: str) -> str:
    result = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LockstepError(
            f"The emulated network could not be made: `ip {' '.join(words)}` says {result.stderr.strip()}.",
            "It needs root on Linux, with network namespaces.",
        )
    return result.stdout


@dataclass(frozen=True)
class Host:
    """One emulated machine."""

    name: str
    address: str
    namespace: str

    def command(self, words: Sequence[str]) -> list[str]:
        """Runs a program there, with a host name, process numbers and shared memory of its own. It ends when its
        starter does."""
        inside = f'hostname {self.name}; mount -t tmpfs shm /dev/shm; exec "$@"'
        own = ["unshare", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return ["ip", "netns", "exec", self.namespace, *own, "sh", "-c", inside, "sh", *words]

    def counter(self, name: str, interface: str = INTERFACE) -> int:
        """A counter of an interface, such as tx_bytes."""
        path = f"/sys/class/net/{interface}/statistics/{name}"
        return int(_ip("netns", "exec", self.namespace, "cat", path))


@dataclass
class Network:
    """Hosts h1, h2, ... on one switch. `rate` is what every port lets through each way, in tc's words ("1gbit")."""

    hosts: int
    rate: str | None = None
    members: list[Host] = field(default_factory=list)

    def __enter__(self) -> Self:
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

    def _build(self) -> None:
        switch = self._namespace("switch")
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        names = {number: f"10.77.0.{number}" for number in range(1, self.hosts + 1)}
        known = "127.0.0.1 localhost\n" + "".join(f"{address} h{number}\n" for number, address in names.items())
        for number, address in names.items():
            host = Host(f"h{number}", address, self._namespace(f"h{number}"))
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

    def _namespace(self, name: str) -> str:
        namespace = f"lockstep-{os.getpid()}-{name}"
        _ip("netns", "add", namespace)
        return namespace

    def _remove(self) -> None:
        for name in _namespaces(os.getpid()):
            _delete(name)
        self.members.clear()


def _limit(namespace: str, interface: str, rate: str) -> None:
    words = ["tc", "-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf", "rate", rate]
    words += ["burst", "128kb", "latency", "50ms"]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LockstepError(
            f"A rate of {rate} could not be set: {result.stderr.strip()}.", "For example 1gbit.", code=2
        )


def clean_up() -> None:
    """Removes what processes that are gone have left."""
    for name in _namespaces():
        found = _OURS.match(name)
        if found and not Path(f"/proc/{found[1]}").exists():
            _delete(name)


def _namespaces(process: int | None = None) -> list[str]:
    names = [line.split()[0] for line in _ip("netns", "list").splitlines() if line.strip()]
    found = ((name, _OURS.match(name)) for name in names)
    return [name for name, match in found if match and process in (None, int(match[1]))]


def _delete(name: str) -> None:
    for pid in _ip("netns", "pids", name).split():
        subprocess.run(["kill", "-9", pid], capture_output=True, check=False)
    _ip("netns", "delete", name)
    folder = Path("/etc/netns") / name
    (folder / "hosts").unlink(missing_ok=True)
    if folder.exists():
        folder.rmdir()
