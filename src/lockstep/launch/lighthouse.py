"""Runs torchft's lighthouse, which knows which workers are alive.

The lighthouse is a separate process because it logs every step, which no setting turns off.
"""

import os
import signal


def main(port: str, join_seconds: str, dead_seconds: str) -> None:
    """Serves until it is killed. `join_seconds` is how long a quorum waits for a worker that is alive but busy."""
    from torchft.coordination import LighthouseServer

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    server = LighthouseServer(
        bind=f"127.0.0.1:{port}",
        min_replicas=1,
        join_timeout_ms=round(1000 * float(join_seconds)),
        heartbeat_timeout_ms=round(1000 * float(dead_seconds)),
    )
    while server.address():
        signal.pause()
