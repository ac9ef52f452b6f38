"""Stops the preparation of a large corpus by SIGTERM in every phase, and continues it.

    python benchmarks/stops.py [--pairs 1000000] [--folder /tmp/lockstep-prepare]

Makes text with the built-in grammar, which stays in the folder for the next time (benchmarks/prepare.py uses it too). Each
start continues the preparation and is stopped in the next phase: reading and cleaning, choosing the pairs, training the
vocabulary, encoding, writing. A stop must end every process of the command within ten seconds, with one sentence and exit
code 143. The last start makes the corpus, which must be that of an uninterrupted preparation.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from prepare import make_text
from rich.console import Console
from rich.table import Table

MOST_SECONDS = 10.0
SENTENCE = "Stopped. The same command continues the preparation."
LOOK_SECONDS = 0.5


def find_work(corpus: Path) -> Path | None:
    """Returns the folder in which the corpus is being made."""
    return next(corpus.parent.glob(f".{corpus.name}.partial-*"), None)


def has_file(pattern: str) -> Callable[[Path, psutil.Process], bool]:
    return lambda work, _: next(work.glob(pattern), None) is not None


def is_training_vocabulary(work: Path, process: psutil.Process) -> bool:
    """Is the text cleaned, and does the command itself wait while one of its processes computes?"""
    if not (work / "shards.json").exists():
        return False
    own, others = process.cpu_times().user, [child.cpu_times().user for child in process.children()]
    time.sleep(LOOK_SECONDS)
    waits = process.cpu_times().user - own < LOOK_SECONDS / 10
    now = [child.cpu_times().user for child in process.children()]
    return waits and sum(now) - sum(others) > LOOK_SECONDS / 10


PHASES: dict[str, Callable[[Path, psutil.Process], bool]] = {
    "reading and cleaning": has_file("*.cleaned"),
    "choosing the pairs": has_file("shards.json"),
    "training the vocabulary": is_training_vocabulary,
    "encoding": has_file("*.encoded"),
    "writing": has_file("corpus/train*"),
}


def stop_in(phase: str, command: list[str], corpus: Path) -> tuple[bool, float, str]:
    """Starts the command and stops it in a phase. Returns whether it was in time, the seconds until the last process had
    ended, and what was wrong."""
    process = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        work = find_work(corpus)
        if work is not None and PHASES[phase](work, process):
            break
        time.sleep(0.005)
    else:
        return False, 0.0, f"it ended before: {process.communicate()[1]}"
    family, begin = [process, *process.children(recursive=True)], time.monotonic()
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[1]
    psutil.wait_procs(family[1:], timeout=60)
    seconds = time.monotonic() - begin
    wrong = [f"exit code {process.returncode}"] if process.returncode != 128 + signal.SIGTERM else []
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("Continuing: ")]
    wrong += [f"it said {lines}"] if lines != [SENTENCE] else []
    wrong += ["processes were left"] if any(one.is_running() for one in family[1:]) else []
    return seconds <= MOST_SECONDS, seconds, "; ".join(wrong)


def read_digest(corpus: Path) -> str:
    facts = json.loads((corpus / "corpus.json").read_text())
    return str(facts["digest"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/lockstep-prepare"))
    parser.add_argument("--commands", nargs="*", default=["prepare", "train"], choices=["prepare", "train"])
    options = parser.parse_args()
    folder = options.folder / str(options.pairs)
    folder.mkdir(parents=True, exist_ok=True)
    make_text(folder, "train", options.pairs, seed=1)
    config = folder / "stops.yaml"
    config.write_text("batch: {words: 1000}\n")
    shared = [f"data.folder={folder}", "data.train=[train]", "data.vocabulary.size=3000", "data.vocabulary.kind=bpe"]

    def make_command(name: str, corpus: Path) -> list[str]:
        words = [sys.executable, "-m", "lockstep", name, str(config), *shared, f"data.corpus={corpus}"]
        small = ["train.steps=1", "model.width=32", "model.encoder_layers=1", "model.decoder_layers=1"]
        return [*words, *small, *(["--run", f"{corpus}-run"] if name == "train" else [])]

    for leftover in folder.glob("*stopped-*"):
        shutil.rmtree(leftover)
    table, is_good = Table("command", "stopped in", "seconds until all had ended", "wrong"), True
    begin = time.monotonic()
    subprocess.run(make_command("prepare", folder / "uninterrupted"), check=True, capture_output=True)
    print(f"{options.pairs:,} pairs, uninterrupted: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    for name in options.commands:
        corpus = folder / f"stopped-{name}"
        for phase in PHASES:
            in_time, seconds, wrong = stop_in(phase, make_command(name, corpus), corpus)
            is_good = is_good and in_time and not wrong
            table.add_row(name, phase, f"{seconds:.1f}", wrong or "-")
            print(f"{name}, {phase}: {seconds:.1f} s {wrong}", file=sys.stderr)
        begin = time.monotonic()
        last = subprocess.run(make_command(name, corpus), check=True, capture_output=True, text=True)
        is_same = read_digest(corpus) == read_digest(folder / "uninterrupted")
        is_good = is_good and is_same
        reused = " ".join(line for line in last.stderr.splitlines() if line.startswith("Continuing: "))
        end = f"the same corpus after {time.monotonic() - begin:.0f} s" if is_same else "ANOTHER CORPUS"
        table.add_row(name, "not stopped", "-", f"{end}. {reused}")
        for made in (corpus, Path(f"{corpus}-run")):
            shutil.rmtree(made, ignore_errors=True)
    shutil.rmtree(folder / "uninterrupted")
    Console(width=140).print(table)
    sys.exit(not is_good)


if __name__ == "__main__":
    main()
