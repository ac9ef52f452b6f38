"""A launch over ssh: real sshd on emulated hosts that share nothing."""

from pathlib import Path

import pytest

from conftest import Tiny
from ssh_hosts import launch, needs_sshd, ssh_hosts

pytestmark = needs_sshd


def test_three_hosts(tiny: Tiny, tmp_path: Path) -> None:
    with ssh_hosts(tmp_path, 3, tiny.folder) as hosts:
        run = hosts.private / "run"
        with launch(hosts, tiny, run) as process:
            out, err = process.communicate(timeout=200)
        print(out, err)
        assert process.returncode == 0
        hosts.wait_until_empty()
        print([hosts.list_processes(host) for host in hosts.members])
        for host in hosts.members: print(hosts.read(host, run/"journal"/"worker-0000.jsonl")[:1500])
