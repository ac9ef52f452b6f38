"""Runs torchft's lighthouse, which knows which workers are alive.

`python -m lockstep.launch.lighthouse PORT JOIN_SECONDS DEAD_SECONDS`. The lighthouse is a separate process because it logs
every step, which no setting turns off, and because the launcher does not import torch.
"""

import signal
import sys

from lockstep.process import die_with_parent


def main() -> None:
    die_with_parent()
    from torchft.coordination import LighthouseServer

    port, join, dead = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    server = LighthouseServer(
        bind=f"127.0.0.1:{port}",
        min_replicas=1,
        join_timeout_ms=round(1000 * join),  # for a worker that lives but evaluates or saves
        heartbeat_timeout_ms=round(1000 * dead),
    )
    while server.address():
        signal.pause()


if __name__ == "__main__":
    main()
