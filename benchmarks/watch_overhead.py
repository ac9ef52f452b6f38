"""Measures what watching for stalls costs: the workers' heartbeats, and the launcher's look at all workers once a second.

First each part alone: the time of a beat times the beats of a step, and the time of one look. Then the whole in one run of
two workers, in which heartbeats and looks are switched on and off by turns, all workers and the launcher together.
Neighbouring turns are compared by the medians of their steps, so a machine that slowly gets faster changes nothing.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import mean, median, stdev

from rich.console import Console
from rich.table import Table

from lockstep.heartbeat import HeartbeatWriter
from lockstep.launch.fault_log import FaultLog
from lockstep.launch.memory_kills import MemoryKills
from lockstep.launch.slow_monitor import SlowMonitor
from lockstep.launch.stall_watch import StallWatch, WatchedWorker

TURN_SECONDS = 4.0
"""Shorter than the ten seconds after which a worker without a heartbeat is late."""
SWITCH = f"""
import os, time
from lockstep import heartbeat
from lockstep.launch.fixed import Monitor

beats = 0

def is_on():
    return int(time.time() / {TURN_SECONDS}) % 2 == 0

def switch(owner, name, counts):
    work = getattr(owner, name)
    def switched(*arguments):
        global beats
        beats += counts
        if is_on():
            work(*arguments)
        if name == "begin_step" and arguments[0] == 100:
            open(os.environ["BEATS_FILE"], "w").write(str(beats / 99))
    setattr(owner, name, switched)

for name in ("begin_step", "beat", "note_batch", "note_work"):
    switch(heartbeat, name, 1)
switch(Monitor, "check", 0)
"""


def time_parts(times: int = 100_000) -> tuple[float, float]:
    """Returns the seconds of one beat, and of one look at two workers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writers = [HeartbeatWriter(folder / f"heartbeat-{rank}") for rank in range(2)]
        begin = time.perf_counter()
        for _ in range(times):
            writers[0].beat("forward")
        beat = (time.perf_counter() - begin) / times
        workers = [WatchedWorker(rank, os.getpid()) for rank in range(2)]
        looks = []
        for _ in range(20):
            watch, slow, kills = StallWatch(folder, 120, 600), SlowMonitor(folder, FaultLog(None)), MemoryKills()
            watch._last_check = 0.0
            begin = time.perf_counter()
            watch.check(workers)
            slow.check(workers)
            kills.look(worker.pid for worker in workers)
            looks.append(time.perf_counter() - begin)
    return beat, median(looks)


def run_in_turns(config: str, steps: int) -> tuple[float, float, list[float]]:
    """Trains once. Returns the beats of a step, its median seconds without watching, and the relative differences of
    neighbouring turns with and without."""
    with tempfile.TemporaryDirectory() as name:
        folder, run = Path(name), Path(name) / "run"
        (folder / "sitecustomize.py").write_text(SWITCH)
        settings = [f"train.steps={steps}", "train.evaluate_every=1000000", "train.checkpoint_every=1000000"]
        words = ["train", config, *settings, "watch.probe=false", "--workers", "2", "--run", str(run)]
        environment = os.environ | {"PYTHONPATH": name, "BEATS_FILE": str(folder / "beats")}
        subprocess.run([sys.executable, "-m", "lockstep", *words], env=environment, check=True, capture_output=True)
        lines = (json.loads(line) for line in (run / "journal" / "worker-0000.jsonl").read_text().splitlines())
        turns = defaultdict[int, list[float]](list)
        for line in lines:
            if line["kind"] == "step" and not line["warmup"]:
                turn = int(line["time"] / TURN_SECONDS)
                if int((line["time"] - line["seconds"]) / TURN_SECONDS) == turn:
                    turns[turn].append(line["seconds"])
        beats = float((folder / "beats").read_text())
    whole = sorted(turns)[1:-1]
    medians = {turn: median(turns[turn]) for turn in whole}
    differences = [
        medians[turn] / mean((medians[turn - 1], medians[turn + 1])) - 1
        for turn in whole
        if turn % 2 == 0 and turn - 1 in medians and turn + 1 in medians
    ]
    return beats, median(medians[turn] for turn in whole if turn % 2), differences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default="configs/demo.yaml")
    parser.add_argument("--steps", type=int, default=3000)
    options = parser.parse_args()
    beat, look = time_parts()
    beats, step, differences = run_in_turns(options.config, options.steps)
    error = 2 * stdev(differences) / len(differences) ** 0.5
    table = Table("what", "measured", "share of a step")
    table.add_row("heartbeats", f"{beats:.1f} beats of {1e6 * beat:.2f} µs", f"{100 * beats * beat / step:.3f} %")
    table.add_row(
        "launcher", f"a look of {1e3 * look:.2f} ms each second, for 2 workers", f"{100 * look:.3f} % of a core"
    )
    how = f"on against off, {len(differences)} turns of {TURN_SECONDS:.0f} s, step {1e3 * step:.1f} ms"
    table.add_row("both", how, f"{100 * mean(differences):+.2f} % ± {100 * error:.2f} %")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
