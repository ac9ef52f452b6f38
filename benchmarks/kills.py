"""Kills trainings at random moments and compares the final weights with those of an uninterrupted run, bit for bit.

In every trial a random process (a worker, the fork server or the launcher) gets SIGKILL at a random moment, several
times. After each kill the same command is started again, until the run has finished.

    python benchmarks/kills.py --trials 24 [--strategies allreduce,sharded,server] [--results FILE]

Finished trials are appended to the file of results and skipped next time.
"""

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TypedDict

import psutil
from rich.console import Console
from rich.table import Table
from safetensors import safe_open

STEPS = 600
SETTINGS = [
    *("data.grammar.train=2000", "data.grammar.validation=50", "data.grammar.test=50", "data.vocabulary.size=600"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "model.width=32", "model.feed_forward=64"),
    *(
        "train.checkpoint_every=20",
        "train.evaluate_every=250",
        "train.threads=1",
        "batch.words=300",
    ),
]


class Trial(TypedDict):
    strategy: str
    seed: int
    kills: int
    identical: bool


def make_command(strategy: str, folder: Path, run: Path, steps: int = STEPS) -> list[str]:
    settings = [
        *SETTINGS,
        f"train.steps={steps}",
        f"strategy.name={strategy}",
        f"data.corpus={folder / 'corpus'}",
        "--workers",
        "2",
        "--run",
        str(run),
    ]
    return [
        sys.executable,
        "-m",
        "lockstep",
        "train",
        str(Path(__file__).parents[1] / "configs" / "demo.yaml"),
        *settings,
    ]


def digest(run: Path, steps: int = STEPS) -> str:
    """Returns a digest over all tensors of the last checkpoint, model and optimizer."""
    names: dict[str, bytes] = {}
    for path in sorted((run / "checkpoints" / f"step-{steps:08d}" / "state").glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            names |= {f"{name} {path.name}": file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118
    return hashlib.sha256(b"".join(name.encode() + names[name] for name in sorted(names))).hexdigest()


def kill_once(command: list[str], draw: random.Random) -> bool:
    """Starts a training and kills one of its processes; returns whether the run had finished before."""
    launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(draw.uniform(0.5, 5.0))
    if launcher.poll() == 0:
        return True
    if launcher.poll() is None:
        parent = psutil.Process(launcher.pid)
        victim = draw.choice([parent, *parent.children(recursive=True)])
        victim.kill()
    launcher.wait()
    return False


def try_kills(strategy: str, seed: int, kills: int, folder: Path, expected: str) -> Trial:
    draw, run = random.Random(seed), folder / f"{strategy}-{seed}"
    command, count = make_command(strategy, folder, run), 0
    while count < kills and not kill_once(command, draw):
        count += 1
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {"strategy": strategy, "seed": seed, "kills": count, "identical": digest(run) == expected}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=8, help="trials of each strategy")
    parser.add_argument("--kills", type=int, default=3, help="kills of each trial, if the run lasts that long")
    parser.add_argument("--strategies", default="allreduce,sharded,server", help="those with exact resume")
    parser.add_argument("--results", type=Path, default=Path("kills.jsonl"), help="file of finished trials")
    options = parser.parse_args()
    done: list[Trial] = (
        [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for strategy in options.strategies.split(","):
            seeds = set(range(options.trials)) - {trial["seed"] for trial in done if trial["strategy"] == strategy}
            if not seeds:
                continue
            subprocess.run(make_command(strategy, folder, folder / strategy), check=True, capture_output=True)
            expected = digest(folder / strategy)
            for seed in sorted(seeds):
                trial = try_kills(strategy, seed, options.kills, folder, expected)
                done.append(trial)
                with options.results.open("a") as file:
                    file.write(json.dumps(trial) + "\n")
                Console(stderr=True).print(trial)
    table = Table("strategy", "trials", "kills", "bit-identical")
    for strategy in options.strategies.split(","):
        trials = [trial for trial in done if trial["strategy"] == strategy]
        identical = sum(trial["identical"] for trial in trials)
        table.add_row(strategy, str(len(trials)), str(sum(trial["kills"] for trial in trials)), str(identical))
    Console().print(table)


if __name__ == "__main__":
    main()
