"""Makes faults in real runs of the demo on purpose, and counts how often the launcher names the right worker and cause.

Each trial trains with two workers. Worker 1 fails in step 60, before its first restart. The launcher must name it, and the
run must end after a restart. Control trials have no fault, one evaluation and several saves; some run beside a program that
keeps a core busy. Whatever is named in them is a false alarm.

Every finished trial is added to a file at once. The same command continues, and skips what this commit has measured.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from proofs import burn, read_commit
from pydantic import JsonValue
from rich.console import Console
from rich.table import Table

FAULT_STEP = 60
STALLED = r"Worker 1 \(process \d+\) has stood still"
DIED = r"Worker 1 \(process \d+\) (was killed|ended)"


@dataclass(frozen=True)
class Case:
    """A fault, and what the sentence about it must match."""

    name: str
    fault: str
    expected: str
    programs: int = 0


CASES = (
    Case("SIGKILL", "kill:phase=backward", rf"{DIED}.*SIGKILL"),
    Case("segmentation fault", "segv:phase=backward", rf"{DIED}.*SIGSEGV"),
    Case("abort", "abort:phase=forward", rf"{DIED}.*SIGABRT"),
    Case("exception", "error:phase=backward", rf"{DIED}.*exit code 1"),
    Case("SIGSTOP", "stop:phase=forward", rf"{STALLED}.*is stopped"),
    Case("SIGSTOP in the exchange", "stop:phase=merge", rf"{STALLED}.*is stopped"),
    Case("endless loop", "loop:phase=forward", rf"{STALLED}.*computes without progress"),
    Case("interpreter never released", "gil:phase=backward", rf"{STALLED}.*sleeps or waits"),
    Case("sleep in the input", "sleep:phase=input", rf"{STALLED}.*in input.*sleeps or waits"),
    Case("nothing", "", ""),
    Case("nothing, beside a busy program", "", "", programs=1),
)
NAMED = re.compile(r"stood still|have not moved|was killed|ended with exit code")


def run_case(case: Case, options: argparse.Namespace) -> dict[str, JsonValue]:
    """Trains once; returns what was named, and when."""
    settings = [f"train.steps={options.steps}", f"train.evaluate_every={options.steps}", "train.checkpoint_every=40"]
    settings += [f"train.stall_seconds={options.stall_seconds}", "train.restarts=1", "watch.probe=false"]
    fault = f"{case.fault}:rank=1:step={FAULT_STEP}:restarts=0" if case.fault else ""
    with tempfile.TemporaryDirectory() as folder, burn(case.programs):
        run = Path(folder) / "run"
        words = ["train", str(options.config), *settings, "--workers", "2", "--run", str(run)]
        process = subprocess.Popen(
            [sys.executable, "-m", "lockstep", *words],
            env=os.environ | {"LOCKSTEP_FAULT": fault},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        named = list(_follow(process, run))
        return {"named": [list(one) for one in named], "exit_code": process.wait()}


def _follow(process: "subprocess.Popen[str]", run: Path) -> Iterator[tuple[str, float]]:
    """Yields every sentence that names a worker, with the seconds since the last step before it."""
    assert process.stderr is not None
    for line in process.stderr:
        if NAMED.search(line):
            journal = run / "journal" / "worker-0000.jsonl"
            steps = [json.loads(one) for one in journal.read_text().splitlines() if one.startswith('{"kind":"step"')]
            yield line.strip(), round(time.time() - (steps[-1]["time"] if steps else time.time()), 1)


def judge(line: dict[str, JsonValue]) -> str:
    """Returns `right`, `wrong` or `missed`; for a trial without a fault `quiet` or `false alarm`."""
    named = line["named"]
    assert isinstance(named, list)
    sentences = [str(one[0]) for one in named if isinstance(one, list)]
    if not line["fault"]:
        return "false alarm" if sentences else "quiet"
    if any(re.search(str(line["expected"]), sentence) for sentence in sentences[:1]):
        return "right" if line["exit_code"] == 0 else "wrong"
    return "wrong" if sentences else "missed"


def print_table(lines: Sequence[dict[str, JsonValue]]) -> None:
    table = Table("fault", "trials", "right", "wrong", "missed", "seconds until named", "most")
    for name in dict.fromkeys(str(line["name"]) for line in lines):
        own = [line for line in lines if line["name"] == name]
        verdicts = [judge(line) for line in own]
        first = [one[0] for line in own if isinstance(one := line["named"], list) and one]
        seconds = [float(str(one[1])) for one in first if isinstance(one, list)]
        if not own[0]["fault"]:
            table.add_row(name, str(len(own)), "-", str(verdicts.count("false alarm")), "-", "-", "-")
            continue
        counts = (str(verdicts.count(verdict)) for verdict in ("right", "wrong", "missed"))
        median, most = (statistics.median(seconds), max(seconds)) if seconds else (float("nan"), float("nan"))
        table.add_row(name, str(len(own)), *counts, f"{median:.1f}", f"{most:.1f}")
    Console(width=110).print(table)
    faulty = [judge(line) for line in lines if line["fault"]]
    alarms = sum(judge(line) == "false alarm" for line in lines)
    if faulty:
        named = len(faulty) - faulty.count("missed") + alarms
        print(
            f"recall {faulty.count('right') / len(faulty):.2f}, precision {faulty.count('right') / max(1, named):.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--results", type=Path, required=True, help="the file that gets a line for every finished trial"
    )
    parser.add_argument("--times", type=int, default=5, help="trials of each fault")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--stall-seconds", type=float, default=15.0)
    parser.add_argument("--config", default=Path("configs/demo.yaml"), type=Path)
    options = parser.parse_args()
    key: dict[str, JsonValue] = {
        "commit": read_commit(),
        "steps": options.steps,
        "stall_seconds": options.stall_seconds,
        "config": str(options.config),
    }
    lines = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    done = {(line["name"], line["trial"]): line for line in lines if all(line[name] == key[name] for name in key)}
    wanted = [(case, trial) for trial in range(options.times) for case in CASES]
    for case, trial in wanted:
        if (case.name, trial) not in done:
            line = {**key, **asdict(case), "trial": trial, **run_case(case, options)}
            done[case.name, trial] = line
            with options.results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{case.name}: {judge(line)} {line['named'][:1]}", file=sys.stderr)
    print_table([done[case.name, trial] for case, trial in wanted])


if __name__ == "__main__":
    main()
