"""torchft's lighthouse as a process: it knows which workers are there.

`python -m lockstep.launch.lighthouse PORT JOIN_SECONDS DEAD_SECONDS`. It has a process of its own because it writes lines
for every step whatever one sets, and because torch stays out of the launcher.
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
