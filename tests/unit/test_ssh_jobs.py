"""Launches over ssh, without ssh: the printed script, ranks, files that are sent, output and state."""

import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.files import digest
from lockstep.hosts.agent_channel import AgentChannel
from lockstep.hosts.hosts_file import Host
from lockstep.jobs.job import Job
from lockstep.jobs.kind import JobState
from lockstep.jobs.over_ssh.host_output import TRACE, HostOutput
from lockstep.jobs.over_ssh.launch_state import LaunchState, describe_own, read_launch_state, write_state
from lockstep.jobs.over_ssh.script import parse_script, print_script
from lockstep.jobs.over_ssh.send_files import PART_BYTES, read_payload, send_payload
from lockstep.jobs.over_ssh.torchrun_command import list_ranks, make_commands, name_ranks, order_addresses

HOSTS = (Host("node1", 2, 4444), Host("node2", 2, user="me"))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    config, corpus = tmp_path / "my.yaml", tmp_path / "corpus"
    config.write_text("{}")
    corpus.mkdir()
    (corpus / "corpus.json").write_text("{}")
    (corpus / "large").write_bytes(os.urandom(3 * PART_BYTES + 17))
    return Job(
        "first", str(config), ("train.steps=9",), "/runs/first", 2, 2, hosts=HOSTS, restarts=3, files=(str(corpus),)
    )


@pytest.fixture
def channel() -> Iterator[AgentChannel]:
    with AgentChannel("here", [sys.executable, "-m", "lockstep.hosts.agent"]) as channel:
        channel.wait_for_hello()
        yield channel


def test_the_printed_script_starts_torchrun_once_on_every_host(job: Job) -> None:
    text = print_script(job)
    first, second = parse_script(text)
    assert [first.words, second.words] == [command.words for command in make_commands(job)]
    assert (first.node, second.node) == (0, 1)
    assert (first.names, second.names) == (("node1",), ("node2",))
    words = " ".join(first.words)
    assert "--nnodes 2 --nproc-per-node 2 --max-restarts 3 --rdzv-backend c10d --rdzv-endpoint node1:29400" in words
    assert "keep_alive_max_attempt=3,is_host=true --local-addr node1 -m lockstep -- train /" in words
    assert words.endswith("my.yaml train.steps=9 --run /runs/first")
    assert "is_host=false --local-addr node2" in " ".join(second.words)
    assert first.variables["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert first.variables["LOCKSTEP_SECRET"] == second.variables["LOCKSTEP_SECRET"] not in text
    assert "-p 4444 node1 " in text
    assert " me@node2 " in text


def test_the_interface_is_named_to_torch(job: Job) -> None:
    (first, _) = parse_script(print_script(replace(job, interface="eth1")))
    assert (first.variables["GLOO_SOCKET_IFNAME"], first.variables["NCCL_SOCKET_IFNAME"]) == ("eth1", "eth1")


def test_a_text_that_is_no_script_is_refused(job: Job) -> None:
    with pytest.raises(LockstepError, match="makes no secret"):
        parse_script("#!/bin/sh\n")
    with pytest.raises(LockstepError, match="does not read the secret"):
        parse_script(print_script(job).replace("read -r LOCKSTEP_SECRET", "true"))


@pytest.mark.parametrize(
    ("names", "first"),
    [
        (["node1", "node2"], "node1"),
        (["node2", "node1", "node10"], "NODE2"),
        (["10.0.0.2", "10.0.0.1"], "0x0a000002"),
        (["fd00::2", "fd00::1"], "FD00::2"),
    ],
)
def test_the_first_host_gets_worker_0(names: list[str], first: str) -> None:
    assert order_addresses(names) == [first, *names[1:]]
    assert min(order_addresses(names)) == first


def test_hosts_that_torchrun_would_order_otherwise_are_refused() -> None:
    with pytest.raises(LockstepError, match=r"would not give worker 0 to node1.*Put 10\.0\.0\.1 first"):
        order_addresses(["node1", "10.0.0.1"])


def test_servers_have_the_last_ranks(job: Job) -> None:
    ranks = list_ranks(make_commands(replace(job, servers=1)))
    assert ranks == {"node1": [0, 1], "node2": [2, 3, 4]}
    assert name_ranks(ranks["node2"], workers=4) == "Workers 2, 3, Server 0"


def test_fewer_hosts_are_enough_if_the_user_says_so(job: Job) -> None:
    assert "1:2" in make_commands(replace(job, options=(("least-nodes", "1"),)))[0].words
    with pytest.raises(LockstepError, match=r"least-nodes=3 does not fit 2 hosts"):
        make_commands(replace(job, options=(("least-nodes", "3"),)))


def test_files_are_sent_once_and_continued_after_an_interruption(
    job: Job, channel: AgentChannel, tmp_path: Path
) -> None:
    there = tmp_path / "there" / "corpus"
    payload = read_payload(Path(job.files[0]), there)
    told: list[str] = []
    parts: list[int] = []

    def interrupt_after_three() -> None:
        parts.append(1)
        if len(parts) > 3:
            raise LockstepError("Stopped.")

    with pytest.raises(LockstepError, match=r"Stopped\."):
        send_payload(channel, payload, told.append, interrupt_after_three)
    assert not there.exists(), "it is visible when it is whole"
    begun = channel.ask("begin files", place=str(there), files=payload.as_json(), digest=payload.digest)
    assert isinstance(begun, dict)
    assert begun["large"] == [2 * PART_BYTES, digest_of(payload.source / "large", 2 * PART_BYTES)]
    parts.clear()
    send_payload(channel, payload, told.append, lambda: parts.append(1))
    assert len(parts) == 3, "the rest of the large file, and the end of the small one"
    assert {path.name for path in there.iterdir()} == {"corpus.json", "large"}
    assert digest(there / "large", "sha256") == digest(payload.source / "large", "sha256")
    assert [path.name for path in there.parent.iterdir()] == ["corpus"]
    parts.clear()
    send_payload(channel, payload, told.append, lambda: parts.append(1))
    assert parts == []
    assert told == ["Sending corpus (3.1 MB) to here."] * 2


def test_what_was_there_before_is_kept(job: Job, channel: AgentChannel, tmp_path: Path) -> None:
    there, told = tmp_path / "there.yaml", list[str]()
    there.write_text("own: work")
    send_payload(channel, read_payload(Path(job.config), there), told.append)
    assert there.read_text() == "{}"
    assert (tmp_path / "there.yaml.replaced").read_text() == "own: work"
    assert told[-1] == f"here had another {there}: it is now {there}.replaced."


def test_what_is_damaged_on_the_way_is_not_put_in_its_place(job: Job, channel: AgentChannel, tmp_path: Path) -> None:
    there = tmp_path / "there.yaml"
    payload = read_payload(Path(job.config), there)
    Path(job.config).write_text("[]")  # as long, and another content
    with pytest.raises(LockstepError, match=r"What arrived for .*there\.yaml is damaged"):
        send_payload(channel, payload, lambda sentence: None)
    assert not list(tmp_path.glob("*there*"))
    assert not list(tmp_path.glob(".*there*"))


def digest_of(path: Path, length: int) -> str:
    return hashlib.sha256(path.read_bytes()[:length]).hexdigest()


def test_nothing_is_sent_to_a_full_disk(channel: AgentChannel, tmp_path: Path) -> None:
    files: dict[str, JsonValue] = {"large": [10**15, "0" * 64]}
    with pytest.raises(LockstepError, match=r"needs 1,000,000\.1 GB, and the disk has"):
        channel.ask("begin files", place=str(tmp_path / "corpus"), files=files, digest="0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_torch_talks_to_the_file_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        TRACE,
        "KeyError: of Lockstep",
        "W1119 21:47:55.821081 12 torch/run.py:1] something",
        "[W1119 21:47:55.821081287 socket.cpp:207] [c10d] something else",
        TRACE,
        '  File "run.py", line 1, in <module>',
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        "lockstep FAILED",
        "Root Cause (first observed failure):",
        "=" * 60,
        "step 3: loss 1.0",
    ]
    with HostOutput(tmp_path / "log", ["h1", "node2"]) as output:
        for line in lines:
            output.write("h1", line)
        output.write("node2", "\x1b[2Jdone", "stdout")
        output.say("The run is in h1:/runs/first.")
    shown = capsys.readouterr()
    assert (
        shown.err
        == f"h1    | {TRACE}\nh1    | KeyError: of Lockstep\nh1    | step 3: loss 1.0\nThe run is in h1:/runs/first.\n"
    )
    assert shown.out == "node2 | [2Jdone\n"
    assert len((tmp_path / "log").read_text().splitlines()) == len(lines) + 2


def test_a_launch_whose_command_was_killed_has_failed(tmp_path: Path) -> None:
    write_state(tmp_path / "state", describe_own())
    assert read_launch_state(tmp_path / "state").state == JobState.RUNNING
    write_state(tmp_path / "state", LaunchState(os.getpid(), start=1))
    assert read_launch_state(tmp_path / "state").state == JobState.FAILED
