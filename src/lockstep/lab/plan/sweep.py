"""Measures a link: times all-reduces of growing size between real processes and fits a line to them.

`torchrun ... -m lockstep.lab.plan.sweep` (one process per machine) prints the link as JSON for a cluster file;
`measure_link` does the same between two emulated hosts.
"""

import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.files import read_json, write_json
from lockstep.job_secret import make_secret_environment
from lockstep.lab.emulated_network import EmulatedNetwork
from lockstep.lab.plan.costs import LinkModel
from lockstep.lab.trial import make_rank_environment
from lockstep.launch.run_all import Program, run_all
from lockstep.notices import print_error
from lockstep.process import run_then_exit
from lockstep.run import environment_variables

SIZES = [2**power for power in range(14, 24)]
LARGE = 2**20
ROUNDS, LONG_SECONDS = 7, 5.0
"""How often each size is sent, and the seconds after which no larger size is tried."""


def fit_link(
    sizes: list[float], seconds: list[float], name: str, source: str, host_seconds_per_byte: float = 0.0
) -> LinkModel:
    """Fits rate and latency. `sizes` are the bytes that each process sent. The rate is the slope over the large sizes,
    with relative errors weighted equally. The latency is the time of the smallest size beyond the rate: a shaped link
    lets small messages pass at once."""
    x, y = np.asarray(sizes), np.asarray(seconds)
    large = x >= min(LARGE, float(np.sort(x)[-2]))
    weight = 1 / y[large]
    matrix = np.stack([np.ones_like(weight), x[large]], 1) * weight[:, None]
    (start, per_byte), *_ = np.linalg.lstsq(matrix, np.ones_like(weight), rcond=None)
    if start < 0 or per_byte <= 0:
        start, per_byte = 0.0, np.median(y[large] / x[large])
    error = float(np.abs(y[large] / (start + per_byte * x[large]) - 1).max())
    latency = max(0.0, float(y[0] - per_byte * x[0]))
    return LinkModel(name, 1 / float(per_byte), latency, max(0.02, error), source, host_seconds_per_byte)


def measure_link(rate: str | None, name: str | None = None) -> LinkModel:
    """Measures between two emulated hosts behind links of `rate`, such as 1gbit. Needs root on Linux."""
    with EmulatedNetwork(2, rate) as network, tempfile.TemporaryDirectory(prefix="lockstep-plan-") as folder:
        result = Path(folder) / "link.json"
        program = [sys.executable, "-m", "lockstep.lab.plan.sweep", str(result)]
        shared = make_secret_environment() | {"OMP_NUM_THREADS": "1"}
        programs = [
            Program(host.command(program), make_rank_environment(rank, network) | shared)
            for rank, host in enumerate(network.members)
        ]
        errors, facts = run_all(programs), read_json(result)
    if errors or facts is None:
        raise LockstepError(f"The link could not be measured: {errors}", "Try again.")
    return LinkModel(**facts | {"name": name or rate or "unshaped", "source": "size sweep between two emulated hosts"})


def sweep() -> dict[str, JsonValue]:
    """Measures the link in every process and returns it as a mapping; all processes return the same rate and latency."""
    import torch
    import torch.distributed as dist

    from lockstep.team import join
    from lockstep.watch.link_probe import time_all_reduce

    torch.set_num_threads(1)
    team = join("auto")
    if team.size < 2:
        raise LockstepError("A single process has no link to measure.", "Start one on each of two machines.", code=2)
    sent = 2 * (team.size - 1) / team.size
    sizes, seconds, spent = list[float](), list[float](), 0.0
    busy, carried = 0.0, 0.0
    for size in SIZES:
        payload = torch.zeros(size // 4, device=team.device)
        time_all_reduce(payload, team)
        start = time.process_time()
        taken = [time_all_reduce(payload, team) for _ in range(ROUNDS)]
        busy, carried = busy + time.process_time() - start, carried + ROUNDS * sent * size
        sizes.append(sent * size)
        seconds.append(float(np.median(taken)))
        spent += sum(taken)
        if spent > LONG_SECONDS:
            break
    hosts = sum(team.gather(busy)) / team.size
    link = fit_link(sizes, seconds, "measured", f"size sweep between {team.size} processes", hosts / carried)
    steps = 2 * (team.size - 1)  # of a ring; each waits for one message
    team.close()
    assert not dist.is_initialized()
    return {**asdict(link), "latency_seconds": link.latency_seconds / steps}


def main() -> None:
    facts = sweep()
    if environment_variables.rank() == 0:
        if sys.argv[1:]:
            write_json(Path(sys.argv[1]), facts)
        else:
            print(json.dumps(facts, indent=2))


if __name__ == "__main__":
    run_then_exit(main, print_error)
