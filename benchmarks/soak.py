"""Kills and stops processes of one run again and again, and compares its end with that of an uninterrupted run.

The run trains a small model with two workers and saves every 20 steps. At random moments, also in a save, an evaluation or
a restart, a process of it gets SIGKILL, or SIGSTOP and some seconds later SIGCONT: mostly a worker, sometimes the fork
server or the launcher. The launcher starts the workers again by itself. When the launcher has ended, because it or the
fork server was killed, this program starts the same command again.

    python benchmarks/soak.py --folder /tmp/soak [--kills 100] [--stops 20]

What has been done is in the folder: the same command continues there.
"""

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from kills import digest, make_command
from pydantic import JsonValue
from rich.console import Console
from rich.table import Table

from lockstep.run.journal import lines, worker_file

SHORTEST_STOP, LONGEST_STOP = 2.0, 15.0
DELAY_SECONDS = 0.5
"""After a step of the run has been reached, a fault comes within so many seconds."""
RESTART_SECONDS = 3.0
"""Every fourth kill comes within so many seconds after the fault before it: often in a restart."""
WORKER_SHARE = 0.8
"""The share of the faults that come over a worker."""
LAST_FAULT = 0.9
"""The share of the steps after which the last fault comes."""


@dataclass(frozen=True)
class Fault:
    number: int
    kind: str  # kill or stop
    victim: str  # worker, fork server or launcher
    time: float
    step: int  # the furthest one that the run had ended
    seconds: float  # how long the victim was stopped


class TrainedRun:
    """The run under attack."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.folder, self._command = folder, command
        self.starts, self.unexpected = 0, list[str]()  # why launchers ended that nobody attacked
        self.process: subprocess.Popen[bytes] | None = None
        self._offset, self._furthest = 0, 0

    @contextmanager
    def kept_running(self) -> Iterator[None]:
        try:
            self.ensure_running()
            yield
        finally:
            if self.process is not None and self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    def ensure_running(self, is_attacked: bool = False) -> bool:
        """Starts the command again if it has ended before its time. Returns whether the run has finished."""
        code = None if self.process is None else self.process.poll()
        if self.process is not None and code is None:
            return False
        if code == 0:
            return True
        if code is not None and not is_attacked:
            log = (self.folder.parent / "console.log").read_text(errors="replace").splitlines()
            self.unexpected.append(" ".join(log[-2:]))
        self.starts += 1
        with (self.folder.parent / "console.log").open("ab") as log_file:
            self.process = subprocess.Popen(self._command, stdout=log_file, stderr=log_file)
        return False

    def find_furthest_step(self) -> int:
        """Returns the furthest step in the journal of worker 0."""
        path = worker_file(self.folder / "journal", 0)
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._offset += len(whole)
            steps = (json.loads(line)["step"] for line in whole.splitlines() if line.startswith(b'{"kind":"step"'))
            self._furthest = max([self._furthest, *steps])
        return self._furthest

    def choose_victim(self, draw: random.Random, kind: str, trains: bool) -> tuple[str, psutil.Process] | None:
        """Returns a process of the run that trains, or another one. None if there is none at the moment."""
        assert self.process is not None
        with suppress(psutil.NoSuchProcess):
            launcher = psutil.Process(self.process.pid)
            servers = [child for child in launcher.children() if "lockstep.launch.fork_loop" in child.cmdline()]
            trainers = [child for server in servers for child in server.children(recursive=True)]
            others = [("fork server", server) for server in servers]
            if kind == "kill":
                others.append(("launcher", launcher))
            if trains:
                return ("worker", draw.choice(trainers)) if trainers else None
            return draw.choice(others) if others else None
        return None


def attack(run: TrainedRun, steps: int, kinds: list[str], seed: int, done: list[Fault], record: Path) -> None:
    """Injects the faults that are missing, and waits for the end of the run."""
    for number in range(len(done), len(kinds)):
        draw = random.Random(f"{seed} {number}")
        wait_for_moment(run, draw, kinds[number], int(number * LAST_FAULT * steps / len(kinds)), number % 4 == 3)
        trains = draw.random() < WORKER_SHARE
        while (chosen := run.choose_victim(draw, kinds[number], trains)) is None:
            if run.ensure_running():
                return
            time.sleep(0.05)
        name, victim = chosen
        seconds = draw.uniform(SHORTEST_STOP, LONGEST_STOP) if kinds[number] == "stop" else 0.0
        fault = Fault(number, kinds[number], name, time.time(), run.find_furthest_step(), seconds)
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP)
            time.sleep(seconds)
            if seconds:
                victim.send_signal(signal.SIGCONT)
        with record.open("a") as file:
            file.write(json.dumps(asdict(fault)) + "\n")
        if fault.kind == "kill" and name != "worker":
            assert run.process is not None
            run.process.wait()
            run.ensure_running(is_attacked=True)
    while not run.ensure_running():
        time.sleep(0.1)


def wait_for_moment(run: TrainedRun, draw: random.Random, kind: str, step: int, in_restart: bool) -> None:
    if in_restart and kind == "kill":
        time.sleep(draw.uniform(0, RESTART_SECONDS))
        return
    while run.find_furthest_step() < step and not run.ensure_running():
        time.sleep(0.02)
    time.sleep(draw.uniform(0, DELAY_SECONDS))


def read_recoveries(journal: Path, faults: list[Fault]) -> dict[int, float]:
    """Returns for each fault the seconds until the end of a step that the run had not ended before; for a kill, of one
    after the start that it made necessary. Faults that another one followed before are left out."""
    events = [line for line in lines(worker_file(journal, 0)) if line is not None and line["kind"] in ("run", "step")]
    seconds = {}
    for fault, following in zip(faults, [*faults[1:], None], strict=True):
        begin = next(
            (number for number, line in enumerate(events) if line["time"] > fault.time and _is_new_begin(fault, line)),
            len(events),
        )
        furthest = max((line["step"] for line in events[:begin] if line["kind"] == "step"), default=0)
        ends = (line["time"] for line in events[begin:] if line["kind"] == "step" and line["step"] > furthest)
        new = next(ends, None)
        if new is not None and (following is None or new < following.time):
            seconds[fault.number] = new - fault.time
    return seconds


def _is_new_begin(fault: Fault, line: dict[str, JsonValue]) -> bool:
    return fault.kind == "stop" or line["kind"] == "run"


def check(command: str, run: Path) -> dict[str, JsonValue]:
    """Runs a command of Lockstep that checks a run; returns what it says as JSON."""
    words = [sys.executable, "-m", "lockstep", *command.split(), str(run), "--json"]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    facts: dict[str, JsonValue] = json.loads(result.stdout) if result.stdout else {"error": result.stderr}
    return {"exit_code": result.returncode, **facts}


def train_uninterrupted(command: list[str], folder: Path) -> float:
    """Trains without a fault, unless that has been done; returns the seconds."""
    path = folder / "uninterrupted.json"
    if not path.exists():
        begin = time.time()
        subprocess.run(command, check=True, capture_output=True)
        path.write_text(json.dumps({"seconds": time.time() - begin}))
    return float(json.loads(path.read_text())["seconds"])


def print_results(options: argparse.Namespace, faults: list[Fault], run: TrainedRun, usual: float) -> None:
    folder: Path = options.folder
    same = digest(run.folder, options.steps) == digest(folder / "uninterrupted", options.steps)
    audit, verified = check("runs audit", run.folder), check("checkpoint verify", run.folder)
    damages = verified.get("checkpoints")
    damaged = sum(map(bool, damages.values())) if isinstance(damages, dict) else -1
    recoveries = read_recoveries(run.folder / "journal", faults)
    sessions = [json.loads(line) for line in (folder / "sessions.jsonl").read_text().splitlines()]
    seconds, starts = (sum(session[name] for session in sessions) for name in ("seconds", "starts"))
    stopped = sum(fault.seconds for fault in faults)
    table = Table("", "", show_header=False)
    for kind in ("kill", "stop"):
        victims = [fault.victim for fault in faults if fault.kind == kind]
        shown = ", ".join(f"{victims.count(name)} {name}" for name in ("worker", "fork server", "launcher"))
        table.add_row(f"{kind}s", f"{len(victims)} ({shown})")
    table.add_row(
        "starts of the command", f"{starts}, of them after an end that no fault explains: {len(run.unexpected)}"
    )
    table.add_row("final weights", "bit-identical" if same else "DIFFERENT")
    table.add_row("audit", f"exit code {audit['exit_code']}: {audit.get('verdict')}")
    table.add_row("damaged checkpoints", str(damaged))
    table.add_row("seconds", f"{seconds:.0f}, without faults {usual:.0f}; processes were stopped for {stopped:.0f}")
    table.add_row("share of throughput kept", f"{usual / seconds:.2f}")
    table.add_row("seconds lost per fault, mean", f"{(seconds - usual) / max(1, len(faults)):.1f}")
    for kind in ("kill", "stop"):
        if own := [recoveries[fault.number] for fault in faults if fault.kind == kind and fault.number in recoveries]:
            row = f"median {statistics.median(own):.1f}, most {max(own):.1f} ({len(own)} faults)"
            table.add_row(f"seconds from a {kind} to the next new step", row)
    table.add_row("faults that another one followed before", str(len(faults) - len(recoveries)))
    Console(width=120).print(table)
    for sentence in run.unexpected:
        print(f"ended by itself: {sentence}")
    if not same or audit["exit_code"] or damaged:
        sys.exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="for both runs and what has been done to them")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--strategy", default="allreduce", help="one with exact resume")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    restarts = [f"train.restarts={10 * options.kills}"]
    usual = train_uninterrupted(
        make_command(options.strategy, folder, folder / "uninterrupted", options.steps) + restarts, folder
    )
    kinds = ["kill"] * options.kills + ["stop"] * options.stops
    random.Random(options.seed).shuffle(kinds)
    record = folder / "faults.jsonl"
    run = TrainedRun(make_command(options.strategy, folder, folder / "run", options.steps) + restarts, folder / "run")

    def read_faults() -> list[Fault]:
        return [Fault(**json.loads(line)) for line in record.read_text().splitlines()] if record.exists() else []

    begin = time.time()
    try:
        with run.kept_running():
            attack(run, options.steps, kinds, options.seed, read_faults(), record)
    finally:
        with (folder / "sessions.jsonl").open("a") as file:
            file.write(json.dumps({"seconds": time.time() - begin, "starts": run.starts}) + "\n")
    print_results(options, read_faults(), run, usual)


if __name__ == "__main__":
    main()
