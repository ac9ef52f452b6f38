"""Measures the speed of `lockstep train`, and compares it with the peak of the machine and with a tutorial's loop.

    python benchmarks/speed.py [--text FOLDER] [--rounds 3] [--steps 20] [--models S,base] [--json FILE]

Every row runs the real command with journal, clock, TensorBoard and progress. Every round runs all rows, so that other load
on the machine affects all of them alike. Figures are medians over the rounds, in wall time between journal lines, without
warm-up steps. FOLDER contains train.en, train.de, val.en and val.de; without it the built-in grammar makes the text.
Ratios are relative to the tutorial's loop (`yardstick.py`) in fp32, with all cores as threads of one process.

The peak is the rate of one large matrix product in the same round, in the number format of the row and with as many
threads as the row has in total. FLOPs are those of the matrix products of forward and backward, as torch counts them.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypedDict, TypeVar

import yaml
from pydantic import JsonValue

P = ParamSpec("P")
T = TypeVar("T")
WARMUP_STEPS = 5
MODELS: dict[str, dict[str, float]] = {
    "S": {"encoder_layers": 3, "decoder_layers": 3, "width": 256, "feed_forward": 1024, "heads": 4, "dropout": 0.1},
    "base": {"encoder_layers": 6, "decoder_layers": 6, "width": 512, "feed_forward": 2048, "heads": 8, "dropout": 0.1},
}
CORES = len(os.sched_getaffinity(0))


class RunSummary(TypedDict):
    """The parts of the command's JSON summary that are used here."""

    phase_shares: dict[str, float]
    watching_share: float


@dataclass
class Row:
    """A setting and its measurements."""

    model: str
    precision: str
    workers: int
    without: str = ""
    speeds: list[float] = field(default_factory=list)  # target words/s
    peak_shares: list[float] = field(default_factory=list)
    summaries: list[RunSummary] = field(default_factory=list)

    @property
    def name(self) -> str:
        processes = f"{self.workers} worker{'s' * (self.workers > 1)} x {CORES // self.workers}"
        return f"{self.model:4} {self.precision}  {processes}{', no communication' * bool(self.without)}"


def make_rows(models: list[str], precisions: list[str]) -> list[Row]:
    rows = [Row(model, precision, workers) for model in models for precision in precisions for workers in (1, CORES)]
    return [*rows, Row(models[0], "fp32", CORES, without="communication")] if CORES > 1 else rows[::2]


def measure(row: Row, config: Path, run: Path, steps: int) -> tuple[float, RunSummary]:
    """Returns target words per second of wall time, and the command's own summary."""
    command = [sys.executable, "-m", "lockstep", "train", str(config), "--workers", str(row.workers), "--json"]
    command += ["--run", str(run), f"train.precision={row.precision}", f"train.threads={CORES // row.workers}"]
    command += [f"train.steps={steps}"]
    environment = os.environ | {"LOCKSTEP_WITHOUT": row.without}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    lines = [json.loads(line) for line in Path(run, "journal", "worker-0000.jsonl").read_text().splitlines()]
    steps_done = [line for line in lines if line["kind"] == "step"][WARMUP_STEPS - 1 :]
    words = sum(line["global_target_words"] for line in steps_done[1:])
    summary: RunSummary = json.loads(done.stdout)
    return words / (steps_done[-1]["time"] - steps_done[0]["time"]), summary


def run_in_process(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function in a new process, which does not share imports and memory with this one."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *args, **kwargs).result()


def measure_peak(precision: str) -> float:
    """Returns the FLOP/s of the best of several large matrix products with all cores."""
    import torch

    from lockstep.dtypes import DTYPES
    from lockstep.watch.peak import measure_matmul_peak

    torch.set_num_threads(CORES)
    return measure_matmul_peak(torch.device("cpu"), DTYPES[precision], seconds=2.0)


def count_flops(config: Path) -> dict[str, float]:
    """Returns FLOPs per target word, padding and parameters, from three real batches."""
    from lockstep.config import load
    from lockstep.tasks.make_task import make_task
    from lockstep.tasks.translation import PairBatch
    from lockstep.watch.flops import FlopCount

    task = make_task(load(config, []))
    module, batches = task.module(), task.batches(0, 0)
    words = positions = computed = 0
    counter = FlopCount()
    for step in range(1, 4):
        (batch,) = task.micro_batches(task.order.share(next(batches), 0, 1), step)
        assert isinstance(batch, PairBatch)
        with counter:
            module(batch).backward()
        words += batch.target_words
        for layout in (batch.source_layout, batch.target_layout):
            positions += int(layout.lengths.sum())
            computed += layout.rows * layout.longest
    parameters = sum(parameter.numel() for parameter in module.parameters())
    facts = {"flops_per_word": counter.total / words, "attention_padding": 1 - positions / computed}
    return facts | {"parameters": parameters}


def measure_yardstick(corpus: Path, steps: int) -> float:
    """Returns the target words per second of the tutorial's loop."""
    program = Path(__file__).with_name("yardstick.py")
    command = [sys.executable, str(program), str(corpus), "--steps", str(steps), "--threads", str(CORES)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(output)["words_per_second"])


def write_configs(folder: Path, text: Path | None, models: list[str]) -> dict[str, Path]:
    data: dict[str, JsonValue] = {"grammar": {"train": 30_000, "validation": 8}, "vocabulary": {"size": 3000}}
    if text is not None:
        data = {"folder": str(text.absolute()), "train": ["train"], "validation": ["val"], "vocabulary": {"size": 8000}}
    configs = {}
    for model in models:
        config = {
            "data": data | {"corpus": str(folder / "corpus")},
            "batch": {"words": 4096},
            "model": MODELS[model],
            "train": {"evaluate_every": 10**9, "checkpoint_every": 10**9},
            "search": {"beam": 1, "max_ratio": 0.01},
        }
        configs[model] = folder / f"{model}.yaml"
        configs[model].write_text(yaml.safe_dump(config))
    return configs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="folder with train.en, train.de, val.en, val.de")
    parser.add_argument("--rounds", type=int, default=3, help="how often each row is run")
    parser.add_argument("--steps", type=int, default=20, help="measured steps of a row")
    parser.add_argument("--models", default="S,base", help="S, base or both")
    parser.add_argument("--emulated", action="store_true", help="measure bf16 even where it is emulated")
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    options = parser.parse_args()

    import torch

    from lockstep.train.precision import has_native_bf16

    native = has_native_bf16(torch.device("cpu"))
    models = options.models.split(",")
    rows = make_rows(models, ["fp32", "bf16"] if native or options.emulated else ["fp32"])
    measured_peaks = ["fp32", "bf16"] if native else ["fp32"]
    yardsticks: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        configs = write_configs(Path(scratch), options.text, models)
        facts = {model: run_in_process(count_flops, path) for model, path in configs.items()}
        peaks: dict[str, list[float]] = {precision: [] for precision in measured_peaks}
        for number in range(options.rounds):
            say(f"round {number + 1}/{options.rounds}: peak and yardstick")
            for precision in measured_peaks:
                peaks[precision].append(run_in_process(measure_peak, precision))
            yardsticks.append(measure_yardstick(Path(scratch, "corpus"), 3 + max(5, options.steps // 3)))
            for row in rows:
                say(f"round {number + 1}/{options.rounds}: {row.name}")
                steps = options.steps if row.model == "S" else max(4, options.steps // 4)
                run = Path(scratch, f"{row.name} {number}".replace(" ", "-"))
                speed, summary = measure(row, configs[row.model], run, WARMUP_STEPS + steps)
                row.speeds.append(speed)
                row.summaries.append(summary)
                if row.precision in peaks:
                    share = speed * facts[row.model]["flops_per_word"] / peaks[row.precision][-1]
                    row.peak_shares.append(share)
    print_tables(rows, facts, peaks, yardsticks, native)
    if options.json:
        measured = [vars(row) for row in rows]
        options.json.write_text(
            json.dumps({"rows": measured, "facts": facts, "peaks": peaks, "yardstick": yardsticks}, indent=1)
        )


def say(message: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {message}, load {os.getloadavg()[0]:.2f}", file=sys.stderr)


def print_tables(
    rows: list[Row],
    facts: dict[str, dict[str, float]],
    peaks: dict[str, list[float]],
    yardsticks: list[float],
    native: bool,
) -> None:
    median = statistics.median
    for model, known in facts.items():
        print(
            f"{model}: {known['parameters']:,} parameters, {known['flops_per_word'] / 1e6:.1f} MFLOP per target word, "
            f"padding only in attention scores ({known['attention_padding']:.1%} of their rows)"
        )
    for precision, rates in peaks.items():
        print(f"peak {precision}, {CORES} threads: {median(rates) / 1e9:.0f} GFLOP/s")
    if not native:
        print("bf16: this CPU has no bf16 matrix products")
    base = median(yardsticks)
    print(f"\n{'setting':40} {'words/s':>8} {'ratio':>6} {'GFLOP/s':>8} {'of peak':>8}  phases of a step")
    print(f"{'yardstick (S, fp32, 1 process x ' + str(CORES) + ')':40} {base:8,.0f} {1:6.2f}")
    for row in rows:
        speed = median(row.speeds)
        shares = {
            phase: median(summary["phase_shares"][phase] for summary in row.summaries)
            for phase in row.summaries[0]["phase_shares"]
        }
        a_step = ", ".join(f"{phase} {share:.1%}" for phase, share in shares.items())
        watching = median(summary["watching_share"] for summary in row.summaries)
        ratio = median(s / y for s, y in zip(row.speeds, yardsticks, strict=True))
        shown = f"{ratio:6.2f}" if row.model == "S" else " " * 6
        rate = speed * facts[row.model]["flops_per_word"] / 1e9
        share = f"{median(row.peak_shares):8.0%}" if row.peak_shares else " " * 8
        print(f"{row.name:40} {speed:8,.0f} {shown} {rate:8.0f} {share}  {a_step}; watching {watching:.2%}")
    print()
    for text, above, below in list_comparisons(rows):
        ratio = median(a / b for a, b in zip(above.speeds, below.speeds, strict=True))
        print(f"{text:60} {ratio:.2f}")


def list_comparisons(rows: list[Row]) -> list[tuple[str, Row, Row]]:
    """Returns pairs of rows to compare, with a description."""
    known = {(row.model, row.precision, row.workers, row.without): row for row in rows}
    pairs = []
    for (model, precision, workers, without), row in known.items():
        alone = known.get((model, precision, CORES, "communication"))
        if workers > 1 and not without:
            pairs.append(
                (f"{model} {precision}: {CORES} workers x 1 / 1 x {CORES}", row, known[model, precision, 1, ""])
            )
            if alone:
                pairs.append((f"{model} {precision}: all-reduce / no communication", row, alone))
        if precision == "bf16":
            pairs.append((f"{model}: bf16 / fp32, {workers} workers", row, known[model, "fp32", workers, ""]))
    return pairs


if __name__ == "__main__":
    main()
