"""Real processes with the variables of engines and platforms: they train together, or one sentence says why not."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import Tiny, command, emulated_network, lockstep, steps, weights
from lockstep.lab.emulated_network import INTERFACE, EmulatedHost, EmulatedNetwork
from lockstep.launch.fixed import find_free_port

SETTINGS = ("train.steps=4", "train.evaluate_every=null")
SSHD = shutil.which("sshd") or shutil.which("/usr/sbin/sshd")


@pytest.fixture(scope="module")
def plain(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two workers that the local launcher started."""
    run = tmp_path_factory.mktemp("plain")
    lockstep("train", tiny.config, *SETTINGS, "--workers", 2, "--run", run)
    return run


def check_same(run: Path, plain: Path) -> None:
    assert [line["loss"] for line in steps(run)] == [line["loss"] for line in steps(plain)]
    assert weights(run, 4) == weights(plain, 4)


def start(words: list[str], variables: dict[str, str], folder: Path | None = None) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        words, env=os.environ | variables, cwd=folder, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
    )


def finish(processes: list[subprocess.Popen[str]], code: int = 0) -> list[str]:
    """Returns what each process printed on stderr."""
    try:
        texts = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [code] * len(processes), "\n".join(texts)
    return texts


@emulated_network
def test_two_nodes_of_skypilot_train_as_two_workers_of_one_machine(tiny: Tiny, tmp_path: Path, plain: Path) -> None:
    with EmulatedNetwork(2) as network:
        common = {"SKYPILOT_NODE_IPS": "\n".join(host.address for host in network.members), "SKYPILOT_NUM_NODES": "2"}
        common |= {"SKYPILOT_TASK_ID": "sky-managed-1_nmt_1-0", "GLOO_SOCKET_IFNAME": INTERFACE}
        first, second = finish(
            [
                start(
                    host.command(command("train", tiny.config, *SETTINGS)),
                    common | {"SKYPILOT_NODE_RANK": str(rank)},
                    tmp_path,
                )
                for rank, host in enumerate(network.members)
            ]
        )
    assert first.startswith(
        "Started by SkyPilot (SKYPILOT_NODE_RANK, SKYPILOT_NUM_NODES, SKYPILOT_NODE_IPS): node 0 of 2"
    )
    assert "Started by torchrun" in first
    assert "Started by" not in second
    check_same(tmp_path / "runs" / "sky-managed-1_nmt_1-0", plain)


@contextmanager
def ssh_daemons(hosts: list[EmulatedHost], folder: Path) -> Iterator[str]:
    """Starts a real sshd on each host; yields the ssh command that connects to them."""
    Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    server, client = folder / "sshd_config", folder / "ssh_config"
    server.write_text(
        f"Port 4444\nHostKey {folder / 'host'}\nAuthorizedKeysFile {folder / 'user.pub'}\nStrictModes no\nUsePAM no\n"
        "PermitRootLogin prohibit-password\nPidFile none\n"
    )
    client.write_text(
        f"Host *\nPort 4444\nIdentityFile {folder / 'user'}\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
        "LogLevel ERROR\nConnectionAttempts 20\n"
    )
    daemons = [
        subprocess.Popen(host.command([str(SSHD), "-D", "-e", "-f", str(server)]), stderr=subprocess.PIPE, text=True)
        for host in hosts
    ]
    try:
        for daemon in daemons:
            assert daemon.stderr is not None
            assert "listening" in daemon.stderr.readline()
        yield f"ssh -F {client}"
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.communicate()


@emulated_network
@pytest.mark.skipif(SSHD is None or shutil.which("mpirun") is None, reason="needs openssh-server and openmpi-bin")
def test_mpirun_needs_no_address_of_the_first_host(tiny: Tiny, tmp_path: Path, plain: Path) -> None:
    with EmulatedNetwork(3) as network, ssh_daemons(network.members, tmp_path) as ssh:
        words = [
            "mpirun",
            "--allow-run-as-root",
            "--mca",
            "plm_rsh_agent",
            ssh,
            "--mca",
            "oob_tcp_if_include",
            INTERFACE,
        ]
        words += ["-x", "PYTHONPATH", "-x", f"GLOO_SOCKET_IFNAME={INTERFACE}"]
        train = command("train", tiny.config, *SETTINGS, "--run", tmp_path / "run")
        here, first, *_ = network.members
        (text,) = finish([start(here.command([*words, "-n", "2", "-H", "h1:1,h2:1", *train]), {})])
        assert "rendezvous at 10.77.0.1:" in text
        check_same(tmp_path / "run", plain)
        elsewhere = here.command([*words, "-n", "2", "-H", "h2:1,h3:1", *train])
        (text,) = finish([start(elsewhere, {})], code=2)
        assert "Process 0 of Open MPI runs on h2, but OMPI_MCA_orte_hnp_uri names 10.77.0.1" in text
        assert "-x MASTER_ADDR=h2" in text
        assert first.name == "h2"


@pytest.mark.slow
def test_tasks_of_slurm_train_together(tiny: Tiny, tmp_path: Path, plain: Path) -> None:
    common = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"}
    common |= {"SLURM_NODEID": "0", "SLURM_STEP_NODELIST": "here", "SLURM_STEP_TASKS_PER_NODE": "2"}
    train = command("train", tiny.config, *SETTINGS, "--run", tmp_path)
    ranks = [{"SLURM_PROCID": rank, "SLURM_LOCALID": rank} for rank in ("0", "1")]
    first, second = finish([start(train, common | rank) for rank in ranks])
    assert first.startswith("Started by Slurm (SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_NODELIST)")
    assert "Started by" not in second
    check_same(tmp_path, plain)


def test_those_who_did_not_come_are_named(tiny: Tiny, tmp_path: Path) -> None:
    common = {"WORLD_SIZE": "4", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_free_port())}
    train = command("train", tiny.config, "train.timeout_seconds=8", "train.stall_seconds=4", "--run", tmp_path)
    first, _ = finish([start(train, common | {"RANK": rank}) for rank in ("0", "2")], code=1)
    assert "2 of 4 processes joined at 127.0.0.1:" in first
    assert "Missing: 1, 3." in first
    assert "set MASTER_ADDR to the first machine" in first


def test_a_node_that_is_left_alone_says_so(tiny: Tiny, tmp_path: Path) -> None:
    sky = {"SKYPILOT_NODE_RANK": "0", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.2"}
    train = command("train", tiny.config, "train.timeout_seconds=2", "train.stall_seconds=1", "--run", tmp_path)
    (text,) = finish([start(train, sky | {"MASTER_PORT": str(find_free_port())})], code=1)
    assert "Error: 1 of 2 nodes joined at 127.0.0.1:" in text
    assert "Traceback" not in text


@pytest.mark.slow
def test_parameter_servers_of_vertex_are_the_last_processes(tiny: Tiny, tmp_path: Path) -> None:
    address = [f"127.0.0.1:{find_free_port()}"]
    pools = {f"workerpool{number}": address for number in range(4)}
    settings = ("strategy.name=server", "strategy.servers=1", "train.device=cpu", *SETTINGS)
    texts = finish(
        [
            start(
                command("train", tiny.config, *settings, "--workers", workers, "--run", tmp_path),
                {"CLUSTER_SPEC": json.dumps({"cluster": pools, "task": {"type": pool, "index": 0}})},
            )
            for pool, workers in zip(pools, (2, 1, 1, 1), strict=True)
        ]
    )
    assert "3 workers (server)" in texts[0]
    assert "nothing to do for an evaluator" in texts[3]
    assert len(steps(tmp_path)) == 4


def test_the_doctor_names_the_environment() -> None:
    sky = {"SKYPILOT_NODE_RANK": "0", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}
    for variables, level, says in (
        ({}, "pass", "No engine has started this process"),
        (sky, "pass", "Started by SkyPilot (SKYPILOT_NODE_RANK,"),
        (sky | {"SKYPILOT_NUM_NODES": "3"}, "fail", "SKYPILOT_NUM_NODES is 3, but SKYPILOT_NODE_IPS has 2 addresses"),
    ):
        words = command("doctor", "--quick", "--json", "--python", sys.executable)
        result = subprocess.run(words, env=os.environ | variables, capture_output=True, text=True, check=False)
        finding = json.loads(result.stdout)["findings"][0]
        assert (finding["check"], finding["level"]) == ("environment", level)
        assert says in finding["what"]
        assert result.returncode == 1 or level == "pass"
