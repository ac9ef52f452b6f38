"""Measures what the report of a long run costs: makes up the journals of a run, then times the commands that read them.

    python benchmarks/long_report.py --steps 1000000 --workers 2

The run is killed after 60 % of its steps, with half a line in every journal, and resumes from the checkpoint before: some
steps are in the journals twice. Workers write the lines of a real training: steps, samples of the machine every 5 seconds,
evaluations and checkpoints. Peak memory is that of the whole process, as the kernel counts it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

EVERY = 2000
"""Steps between two evaluations, each with a checkpoint."""
SAMPLE_EVERY = 20
"""Steps between two samples of the machine: 5 seconds."""
BEGIN = 1_700_000_000.0
STEP = (
    '{"kind":"step","time":%.3f,"step":%d,"epoch":%d,"loss":%.7g,"lr":%.7g,"grad_norm":%.7g,'
    '"words":{"source":%d,"target":%d},"seconds":%.7g,"phases":{"input":%.7g,"forward":%.7g,"backward":%.7g,'
    '"merge":%.7g,"update":%.7g},"merge_overlapped":%.7g,"bytes_sent":30277632,"cursor":%d,"attempt":%d,'
    '"scope":"global","warmup":%s,"applied":true,"batch":"%08x","global_target_words":%d,"watching":%.7g}\n'
)


def make_run(folder: Path, steps: int, workers: int) -> None:
    """Writes a run directory with a launch that was killed and one that resumed."""
    (folder / "journal").mkdir(parents=True)
    schedule = {"name": "cosine", "peak": 0.0015, "warmup": 300, "floor": 0.0}
    train = {"steps": steps, "evaluate_every": EVERY, "checkpoint_every": EVERY}
    (folder / "config.yaml").write_text(yaml.safe_dump({"train": train, "schedule": schedule}))
    hosts = [{"host": "here", "device": "cpu", "device_name": "cpu", "cores": 2}] * workers
    (folder / "environment.json").write_text(json.dumps({"versions": {}, "workers": hosts}))
    (folder / "choices.json").write_text(json.dumps({"launches": 2}))
    sets = {"train": {"lines": 29000, "target_words": 400_000}, "validation": {"lines": 1000}}
    (folder / "data.json").write_text(json.dumps({"sets": sets}))
    for rank in range(workers):
        with (folder / "journal" / f"worker-{rank:04d}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(write_journal(rank, steps, workers))


def write_journal(rank: int, steps: int, workers: int) -> Iterator[str]:
    killed = int(0.6 * steps)
    resumed = max(0, killed - 1) // EVERY * EVERY
    for attempt, (first, last) in enumerate(((1, killed), (resumed + 1, steps)), 1):
        now = BEGIN + (attempt - 1) * (killed * 0.25 + 3600)
        about = {"workers": workers, "strategy": "allreduce", "precision": "bf16", "threads": 1, "unit": "words"}
        score = {"metric": "sacrebleu", "higher_is_better": True, "changed": {}, "without": []}
        yield write_line("run", now, attempt=attempt, **about, **score)
        if attempt == 2:
            yield write_line("resume", now + 2, step=resumed, attempt=2, checkpoint=f"step-{resumed:08d}", reset=[])
        now = yield from write_launch(range(first, last + 1), attempt, rank, workers, now + 2)
        if attempt == 1:
            yield '{"kind":"step","time":17000\n'
    yield write_line("stop", now + 1, reason="finished", step=steps, signal=None)


def write_launch(numbers: range, attempt: int, rank: int, workers: int, now: float) -> Generator[str, None, float]:
    """Writes the lines of one launch and returns the time of the last one."""
    random = np.random.default_rng([attempt, rank])
    for first in range(numbers.start, numbers.stop, EVERY):
        block = np.arange(first, min(first + EVERY, numbers.stop))
        phases = random.gamma(30, [0.0001, 0.003, 0.004, 0.001, 0.0003], (len(block), 5)) / 1.05
        seconds = phases.sum(1)
        ends = now + np.cumsum(seconds)
        words = random.integers(3900, 4100, len(block)) // workers
        losses = 1.5 + 6 * block**-0.3 + random.normal(0, 0.05, len(block))
        warmup = np.where(block < numbers.start + 5, "true", "false")
        rates, norms, batches = 0.0015 * np.minimum(1.0, block / 300), 0.5 + losses / 9, block * 2654435761 % 2**32
        position = (ends, block, block // 100, losses, rates, norms, words, words, seconds, *phases.T, phases[:, 2] / 3)
        rest = (block % 100, np.full(len(block), attempt), warmup, batches, words * workers, seconds / 1e4)
        for place, line in enumerate(zip(*(column.tolist() for column in (*position, *rest)), strict=True)):
            yield STEP % line
            if not place % SAMPLE_EVERY:
                yield write_sample(rank, float(ends[place]), float(seconds[place]))
        now = float(ends[-1])
        if block[-1] % EVERY == 0:
            yield from write_pause(int(block[-1]), attempt, now)
            now += 21.0
    return now


def write_sample(rank: int, moment: float, load: float) -> str:
    """Worker 0 samples the host, and every worker itself."""
    own = {"process": {"cpu": 0.9 + load / 9, "resident": 986124288}, "own": 0.0022}
    traffic = {"lo": {"sent": int(6e8 * load), "received": int(6e8 * load), "link_bits": None}}
    host = {"cores": [0.99, 0.98], "others": load / 9, "memory": {"used": 1817690112, "total": 25276518400}}
    rest = host | {"disk": {"read": 0, "written": 610304}, "network": traffic, "gpus": []} if rank == 0 else {}
    return write_line("system", moment, seconds=5.003, host="here", **own, **rest)


def write_pause(step: int, attempt: int, now: float) -> Iterator[str]:
    """An evaluation of 20 seconds and a checkpoint."""
    for second in range(1, 20):
        yield write_line("evaluating", now + second, step=step, done=50 * second, of=1000, attempt=attempt)
    scores = {"loss": 2.0 + 5 * step**-0.3, "sacrebleu": 40 - 60 * step**-0.3}
    examples = [["A source sentence of an example.", "Eine Referenz.", "Eine Übersetzung."]] * 5
    facts = {"signature": "case:mixed", "best": True, "examples": examples, "scored": 1000, "available": 1000}
    yield write_line("evaluation", now + 20, step=step, scores=scores, seconds=20.0, attempt=attempt, **facts)
    yield write_line("checkpoint", now + 21, step=step, bytes=121301635, seconds=0.9)


def write_line(kind: str, moment: float, **facts: object) -> str:
    return json.dumps({"kind": kind, "time": round(moment, 3), **facts}, separators=(",", ":")) + "\n"


def measure(*words: str) -> tuple[float, float, int]:
    """Runs a command of Lockstep and returns its seconds, its seconds of processor time and its peak memory in bytes."""
    begin = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "lockstep", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"lockstep {words[0]} failed with code {process.returncode}.")
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps of the run")
    parser.add_argument("--workers", type=int, default=2, help="journals of the run")
    parser.add_argument("--folder", type=Path, help="where to keep the run; an existing one is measured again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        run, short = folder / "long", folder / "short"
        for path, steps in ((run, options.steps), (short, options.steps // 100)):
            if not path.exists():
                make_run(path, steps, options.workers)
        size = sum(path.stat().st_size for path in (run / "journal").iterdir())
        table = Table(title=f"{options.steps:,} steps x {options.workers} workers, {size / 1e6:,.0f} MB of journals")
        for heading in ("command", "seconds", "CPU seconds", "peak MB"):
            table.add_column(heading, justify="left" if heading == "command" else "right")
        commands = {"report": (run,), "runs list": (folder,), "runs compare": (run, short)}
        for name, paths in commands.items():
            seconds, busy, peak = measure(*name.split(), *map(str, paths))
            table.add_row(name, f"{seconds:.1f}", f"{busy:.1f}", f"{peak / 1e6:,.0f}")
        Console().print(table)


if __name__ == "__main__":
    main()
