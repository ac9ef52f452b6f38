"""Trains for many small steps with many evaluations and saves, and shows how the memory of the workers grows.

    python benchmarks/memory.py [--steps 12000] [--every 30]

A worker that loses memory grows as long as it trains. One that only fills its caches and pools stops growing: the last rows
of the table are alike. RSS has the pages of shared libraries in it, RssAnon only what the worker has taken itself.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kills import make_command
from rich.console import Console
from rich.table import Table

from lockstep.run.journal import worker_file

ROWS = 12


def read_memory(pid: int) -> tuple[float, float]:
    """Returns the resident memory of a process in MB, and the private part of it."""
    status = Path(f"/proc/{pid}/status").read_text()
    sizes = dict(line.split(":", 1) for line in status.splitlines() if line.startswith(("VmRSS", "RssAnon")))
    return float(sizes["VmRSS"].split()[0]) / 1024, float(sizes["RssAnon"].split()[0]) / 1024


def read_last_step(journal: Path) -> tuple[int, int]:
    """Returns the process of a worker and the last step in its journal; zeros if it has none."""
    if not journal.exists():
        return 0, 0
    with journal.open("rb") as file:
        first = file.readline()
        file.seek(max(0, journal.stat().st_size - 20_000))
        steps = [
            line for line in file.read().splitlines() if line.startswith(b'{"kind":"step"') and line.endswith(b"}")
        ]
    return (int(json.loads(first)["pid"]), int(json.loads(steps[-1])["step"])) if steps else (0, 0)


def measure(command: list[str], run: Path, steps: int) -> list[tuple[int, list[tuple[float, float]]]]:
    """Trains; returns the memory of both workers at every twelfth of the steps."""
    rows: list[tuple[int, list[tuple[float, float]]]] = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and len(rows) < ROWS:
            workers = [read_last_step(worker_file(run / "journal", rank)) for rank in range(2)]
            reached = min(step for _, step in workers)
            if reached >= max(1, (len(rows) + 1) * steps // ROWS - steps // 100):
                try:
                    rows.append((reached, [read_memory(pid) for pid, _ in workers]))
                except OSError:  # the run has ended
                    break
            time.sleep(0.05)
        if process.wait():
            sys.exit(f"The training failed with exit code {process.returncode}.")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12_000)
    parser.add_argument("--every", type=int, default=30, help="steps between two evaluations and between two saves")
    parser.add_argument("--strategy", default="allreduce")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = make_command(options.strategy, folder, folder / "run", options.steps)
        command += [f"train.{what}_every={options.every}" for what in ("evaluate", "checkpoint")]
        rows = measure([*command, "search.beam=1"], folder / "run", options.steps)
    table = Table("step", "worker 0, RSS MB", "RssAnon", "worker 1, RSS MB", "RssAnon")
    for step, workers in rows:
        table.add_row(f"{step:,}", *(f"{size:.1f}" for sizes in workers for size in sizes))
    Console().print(table)


if __name__ == "__main__":
    main()
