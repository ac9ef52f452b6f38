"""Emulated hosts with real sshd on port 4444, where nothing is shared: each has its own home, run and corpus folders."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import Tiny, command, emulated_network
from lockstep.lab.emulated_network import EmulatedHost, EmulatedNetwork

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
PORT = 4444
SLOW = "slow:phase=backward:ms=40"
"""On every host: a test that looks at a training comes in time."""
needs_sshd = [
    emulated_network,
    pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="openssh-server is not installed"),
]


@dataclass
class SshHosts:
    """Hosts h1, h2, ... with sshd, and one more without, on which commands run."""

    folder: Path  # of keys and settings, and of nothing that a launch uses
    private: Path  # every host has a folder of its own here
    network: EmulatedNetwork
    servers: dict[str, subprocess.Popen[bytes]]

    @property
    def members(self) -> list[EmulatedHost]:
        return self.network.members[:-1]

    @property
    def console(self) -> EmulatedHost:
        return self.network.members[-1]

    @property
    def ssh(self) -> list[str]:
        return ["ssh", "-F", str(self.folder / "config")]

    def enter(self, host: EmulatedHost, *words: str) -> list[str]:
        """Returns the command that runs a program with the files and the processes of a host."""
        (inside,) = self._find_sshd(host)
        return ["nsenter", "--target", inside, "--mount", "--pid", "--", *words]

    def _find_sshd(self, host: EmulatedHost) -> list[str]:
        unshare = self.servers[host.name].pid
        words = ["pgrep", "-P", str(unshare)]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()

    def read(self, host: EmulatedHost, path: Path) -> str:
        return subprocess.run(self.enter(host, "cat", str(path)), capture_output=True, text=True, check=False).stdout

    def list_leftovers(self, host: EmulatedHost, is_cut: bool = False) -> list[str]:
        """Returns what a launch has left on a host: processes, also those of sshd for its connections, temporary files, and
        files in memory. Of a host that `is_cut` those of sshd do not count: it waits for TCP to give the connection up."""
        pids = subprocess.run(
            ["ip", "netns", "pids", host.namespace], capture_output=True, text=True, check=True
        ).stdout.split()
        main = {str(self.servers[host.name].pid), *self._find_sshd(host)}
        left = [describe_process(pid) for pid in pids if pid not in main]
        look = "ls /dev/shm; ls -A $0 | grep -e ^lockstep- -e ^torchelastic -e ^tmp"
        files = subprocess.run(self.enter(host, "sh", "-c", look, str(self.private)), capture_output=True, text=True)
        return [one for one in left if one and not (is_cut and "sshd:" in one)] + files.stdout.split()

    def wait_until_clean(self, cut: EmulatedHost | None = None, seconds: float = 40) -> None:
        """Waits until a launch has left nothing on any host."""
        deadline = time.monotonic() + seconds
        while left := {host.name: rest for host in self.members if (rest := self.list_leftovers(host, host is cut))}:
            assert time.monotonic() < deadline, f"left: {left}"
            time.sleep(0.1)

    def read_log(self) -> str:
        """Returns what the newest launch has said so far."""
        logs = (self.folder / "state" / "jobs").glob("*.log")
        return max(logs, key=lambda path: path.stat().st_mtime).read_text()

    @contextmanager
    def cut(self, host: EmulatedHost) -> Iterator[None]:
        """Cuts the cable of a host for the duration of the block."""
        link = ["ip", "-n", host.namespace, "link", "set", "eth0"]
        subprocess.run([*link, "down"], check=True)
        try:
            yield
        finally:
            subprocess.run([*link, "up"], check=True)


def describe_process(pid: str) -> str:
    """Returns number and command of a process; empty if it is gone."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
    return f"{pid} {command}" if command else ""


@contextmanager
def ssh_hosts(folder: Path, count: int, *private: Path) -> Iterator[SshHosts]:
    """Starts the hosts. On each, these folders and `folder/private`, where homes are, are its own and empty."""
    keys, homes = folder / "keys", folder / "private"
    for path in (keys, homes):
        path.mkdir()
    Path("/run/sshd").mkdir(exist_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / "user"], check=True)
    (keys / "authorized").write_text((keys / "user.pub").read_text())
    with EmulatedNetwork(count + 1) as network, ExitStack() as stack:
        servers = {}
        known = []
        for host in network.members[:-1]:
            key = keys / host.name
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
            words = key.with_suffix(".pub").read_text().split()
            known.append(f"[{host.name}]:{PORT} {words[0]} {words[1]}\n")
            servers[host.name] = _start_sshd(host, keys, [homes, *private], stack)
        (keys / "known_hosts").write_text("".join(known))
        (keys / "config").write_text(
            f"IdentityFile {keys / 'user'}\nIdentitiesOnly yes\nUserKnownHostsFile {keys / 'known_hosts'}\nUser root\n"
        )
        hosts = SshHosts(keys, homes, network, servers)
        _wait_for_sshd(hosts)
        yield hosts


def _start_sshd(host: EmulatedHost, keys: Path, private: list[Path], stack: ExitStack) -> subprocess.Popen[bytes]:
    variables = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "HOME": private[0], "TMPDIR": private[0]}
    variables["LOCKSTEP_FAULT"] = SLOW
    settings = {
        "Port": PORT,
        "HostKey": keys / host.name,
        "AuthorizedKeysFile": keys / "authorized",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "PidFile": "none",
        "SetEnv": " ".join(f"{name}={value}" for name, value in variables.items()),
    }
    config = keys / f"{host.name}.sshd"
    config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    mounts = "; ".join(f"mount -t tmpfs private {shlex.quote(str(place))}" for place in private)
    script = f'{mounts}; exec {SSHD} -D -e -f "$1"'
    log = stack.enter_context((keys / f"{host.name}.log").open("wb"))
    process = subprocess.Popen(
        host.command(["sh", "-c", script, "sh", str(config)]), stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )

    def end() -> None:
        process.kill()
        process.wait()

    stack.callback(end)
    return process


def _wait_for_sshd(hosts: SshHosts) -> None:
    probe = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"
    deadline = time.monotonic() + 20
    for host in hosts.members:
        words = ["ip", "netns", "exec", hosts.console.namespace, sys.executable, "-c", probe, host.address, str(PORT)]
        while subprocess.run(words, capture_output=True, check=False).returncode != 0:
            assert time.monotonic() < deadline, (hosts.folder / f"{host.name}.log").read_text()
            time.sleep(0.05)


@contextmanager
def launch(hosts: SshHosts, tiny: Tiny, run: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Starts a launch on the machine without sshd: the process is the command itself."""
    hosts_file = hosts.folder / "hosts.txt"
    hosts_file.write_text("".join(f"{host.name} slots=1 port={PORT}\n" for host in hosts.members))
    own = ["launch", tiny.config, *words, "--on", "ssh", "--hosts", hosts_file, "--run", run]
    program = command(*own, "--ssh", shlex.join(hosts.ssh))
    process = subprocess.Popen(
        ["ip", "netns", "exec", hosts.console.namespace, *program],
        env=os.environ | {"LOCKSTEP_STATE": str(hosts.folder / "state")},
        cwd=hosts.private,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
