"""What a link carries: all-reduces of growing size between real processes, and the line through their times.

`torchrun ... -m lockstep.lab.plan.sweep` (one process per machine) prints it as JSON for a cluster file; `measure` does the
same between two emulated hosts.
"""

import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.errors import LockstepError
from lockstep.files import read_json, write_json
from lockstep.lab.emulated_network import EmulatedNetwork
from lockstep.lab.plan.costs import Pipe
from lockstep.lab.trial import place
from lockstep.launch.run_all import Program, run_all
from lockstep.notices import print_error
from lockstep.process import run_then_exit

SIZES = [2**power for power in range(14, 24)]
LARGE = 2**20
ROUNDS, LONG_SECONDS = 7, 5.0
"""How often each size is sent; sizes after those that took so long together are left out."""


def fit(sizes: list[float], seconds: list[float], name: str, source: str, host_seconds_per_byte: float = 0.0) -> Pipe:
    """The latency is what the smallest takes beyond its share of the rate; the rate is the slope over the large ones,
    relative errors weighed alike. (A shaped link lets small messages pass at once.) `sizes` are bytes that each sent."""
    x, y = np.asarray(sizes), np.asarray(seconds)
    large = x >= min(LARGE, float(np.sort(x)[-2]))
    weight = 1 / y[large]
    matrix = np.stack([np.ones_like(weight), x[large]], 1) * weight[:, None]
    (begin, per_byte), *_ = np.linalg.lstsq(matrix, np.ones_like(weight), rcond=None)
    if begin < 0 or per_byte <= 0:
        begin, per_byte = 0.0, np.median(y[large] / x[large])
    error = float(np.abs(y[large] / (begin + per_byte * x[large]) - 1).max())
    latency = max(0.0, float(y[0] - per_byte * x[0]))
    return Pipe(name, 1 / float(per_byte), latency, max(0.02, error), source, host_seconds_per_byte)


def measure(rate: str | None, name: str | None = None) -> Pipe:
    """Between two emulated hosts behind links of `rate`, such as 1gbit. Needs root on Linux."""
    with EmulatedNetwork(2, rate) as network, tempfile.TemporaryDirectory(prefix="lockstep-plan-") as folder:
        result = Path(folder) / "link.json"
        program = [sys.executable, "-m", "lockstep.lab.plan.sweep", str(result)]
        programs = [
            Program(host.command(program), place(rank, network) | {"OMP_NUM_THREADS": "1"})
            for rank, host in enumerate(network.members)
        ]
        errors, facts = run_all(programs), read_json(result)
    if errors or facts is None:
        raise LockstepError(f"The link could not be measured: {errors}", "Try again.")
    return Pipe(**facts | {"name": name or rate or "unshaped", "source": "size sweep between two emulated hosts"})


def sweep() -> dict[str, Any]:
    """Runs in every process; all of them find the same."""
    import torch
    import torch.distributed as dist

    from lockstep.team import join
    from lockstep.watch.link_probe import time_all_reduce

    torch.set_num_threads(1)
    team = join("auto")
    if team.size < 2:
        raise LockstepError("One process has no link to measure.", "Start one on each of two machines.", code=2)
    sent = 2 * (team.size - 1) / team.size
    sizes, seconds, spent = list[float](), list[float](), 0.0
    busy, carried = 0.0, 0.0
    for size in SIZES:
        payload = torch.zeros(size // 4, device=team.device)
        time_all_reduce(payload, team)
        begin = time.process_time()
        taken = [time_all_reduce(payload, team) for _ in range(ROUNDS)]
        busy, carried = busy + time.process_time() - begin, carried + ROUNDS * sent * size
        sizes.append(sent * size)
        seconds.append(float(np.median(taken)))
        spent += sum(taken)
        if spent > LONG_SECONDS:
            break
    hosts = sum(team.gather(busy)) / team.size
    found = fit(sizes, seconds, "measured", f"size sweep between {team.size} processes", hosts / carried)
    steps = 2 * (team.size - 1)  # of a ring, each of which waits for a message
    team.close()
    assert not dist.is_initialized()
    return asdict(found) | {"latency_seconds": found.latency_seconds / steps}


def main() -> None:
    facts = sweep()
    if os.environ.get("RANK", "0") == "0":
        if sys.argv[1:]:
            write_json(Path(sys.argv[1]), facts)
        else:
            print(json.dumps(facts, indent=2))


if __name__ == "__main__":
    run_then_exit(main, print_error)
