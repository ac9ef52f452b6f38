"""A launch over ssh: real sshd on emulated hosts that share nothing."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import Tiny, children, lockstep, steps, wait_until_dead
from lockstep.lab.emulated_network import EmulatedHost
from ssh_hosts import PORT, SshHosts, launch, needs_sshd, ssh_hosts

pytestmark = needs_sshd
RESTARTS = ("train.steps=200", "train.checkpoint_every=5", "train.evaluate_every=null", "train.restarts=3")
LONG = ("train.steps=100000", "train.checkpoint_every=10", "train.evaluate_every=null")


@pytest.fixture(scope="module")
def hosts(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with ssh_hosts(tmp_path_factory.mktemp("hosts"), 3, tiny.folder) as hosts:
        yield hosts


@pytest.fixture
def run(hosts: SshHosts, request: pytest.FixtureRequest) -> Path:
    return hosts.private / str(request.node.name)


def read_steps(hosts: SshHosts, run: Path, attempt: int = 1) -> list[dict[str, object]]:
    """The steps that are in the run folder of the first host."""
    text = hosts.read(hosts.members[0], run / "journal" / "worker-0000.jsonl")
    lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    return [line for line in lines if line["kind"] == "step" and line["attempt"] == attempt]


def wait_until(is_true: Callable[[], object], process: subprocess.Popen[str], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "not within two minutes"
        time.sleep(0.1)


def find_words(words: str) -> bool:
    """Whether a process of the machine, and so of any host, has these words in its command line."""
    pids = [path.name for path in Path("/proc").iterdir() if path.name.isdecimal()]
    texts = []
    for pid in pids:
        try:
            texts.append(Path(f"/proc/{pid}/cmdline").read_text(errors="replace"))
        except OSError:
            continue
    return any(words in text for text in texts)


def kill_program(hosts: SshHosts, host: EmulatedHost, words: str) -> None:
    """Kills the process of a host that has these words in its command line, and not in a shell's."""
    (pid,) = [one.split()[0] for one in hosts.list_leftovers(host) if words in one and " -c " not in one]
    os.kill(int(pid), signal.SIGKILL)


def test_three_hosts_that_share_nothing_train_as_one_machine(
    tiny: Tiny, hosts: SshHosts, run: Path, tmp_path: Path
) -> None:
    with launch(hosts, tiny, run, "train.restarts=1", "model.dropout=0") as process:
        out, err = process.communicate(timeout=200)
    assert process.returncode == 0, out + err
    first, second, third = hosts.members
    assert "Sending corpus" in err
    assert "h1 | step 8: loss" in err
    assert "finished at step 8" in out
    assert err.splitlines()[-1] == f"The run is in h1:{run}."
    lockstep("train", tiny.config, "model.dropout=0", "--workers", 3, "--run", tmp_path / "local")
    for one, other in zip(read_steps(hosts, run), steps(tmp_path / "local"), strict=True):
        assert (one["step"], one["batch"]) == (other["step"], other["batch"])
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-5)
    assert hosts.read(first, run / "report.md")
    assert not hosts.read(second, run / "config.yaml") + hosts.read(third, run / "config.yaml"), "the folder is shared"
    hosts.wait_until_clean()


def test_kill_9_of_the_command_ends_everything_everywhere(tiny: Tiny, hosts: SshHosts, run: Path) -> None:
    with launch(hosts, tiny, run, *LONG) as process:
        wait_until(lambda: len(read_steps(hosts, run)) > 3, process)
        assert all(any("lockstep" in one for one in hosts.list_leftovers(host)) for host in hosts.members)
        ssh = children(process.pid)
        process.kill()
        process.wait()
        hosts.wait_until_clean()
        wait_until_dead(ssh)


def test_ctrl_c_saves_and_ends_everything_everywhere(tiny: Tiny, hosts: SshHosts, run: Path) -> None:
    with launch(hosts, tiny, run, *LONG) as process:
        wait_until(lambda: len(read_steps(hosts, run)) > 3, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Sending" not in err, "the corpus was there already"
    assert "Stopped at step" in err
    last = max(int(str(step["step"])) for step in read_steps(hosts, run))
    assert hosts.read(hosts.members[0], run / "checkpoints" / f"step-{last:08d}" / "manifest.json")
    hosts.wait_until_clean()


def test_a_host_with_another_key_is_refused(tiny: Tiny, hosts: SshHosts, run: Path) -> None:
    known = hosts.folder / "known_hosts"
    before = known.read_text()
    lines = {line.split()[0]: line for line in before.splitlines()}
    other = lines[f"[h1]:{PORT}"].split(maxsplit=1)[1]
    known.write_text(before.replace(lines[f"[h2]:{PORT}"], f"[h2]:{PORT} {other}"))
    try:
        with launch(hosts, tiny, run) as process:
            _, err = process.communicate(timeout=60)
    finally:
        known.write_text(before)
    assert process.returncode == 1
    assert "Error: The connection to h2 is gone: Host key verification failed." in err
    hosts.wait_until_clean()


@pytest.mark.slow
def test_a_host_that_was_cut_is_named_and_comes_back(tiny: Tiny, hosts: SshHosts, run: Path) -> None:
    third = hosts.members[2]
    with launch(hosts, tiny, run, *RESTARTS) as process:
        wait_until(lambda: len(read_steps(hosts, run)) > 10, process)
        with hosts.cut(third):
            wait_until(lambda: "is lost" in hosts.read_log(), process)
            wait_until(lambda: not hosts.list_leftovers(third, is_cut=True), process)
        out, err = process.communicate(timeout=200)
    assert process.returncode == 0, out + err
    assert "Host h3 (Worker 2) is lost." in err
    assert "Host h3 is back." in err
    assert "finished at step 200" in out
    assert read_steps(hosts, run, attempt=2)
    hosts.wait_until_clean()


@pytest.mark.slow
def test_without_restarts_a_host_that_was_cut_ends_the_launch(tiny: Tiny, hosts: SshHosts, run: Path) -> None:
    third = hosts.members[2]
    with launch(hosts, tiny, run, *LONG, "train.restarts=0") as process:
        wait_until(lambda: len(read_steps(hosts, run)) > 3, process)
        with hosts.cut(third):
            _, err = process.communicate(timeout=100)
            hosts.wait_until_clean(third)
    assert process.returncode == 1
    assert "Error: Host h3 (Worker 2) is lost." in err
    assert "No restart is left (train.restarts=0)." in err


@pytest.mark.slow
def test_where_torchrun_or_its_agent_was_killed_it_starts_again(tiny: Tiny, hosts: SshHosts, run: Path) -> None:
    with launch(hosts, tiny, run, *RESTARTS) as process:
        wait_until(lambda: len(read_steps(hosts, run)) > 10, process)
        kill_program(hosts, hosts.members[1], "torch.distributed.run")
        wait_until(lambda: len(read_steps(hosts, run, attempt=2)) > 10, process)
        kill_program(hosts, hosts.members[2], "lockstep.hosts.agent")
        out, err = process.communicate(timeout=200)
    assert process.returncode == 0, out + err
    assert "Host h2 (Worker 1) is lost. torchrun was killed by SIGKILL." in err
    assert "Host h3 (Worker 2) is lost." in err
    assert "Host h3 is back." in err
    assert "finished at step 200" in out
    hosts.wait_until_clean()


@pytest.mark.slow
def test_with_fewer_hosts_the_training_continues(tiny: Tiny, hosts: SshHosts, run: Path) -> None:
    with launch(hosts, tiny, run, *RESTARTS, "--with", "least-nodes=2") as process:
        wait_until(lambda: len(read_steps(hosts, run)) > 10, process)
        with hosts.cut(hosts.members[2]):
            out, err = process.communicate(timeout=200)
            hosts.wait_until_clean(hosts.members[2])
    assert process.returncode == 0, out + err
    assert "The others continue without it" in err
    assert "finished at step 200" in out
    hosts.wait_until_clean()


@pytest.mark.slow
def test_without_its_first_host_the_launch_ends(tiny: Tiny, hosts: SshHosts, run: Path) -> None:
    with launch(hosts, tiny, run, *LONG) as process:
        wait_until(lambda: len(read_steps(hosts, run)) > 3, process)
        with hosts.cut(hosts.members[0]):
            _, err = process.communicate(timeout=100)
            hosts.wait_until_clean(hosts.members[0])
    assert process.returncode == 1
    assert "Error: Host h1 (Worker 0) is lost." in err
    assert "The launch ends, because its rendezvous is there." in err


@pytest.mark.slow
def test_a_time_limit_ends_the_launch_and_is_no_failure(tiny: Tiny, hosts: SshHosts, run: Path) -> None:
    with launch(hosts, tiny, run, *LONG, "train.max_hours=0.004", "train.restarts=3") as process:
        _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert "train.max_hours is nearly over" in err
    assert not read_steps(hosts, run, attempt=2)
    hosts.wait_until_clean()


@pytest.mark.slow
def test_another_terminal_follows_and_cancels(tiny: Tiny, hosts: SshHosts, run: Path) -> None:
    state = str(hosts.folder / "state")
    with launch(hosts, tiny, run, *LONG, "--name", "long") as process:
        wait_until(lambda: len(read_steps(hosts, run)) > 3, process)
        assert (
            json.loads(lockstep("jobs", "status", "long", "--json", LOCKSTEP_STATE=state).stdout)["state"] == "running"
        )
        assert "h1 | Starting" in lockstep("jobs", "logs", "long", LOCKSTEP_STATE=state).stdout
        lockstep("jobs", "cancel", "long", LOCKSTEP_STATE=state)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert json.loads(lockstep("jobs", "status", "long", "--json", LOCKSTEP_STATE=state).stdout)["state"] == "cancelled"
    hosts.wait_until_clean()


@pytest.mark.slow
def test_a_lost_terminal_ends_everything_in_order(tiny: Tiny, hosts: SshHosts, run: Path) -> None:
    with launch(hosts, tiny, run, *LONG) as process:
        wait_until(lambda: len(read_steps(hosts, run)) > 3, process)
        assert process.stderr is not None
        process.stderr.close()
        process.send_signal(signal.SIGHUP)
        process.wait(timeout=60)
    assert process.returncode == 129
    last = max(int(str(step["step"])) for step in read_steps(hosts, run))
    assert hosts.read(hosts.members[0], run / "checkpoints" / f"step-{last:08d}" / "manifest.json")
    hosts.wait_until_clean()


@pytest.mark.slow
def test_the_secret_is_in_no_command_line_and_no_file(tiny: Tiny, hosts: SshHosts, run: Path) -> None:
    with launch(hosts, tiny, run, *LONG) as process:
        wait_until(lambda: len(read_steps(hosts, run)) > 3, process)
        pids = subprocess.run(
            ["ip", "netns", "pids", hosts.members[1].namespace], capture_output=True, text=True, check=True
        ).stdout.split()
        environments = [Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in pids]
        secrets = {one for own in environments for one in own if one.startswith(b"LOCKSTEP_SECRET=")}
        (secret,) = [one.partition(b"=")[2].decode() for one in secrets]
        assert len(secret) == 64
        assert not find_words(secret)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert secret not in out + err
    for host in hosts.members:
        found = subprocess.run(
            hosts.enter(host, "grep", "-rl", secret, str(hosts.private)), capture_output=True, check=False
        )
        assert found.stdout == b""
    assert subprocess.run(["grep", "-rl", secret, hosts.folder], capture_output=True, check=False).stdout == b""


@pytest.mark.slow
def test_the_printed_script_runs_here(tiny: Tiny, tmp_path: Path) -> None:
    words = ["launch", tiny.config, "train.steps=3", "--on", "ssh", "--hosts", "node1:1,node2:1"]
    run, state = tmp_path / "run", str(tmp_path / "state")
    result = lockstep(*words, "--run", run, "--pretend", "--json", LOCKSTEP_STATE=state)
    facts = json.loads(result.stdout)
    assert (facts["steps"], facts["workers"], facts["hosts"]) == (3, 2, 2), result.stderr
    assert len(steps(Path(facts["run"]))) == 3
