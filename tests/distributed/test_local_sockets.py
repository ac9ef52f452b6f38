"""Workers of one machine can be reached from that machine only."""

from pathlib import Path

import psutil
import pytest

from conftest import Tiny, forked, running


@pytest.mark.parametrize(
    "strategy",
    [
        "allreduce",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("sharded", "server", "local", "resilient")),
    ],
)
def test_a_local_launch_listens_on_loopback_only(tiny: Tiny, tmp_path: Path, strategy: str) -> None:
    with running(tiny, tmp_path / "run", f"strategy.name={strategy}", workers=2) as launcher:
        sockets = [
            connection.laddr.ip
            for pid in (launcher.pid, *forked(launcher.pid))
            for connection in psutil.Process(pid).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
    assert sockets
    assert set(sockets) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
