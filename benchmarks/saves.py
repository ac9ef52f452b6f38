"""Measures what a save costs a Transformer base (60.9 million parameters): how long training waits, and how much slower
steps are while the checkpoint is written in the background.

    python benchmarks/saves.py [--workers 2] [--steps 240] [--every 48] [--folder FOLDER]

It trains on made-up words, first with train.save=background, then with train.save=wait, and reads all figures from the
journals. The first save and the last one are left out: the first one may wait for memory, the last one is never in the
background. Steps of the write are those that ended between its begin and its end; the others of the same run are the
yardstick.
"""

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import yaml
from rich.console import Console
from rich.table import Table

from lockstep.run.journal import WorkerLines, read

WORDS = 60_000
"""Made-up words: enough for a vocabulary of 32,700 pieces."""
CONFIG = {
    "batch": {"words": 300},
    "model": {"encoder_layers": 6, "decoder_layers": 6, "width": 512, "feed_forward": 2048, "heads": 8},
    "train": {"evaluate_every": None, "precision": "fp32", "keep_last": 2, "restarts": 0},
    "watch": {"probe": False},
}


def write_corpus(folder: Path) -> Path:
    """Writes sentences of made-up words and a config for them; returns the config."""
    draw = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(draw.choices(letters, k=draw.randint(4, 9))) for _ in range(WORDS)]
    for name, count in (("train", 12_000), ("valid", 100)):
        for language in ("en", "de"):
            lines = (" ".join(draw.choices(words, k=draw.randint(8, 20))) for _ in range(count))
            (folder / f"{name}.{language}").write_text("".join(line + "\n" for line in lines))
    data = {
        "folder": str(folder),
        "train": ["train"],
        "validation": ["valid"],
        "corpus": str(folder / "corpus"),
        "cleaning": 1,
        "vocabulary": {"size": 32_700},
    }
    config = folder / "base.yaml"
    config.write_text(yaml.safe_dump(CONFIG | {"data": data}))
    return config


def train(config: Path, run: Path, workers: int, *settings: str) -> list[WorkerLines]:
    words = [
        sys.executable,
        "-m",
        "lockstep",
        "train",
        str(config),
        *settings,
        "--workers",
        str(workers),
        "--run",
        str(run),
    ]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return [read(run / "journal", rank) for rank in range(workers)]


def list_saves(lines: WorkerLines) -> list[dict[str, float]]:
    """Returns the saves between the first one and the last one."""
    return lines.of("checkpoint")[1:-1]


def find_slowing(lines: WorkerLines, every: int) -> tuple[float, float, int]:
    """Returns the median seconds of steps during a write and of the others, and the number of the former."""
    during, others = list[float](), list[float]()
    for step in lines.steps:
        if step["warmup"]:
            continue
        begin = step["time"] - step["seconds"]
        spans = [(one["time"] - one["background_seconds"], one["time"]) for one in list_saves(lines)]
        overlaps = [max(0.0, min(end, step["time"]) - max(first, begin)) for first, end in spans]
        share = max(overlaps, default=0.0) / step["seconds"]
        if share > 0.9:
            during.append(step["seconds"])
        elif share == 0.0 and step["step"] > 2 * every:
            others.append(step["seconds"])
    return median(during or [float("nan")]), median(others or [float("nan")]), len(during)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument(
        "--every", type=int, default=48, help="steps between two saves; fewer, and a save waits for the one before"
    )
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        config = write_corpus(folder)
        settings = (f"train.steps={options.steps}", f"train.checkpoint_every={options.every}")
        runs = {
            save: train(config, folder / save, options.workers, *settings, f"train.save={save}")
            for save in ("background", "wait")
        }
    show(runs, options.every)


def show(runs: dict[str, list[WorkerLines]], every: int) -> None:
    table = Table(title=f"{len(runs['wait'])} workers, a save every {every} steps")
    for heading in ("", "saves", "MB", "training waits, ms", "shortest", "longest", "in the background, s"):
        table.add_column(heading, justify="right")
    stalls: dict[str, float] = {}
    for name, workers in runs.items():
        saves = [list_saves(lines) for lines in workers]
        waits = [max(each) for each in zip(*([one["seconds"] for one in own] for own in saves), strict=True)]
        stalls[name] = median(waits)
        background = median(one["background_seconds"] for one in saves[0])
        table.add_row(
            name,
            f"{len(waits)}",
            f"{saves[0][0]['bytes'] / 1e6:,.0f}",
            f"{1000 * stalls[name]:,.0f}",
            f"{1000 * min(waits):,.0f}",
            f"{1000 * max(waits):,.0f}",
            f"{background:.1f}",
        )
    during, others, count = find_slowing(runs["background"][0], every)
    console = Console()
    console.print(table)
    console.print(
        f"A save in the background stalls {100 * stalls['background'] / stalls['wait']:.1f} % of a synchronous one."
    )
    slower = 100 * (during / others - 1)
    console.print(f"Steps during a write: {during:.3f} s ({count}), others {others:.3f} s: {slower:+.1f} %.")


if __name__ == "__main__":
    main()
