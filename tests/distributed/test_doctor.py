"""The doctor names the machine and the cause: emulated hosts, each with one thing wrong."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conftest import Tiny, command, emulated_network
from lockstep.lab.emulated_network import INTERFACE, EmulatedHost, EmulatedNetwork

pytestmark = emulated_network
GROUPS = Path("/sys/fs/cgroup")
SHOW_GROUPS = (
    f"mkdir -p {GROUPS}; mount -t tmpfs groups {GROUPS}; mkdir {GROUPS}/cpu; mount -t cgroup -o cpu cpu {GROUPS}/cpu"
)
"""A network namespace of iproute2 has a /sys of its own, without the control groups."""
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


@dataclass
class Clinic:
    """Two hosts, and what is different on them. A script takes the place of ssh."""

    folder: Path
    network: EmulatedNetwork
    environment: dict[str, dict[str, str]] = field(default_factory=dict)  # by host
    preparation: dict[str, str] = field(default_factory=dict)  # shell commands on a host
    entry: dict[str, str] = field(default_factory=dict)  # shell commands before it is entered
    options: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def examine(self) -> list[tuple[str, str, str]]:
        """Returns level, host and sentence of every finding that is not good."""
        script = self.folder / "ssh"
        cases = "".join(f"{host.name}) {self._enter(host)} ;;\n" for host in self.network.members)
        script.write_text(
            f'#!/bin/bash\nhost="${{@: -2:1}}" program="${{@: -1}}"\ncase "$host" in\n{cases}esac\n', encoding="utf-8"
        )
        script.chmod(0o755)
        hosts = self.folder / "hosts.txt"
        hosts.write_text("".join(f"{host.name} address={host.address}\n" for host in self.network.members))
        words = command("doctor", *self.words, "--hosts", hosts, "--ssh", script, "--json", *self.options)
        result = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert result.stderr == ""
        findings = json.loads(result.stdout)["findings"]
        bad = [(one["level"], one["host"], one["what"]) for one in findings if one["level"] in ("warn", "fail")]
        assert result.returncode == int(any(level == "fail" for level, *_ in bad))
        return bad

    def _enter(self, host: EmulatedHost) -> str:
        variables = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")} | self.environment.get(host.name, {})
        given = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        inside = f"{self.preparation.get(host.name, ':')}; exec env {given} $1"
        words = shlex.join(host.command(["bash", "-c", inside, "bash"]))
        return f'{self.entry.get(host.name, ":")}; exec {words} "$program"'


@contextmanager
def control_group(controller: str, **values: object) -> Iterator[str]:
    """Makes a control group; yields the shell command that enters it."""
    folder = GROUPS / controller / f"lockstep-{os.getpid()}"
    if not (GROUPS / controller).is_dir():
        pytest.skip("this machine has no control groups of version 1")
    folder.mkdir()
    try:
        for name, value in values.items():
            (folder / name.replace("__", ".")).write_text(str(value))
        yield f"echo $$ > {folder}/cgroup.procs"
    finally:
        folder.rmdir()


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Clinic]:
    with EmulatedNetwork(2) as network:
        yield Clinic(tmp_path, network, options=["--quick", "--run", str(tmp_path / "run")])


def test_nothing_is_found_where_nothing_is_wrong(clinic: Clinic) -> None:
    clinic.options.remove("--quick")
    bad = clinic.examine()
    assert [one for one in bad if "GFLOP/s" not in one[2]] == [], "the speeds of two busy cores may differ"


def test_another_version_of_torch(clinic: Clinic) -> None:
    fake = clinic.folder / "fake" / "torch-2.12.0.dist-info"
    fake.mkdir(parents=True)
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.12.0\n")
    clinic.environment["h2"] = {"PYTHONPATH": f"{fake.parent}:{os.environ.get('PYTHONPATH', '')}"}
    ((level, host, what),) = clinic.examine()
    assert (level, host) == ("fail", "h2")
    assert what.startswith("h2 has torch 2.12.0; h1 2.13.0")


def test_a_slow_disk(clinic: Clinic) -> None:
    image, place = clinic.folder / "image", clinic.folder / "disk"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    place.mkdir()
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        device = os.stat(place).st_dev
        limit = f"{os.major(device)}:{os.minor(device)} 4000000"
        with control_group("blkio", blkio__throttle__write_bps_device=limit) as enter:
            clinic.entry["h2"] = enter
            clinic.options[-1] = str(place / "run")
            slow = [one for one in clinic.examine() if "MB/s" in one[2]]
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
    ((level, host, what),) = slow
    assert (level, host) == ("fail", "h2")
    assert what.startswith(f"h2:{place} takes ")
    assert "a checkpoint of 1 GB would need" in what


def test_a_slow_link(clinic: Clinic) -> None:
    switch = clinic.network.members[0].namespace.removesuffix("h1") + "switch"
    for namespace, interface in ((clinic.network.members[1].namespace, INTERFACE), (switch, "port2")):
        shape = ["qdisc", "add", "dev", interface, "root", "tbf", "rate", "10mbit", "burst", "32kb", "latency", "50ms"]
        subprocess.run(["tc", "-n", namespace, *shape], check=True)
    bad = [one for one in clinic.examine() if "round trip" not in one[2]]
    assert {(level, host) for level, host, _ in bad} == {("fail", "h1"), ("fail", "h2")}
    assert all("Mbit/s only." in what for *_, what in bad)


def test_a_wrong_interface(clinic: Clinic) -> None:
    clinic.environment["h2"] = {"GLOO_SOCKET_IFNAME": "eth7"}
    ((level, host, what),) = clinic.examine()
    assert (level, host) == ("fail", "h2")
    assert what.startswith("h2 has no interface eth7 (GLOO_SOCKET_IFNAME); it has lo (127.0.0.1")
    assert "eth0 (10.77.0.2, " in what


def test_the_first_host_resolves_to_the_machine_itself(clinic: Clinic) -> None:
    clinic.environment["h2"] = {"GLOO_SOCKET_IFNAME": "lo"}
    ((level, host, what),) = clinic.examine()
    assert (level, host, what) == ("fail", "h2", "lo (GLOO_SOCKET_IFNAME) on h2 reaches only h2 itself.")


def test_a_port_that_is_blocked_one_way(clinic: Clinic) -> None:
    """What h1 answers from the port of the rendezvous is dropped."""
    rule = ["rule", "add", "pref", "10", "ipproto", "tcp", "sport", "29400", "blackhole"]
    subprocess.run(["ip", "-n", clinic.network.members[0].namespace, *rule], check=True)
    ((level, host, what),) = clinic.examine()
    assert (level, host) == ("fail", "h1")
    assert what == (
        "h2 does not reach h1 at 10.77.0.1:29400 (the rendezvous): nothing answers (a firewall?). "
        "The other direction works: h1 reaches h2."
    )


def test_another_corpus(clinic: Clinic, tiny: Tiny) -> None:
    other = clinic.folder / "other"
    shutil.copytree(tiny.folder / "corpus", other)
    index = json.loads((other / "corpus.json").read_text())
    (other / "corpus.json").write_text(json.dumps(index | {"digest": "0" * 64}))
    clinic.preparation["h2"] = f"mount --bind {other} {tiny.folder / 'corpus'}"
    clinic.words = [str(tiny.config)]
    ((level, host, what),) = clinic.examine()
    assert (level, host) == ("fail", "h2")
    assert what == f"h2 has another corpus in {tiny.folder / 'corpus'} than h1."


def test_a_core_at_a_fifth_of_its_speed(clinic: Clinic) -> None:
    clinic.options.remove("--quick")
    with control_group("cpu", cpu__cfs_period_us=100_000, cpu__cfs_quota_us=20_000) as enter:
        clinic.entry["h2"], clinic.preparation["h2"] = enter, SHOW_GROUPS
        for host in ("h1", "h2"):
            clinic.environment[host] = {"OMP_NUM_THREADS": "1"}
        bad = clinic.examine()
    assert {host for _, host, _ in bad} == {"h2"}
    assert any("GFLOP/s, the fastest one" in what for *_, what in bad)
    assert any("its control group grants 0.2 cores" in what for *_, what in bad)


def test_a_clock_that_is_a_minute_off(clinic: Clinic) -> None:
    if FAKETIME is None:
        pytest.skip("the package faketime is not installed")
    clinic.environment["h2"] = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": "+60s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    ((level, host, what),) = clinic.examine()
    assert (level, host) == ("fail", "h2")
    assert what.startswith(("The clock of h2 is 60.0 s ahead of that of h1", "The clock of h2 is 59.9 s"))


def test_too_many_threads_for_the_quota(clinic: Clinic) -> None:
    with control_group("cpu", cpu__cfs_period_us=100_000, cpu__cfs_quota_us=150_000) as enter:
        clinic.entry["h2"], clinic.preparation["h2"] = enter, SHOW_GROUPS
        clinic.environment["h2"] = {"OMP_NUM_THREADS": "8"}
        ((level, host, what),) = clinic.examine()
    assert (level, host) == ("fail", "h2")
    assert what == "h2 would run 8 threads (OMP_NUM_THREADS=8, 1 worker), but its control group grants 1.5 cores."


def test_a_run_folder_that_is_not_shared(clinic: Clinic) -> None:
    (clinic.folder / "run").mkdir()
    clinic.preparation["h2"] = f"mount -t tmpfs private {clinic.folder / 'run'}"
    ((level, host, what),) = [one for one in clinic.examine() if "GB free" not in one[2]]
    assert (level, host) == ("warn", "h2")
    assert what == "h2 does not see the run folder of h1: it is not shared."


def test_a_machine_that_does_not_answer_is_named(clinic: Clinic) -> None:
    clinic.preparation["h2"] = "echo 'ssh: connect to host h2 port 22: Connection refused' >&2; exit 255"
    ((level, host, what),) = clinic.examine()
    assert (level, host) == ("fail", "h2")
    assert what == "The connection to h2 is gone: ssh: connect to host h2 port 22: Connection refused."
