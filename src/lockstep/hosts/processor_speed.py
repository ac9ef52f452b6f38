"""How many operations a second each worker of a host would do, all of them at once."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from pydantic import JsonValue

from lockstep.errors import LockstepError

PROGRAM = """
import sys, time, json
import torch
torch.set_num_threads(int(sys.argv[1]))
left, right = torch.rand(512, 512), torch.rand(512, 512)
def measure(seconds):
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        torch.mm(left, right)
        count += 1
    return 2 * 512**3 * count / (time.perf_counter() - begin)
measure(0.2)
print(json.dumps(measure(1.0)))
"""
START_SECONDS = 90


def measure_rate(workers: int, threads: int) -> JsonValue:
    """Returns the floating point operations a second of each worker, in products of matrices."""

    def measure(_: int) -> float:
        words = [sys.executable, "-c", PROGRAM, str(threads)]
        result = subprocess.run(words, capture_output=True, text=True, timeout=START_SECONDS, check=False)
        if result.returncode != 0:
            last = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
            raise LockstepError(f"torch does not work: {last.rstrip('.')}.", "Try `python -c 'import torch'` there.")
        return float(json.loads(result.stdout))

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(measure, range(workers)))
