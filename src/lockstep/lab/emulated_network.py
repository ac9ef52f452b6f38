"""Emulates the network of a cluster on one Linux machine: every host is a network namespace, connected by a bridge.

Needs root. The name of a namespace includes the process that made it, so the next start removes those of killed processes.
"""

import ipaddress
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
_OURS = re.compile(r"^lockstep-(\d+)-(\d+)-(\w+)$")  # process, its start time, name
_RATE = re.compile(r"^(\d+(?:\.\d+)?)([kmg]?)bit$")


def parse_rate(rate: str) -> float:
    """Returns the bits per second of a rate in the notation of tc, such as 1gbit."""
    match = _RATE.match(rate.lower())
    if match is None or not float(match[1]):
        raise LockstepError(f"{rate!r} is not the rate of a link.", "Write it as 100mbit, 1gbit or 2.5gbit.", code=2)
    return float(match[1]) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[match[2]]


def check_can_emulate() -> None:
    """Raises a LockstepError if this machine cannot emulate a network."""
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


def _run_ip(*words: str) -> str:
    result = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LockstepError(
            f"The emulated network could not be made: `ip {' '.join(words)}` failed with {result.stderr.strip()}.",
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
        """Returns the command that runs a program on this host, in new UTS, IPC and PID namespaces. Killing the command
        kills every process on the host."""
        inside = f'hostname {self.name}; mount -t tmpfs shm /dev/shm; export LOCKSTEP_EMULATED=1; exec "$@"'
        isolation = ["unshare", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return ["ip", "netns", "exec", self.namespace, *isolation, "sh", "-c", inside, "sh", *words]

    def read_counter(self, name: str, interface: str = INTERFACE) -> int:
        """Reads a counter of an interface, such as tx_bytes."""
        path = f"/sys/class/net/{interface}/statistics/{name}"
        return int(_run_ip("netns", "exec", self.namespace, "cat", path))


@dataclass
class EmulatedNetwork:
    """Hosts h1, h2, ... on one switch. `rate` limits every port in each direction, in the notation of tc ("1gbit")."""

    hosts: int
    rate: str | None = None
    members: list[EmulatedHost] = field(default_factory=list)

    def __enter__(self) -> Self:
        check_can_emulate()
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

    def read_sent_bytes(self) -> list[int]:
        """Returns the bytes that each host has sent so far, with headers, from the counters of the switch."""
        ports = json.loads(_run_ip("-json", "-statistics", "-netns", self._name("switch"), "link", "show"))
        received = {port["ifname"]: int(port["stats64"]["rx"]["bytes"]) for port in ports}
        return [received[f"port{number}"] for number in range(1, self.hosts + 1)]

    def name_hosts(self, names: Sequence[Sequence[str]], interface: str | None = None) -> None:
        """Gives every host further names or addresses, and another name to its interface."""
        for host in self.members if interface not in (None, "lo", INTERFACE) else []:
            assert interface is not None
            _run_ip("-n", host.namespace, "link", "set", INTERFACE, "down")
            _run_ip("-n", host.namespace, "link", "set", INTERFACE, "name", interface)
            _run_ip("-n", host.namespace, "link", "set", interface, "up")
        device = INTERFACE if interface in (None, "lo") else interface
        lines = ""
        for owner, own in zip(self.members, names, strict=True):
            for name in own:
                if not _is_address(name):
                    lines += f"{owner.address} {name}\n"
                    continue
                _run_ip("-n", owner.namespace, "address", "add", f"{name}/32", "dev", str(device))
                for other in self.members:
                    if other is not owner:
                        _run_ip("-n", other.namespace, "route", "add", f"{name}/32", "dev", str(device))
        for host in self.members:
            with (Path("/etc/netns") / host.namespace / "hosts").open("a") as file:
                file.write(lines)

    def _build(self) -> None:
        switch = self._add_namespace("switch")
        _run_ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _run_ip("-n", switch, "link", "set", "bridge", "up")
        addresses = {number: f"10.77.0.{number}" for number in range(1, self.hosts + 1)}
        hosts_file = "127.0.0.1 localhost\n" + "".join(
            f"{address} h{number}\n" for number, address in addresses.items()
        )
        for number, address in addresses.items():
            host = EmulatedHost(f"h{number}", address, self._add_namespace(f"h{number}"))
            self.members.append(host)
            port = f"port{number}"
            _run_ip(
                "-n", switch, "link", "add", port, "type", "veth", "peer", "name", INTERFACE, "netns", host.namespace
            )
            _run_ip("-n", switch, "link", "set", port, "master", "bridge", "up")
            _run_ip("-n", host.namespace, "address", "add", f"{address}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                _run_ip("-n", host.namespace, "link", "set", interface, "up")
            folder = Path("/etc/netns") / host.namespace  # `ip netns exec` mounts these files over /etc
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts").write_text(hosts_file)
            if self.rate is not None:
                _limit_rate(host.namespace, INTERFACE, self.rate)
                _limit_rate(switch, port, self.rate)

    def _name(self, name: str) -> str:
        return f"lockstep-{os.getpid()}-{_start_time(os.getpid())}-{name}"

    def _add_namespace(self, name: str) -> str:
        namespace = self._name(name)
        _run_ip("netns", "add", namespace)
        return namespace

    def _remove(self) -> None:
        for name, owner in _list_namespaces():
            if owner == os.getpid():
                _delete(name)
        self.members.clear()


def _is_address(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).version == 4
    except ValueError:
        return False


def _limit_rate(namespace: str, interface: str, rate: str) -> None:
    burst = max(128 * 1024, int(parse_rate(rate) / 8 * 0.001))  # bytes of a millisecond
    words = ["tc", "-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf", "rate", rate]
    words += ["burst", str(burst), "latency", "50ms"]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LockstepError(
            f"A rate of {rate} could not be set: {result.stderr.strip()}.", "Use a rate such as 1gbit.", code=2
        )


def clean_up() -> None:
    """Removes the namespaces of processes that no longer exist."""
    for name, owner in _list_namespaces():
        if owner is None:
            _delete(name)


def _list_namespaces() -> list[tuple[str, int | None]]:
    """Returns Lockstep's namespaces, each with the process that made it, or None if that process no longer exists."""
    names = [line.split()[0] for line in _run_ip("netns", "list").splitlines() if line.strip()]
    own = ((name, match) for name in names if (match := _OURS.match(name)))
    return [(name, int(match[1]) if _start_time(int(match[1])) == int(match[2]) else None) for name, match in own]


def _start_time(process: int) -> int:
    """Returns the start time of a process in kernel ticks, which distinguishes it from others with the same number, or 0 if
    there is no such process."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return 0


def _delete(name: str) -> None:
    for pid in _run_ip("netns", "pids", name).split():
        subprocess.run(["kill", "-9", pid], capture_output=True, check=False)
    _run_ip("netns", "delete", name)
    folder = Path("/etc/netns") / name
    (folder / "hosts").unlink(missing_ok=True)
    if folder.exists():
        folder.rmdir()
