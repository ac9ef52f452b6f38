"""Measures the speed of `lockstep train` beside the products of its steps alone, an earlier version and other trainers.

    python benchmarks/speed.py [--text FOLDER] [--rounds 3] [--steps 20] [--models S,base] [--json FILE]
    python benchmarks/speed.py --text FOLDER --before CHECKOUT --peers ENVIRONMENT

Every row runs the real command with journal, clock, TensorBoard and progress. Every round runs all rows, so that other load
on the machine affects all of them alike. Figures are medians over the rounds, in wall time between journal lines, without
warm-up steps. FOLDER contains train.en, train.de, val.en and val.de; without it the built-in grammar makes the text.

CHECKOUT is a folder with the source of an earlier version; each of its rows is compared with today's. ENVIRONMENT is a
virtual environment with Eole, fairseq or both (`peers.py` says how to install them); they train model S on the same pieces.
Without it, the loop of a tutorial (`yardstick.py`) is measured instead.
`products alone` multiplies matrices of the shapes of a step, without attention, with all cores as threads of one process:
the limit of a step in which nothing else takes time. FLOPs are those of the matrix products of forward and backward.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
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
MODELS: dict[str, dict[str, JsonValue]] = {
    "S": {"encoder_layers": 3, "decoder_layers": 3, "width": 256, "feed_forward": 1024, "heads": 4, "dropout": 0.1},
    "base": {"encoder_layers": 6, "decoder_layers": 6, "width": 512, "feed_forward": 2048, "heads": 8, "dropout": 0.1},
    "tiny": {"encoder_layers": 4, "decoder_layers": 4, "width": 128, "feed_forward": 256, "heads": 4, "dropout": 0.3},
    "demo": {"encoder_layers": 2, "decoder_layers": 2, "width": 160, "feed_forward": 480, "heads": 4, "dropout": 0.0},
    "lstm": {"name": "lstm", "encoder_layers": 1, "decoder_layers": 2, "width": 384, "dropout": 0.2},
}
WORDS = {"demo": 1000, "lstm": 1000}
"""Target words in a step; 4,096 for other models."""
VOCABULARY = {"demo": 2500, "lstm": 4000, "tiny": 10_000}
"""Pieces, if there is a text; 8,000 for other models."""
CORES = len(os.sched_getaffinity(0))


class RunSummary(TypedDict):
    """The parts of the command's JSON summary that are used here."""

    phase_shares: dict[str, float]
    watching_share: float


class Facts(TypedDict):
    """What is counted in real batches of a model."""

    parameters: int
    flops_per_word: float
    shapes: list[tuple[tuple[int, int], tuple[int, int]]]  # of the products of one step
    words: int  # target words of that step


@dataclass
class Row:
    """A setting and its measurements."""

    model: str
    precision: str
    workers: int
    without: str = ""
    checkout: Path | None = None  # of an earlier version
    speeds: list[float] = field(default_factory=list)  # target words/s
    summaries: list[RunSummary] = field(default_factory=list)

    @property
    def name(self) -> str:
        processes = f"{self.workers} worker{'s' * (self.workers > 1)} x {CORES // self.workers}"
        name = f"{self.model:4} {self.precision}  {processes}{', no communication' * bool(self.without)}"
        return f"{name}, before" if self.checkout else name


def make_rows(models: list[str], precisions: list[str], before: Path | None) -> list[Row]:
    workers = [1, CORES] if CORES > 1 else [1]
    rows = [
        Row(model, precision, count, checkout=checkout)
        for model in models
        for precision in precisions
        for count in workers
        for checkout in ([before, None] if before else [None])
    ]
    return [*rows, Row(models[0], precisions[-1], CORES, without="communication")] if CORES > 1 else rows


def measure(row: Row, config: Path, run: Path, steps: int) -> tuple[float, RunSummary]:
    """Returns target words per second of wall time, and the command's own summary."""
    command = [sys.executable, "-m", "lockstep", "train", str(config), "--workers", str(row.workers), "--json"]
    command += ["--run", str(run), f"train.precision={row.precision}", f"train.threads={CORES // row.workers}"]
    command += [f"train.steps={steps}"]
    environment = os.environ | {"LOCKSTEP_WITHOUT": row.without}
    if row.checkout:
        environment["PYTHONPATH"] = str(row.checkout.absolute() / "src")
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
    from lockstep.models import kernels
    from lockstep.watch.peak import measure_matmul_peak

    torch.set_num_threads(CORES)
    return measure_matmul_peak(torch.device("cpu"), DTYPES[precision], 2.0, kernels.multiply)


def count_facts(config: Path) -> Facts:
    """Counts parameters and the products of one step."""
    from products import count_products

    return count_products(config)


def measure_products(facts: Facts, precision: str) -> float:
    """Returns the target words per second of the products of one step alone."""
    from products import time_products

    return facts["words"] / time_products(facts["shapes"], precision, CORES)


def measure_yardstick(corpus: Path, steps: int) -> float:
    """Returns the target words per second of the tutorial's loop."""
    program = Path(__file__).with_name("yardstick.py")
    command = [sys.executable, str(program), str(corpus), "--steps", str(steps), "--threads", str(CORES)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(output)["words_per_second"])


def write_configs(folder: Path, text: Path | None, models: list[str]) -> dict[str, Path]:
    configs = {}
    for model in models:
        size = VOCABULARY.get(model, 8000)
        data: dict[str, JsonValue] = {"grammar": {"train": 30_000, "validation": 8}, "vocabulary": {"size": 2500}}
        if text is not None:
            data = {"folder": str(text.absolute()), "train": ["train"], "validation": ["val"]}
            data["vocabulary"] = {"size": size}
        config = {
            "data": data | {"corpus": str(find_corpus(folder, model))},
            "batch": {"words": WORDS.get(model, 4096)},
            "model": MODELS[model],
            "train": {"evaluate_every": 10**9, "checkpoint_every": 10**9},
            "search": {"beam": 1, "max_ratio": 0.01},
        }
        configs[model] = folder / f"{model}.yaml"
        configs[model].write_text(yaml.safe_dump(config))
    return configs


def find_corpus(folder: Path, model: str) -> Path:
    return folder / f"corpus-{VOCABULARY.get(model, 8000)}"


def count_steps(model: str, steps: int) -> int:
    """Returns the steps of a row: small models take more of them, large ones fewer."""
    return {"base": max(4, steps // 4), "tiny": 2 * steps, "demo": 8 * steps, "lstm": 3 * steps}.get(model, steps)


@dataclass
class Measured:
    """All measurements, one value per round."""

    rows: list[Row]
    facts: dict[str, Facts]
    peaks: dict[str, list[float]]  # FLOP/s, by precision
    products: dict[tuple[str, str], list[float]]  # target words/s, by model and precision
    peers: dict[tuple[str, str], list[float]]  # target words/s, by peer and precision
    yardsticks: list[float] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        named = {
            name: {" ".join(key): value for key, value in getattr(self, name).items()} for name in ("products", "peers")
        }
        rows = [vars(row) | {"checkout": str(row.checkout)} for row in self.rows]
        return {"rows": rows, "facts": self.facts, "peaks": self.peaks, "yardstick": self.yardsticks, **named}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="folder with train.en, train.de, val.en, val.de")
    parser.add_argument("--rounds", type=int, default=3, help="how often each row is run")
    parser.add_argument("--steps", type=int, default=20, help="measured steps of a row of model S")
    parser.add_argument("--models", default="S,base", help=f"some of {','.join(MODELS)}")
    parser.add_argument("--precisions", default="fp32,bf16", help="fp32, bf16 or both")
    parser.add_argument("--before", type=Path, help="source folder of an earlier version to compare with")
    parser.add_argument("--peers", type=Path, help="virtual environment with Eole or fairseq, for model S")
    parser.add_argument("--emulated", action="store_true", help="measure bf16 even where it is emulated")
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    options = parser.parse_args()

    import torch

    from lockstep.train.precision import has_native_bf16

    native = has_native_bf16(torch.device("cpu"))
    models = options.models.split(",")
    precisions = [name for name in options.precisions.split(",") if name == "fp32" or native or options.emulated]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        configs = write_configs(folder, options.text, models)
        measured = Measured(
            make_rows(models, precisions, options.before),
            {model: run_in_process(count_facts, path) for model, path in configs.items()},
            {precision: [] for precision in precisions if precision == "fp32" or native},
            {(model, precision): [] for model in models for precision in precisions if precision == "fp32" or native},
            {},
        )
        for number in range(options.rounds):
            measure_round(measured, folder, configs, f"round {number + 1}/{options.rounds}", options)
    print_tables(measured)
    if options.json:
        options.json.write_text(json.dumps(measured.as_dict(), indent=1))


def measure_round(
    measured: Measured, folder: Path, configs: dict[str, Path], name: str, options: argparse.Namespace
) -> None:
    say(f"{name}: peak, products alone and tutorial")
    for precision, peaks in measured.peaks.items():
        peaks.append(run_in_process(measure_peak, precision))
    for (model, precision), speeds in measured.products.items():
        speeds.append(run_in_process(measure_products, measured.facts[model], precision))
    corpus = find_corpus(folder, next(iter(configs)))
    if not options.peers:
        measured.yardsticks.append(measure_yardstick(corpus, 3 + max(5, options.steps // 3)))
    else:
        from peers import list_peers, measure_peer

        for peer in list_peers(options.peers):
            for precision in set(peer.precisions) & set(measured.peaks):
                say(f"{name}: {peer.name} {precision}")
                speed = measure_peer(peer, precision, options.peers, corpus, folder, MODELS["S"], options.steps)
                measured.peers.setdefault((peer.name, precision), []).append(speed)
    for row in measured.rows:
        say(f"{name}: {row.name}")
        run = folder / f"{row.name} {name}".replace(" ", "-").replace("/", "-")
        speed, summary = measure(row, configs[row.model], run, WARMUP_STEPS + count_steps(row.model, options.steps))
        row.speeds.append(speed)
        row.summaries.append(summary)


def say(message: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {message}, load {os.getloadavg()[0]:.2f}", file=sys.stderr)


def print_tables(measured: Measured) -> None:
    median = statistics.median
    for model, known in measured.facts.items():
        flops = known["flops_per_word"] / 1e6
        print(f"{model}: {known['parameters']:,} parameters, {flops:.1f} MFLOP per target word")
    for precision, rates in measured.peaks.items():
        print(f"peak {precision}, {CORES} threads: {median(rates) / 1e9:.0f} GFLOP/s")
    print(f"\n{'setting':40} {'words/s':>8} {'GFLOP/s':>8} {'of peak':>8} {'of products':>12}  phases of a step")
    if measured.yardsticks:
        print(f"{'tutorial, fp32, 1 process x ' + str(CORES):40} {median(measured.yardsticks):8,.0f}")
    for (peer, precision), speeds in measured.peers.items():
        print(f"{f'{peer}, {precision}':40} {median(speeds):8,.0f}")
    for (model, precision), speeds in measured.products.items():
        print(f"{f'{model:4} {precision}  products alone':40} {median(speeds):8,.0f}")
    for row in measured.rows:
        print_row(row, measured)
    print()
    for text, ratios in list_comparisons(measured):
        print(f"{text:60} {median(ratios):.2f}  ({min(ratios):.2f} to {max(ratios):.2f})")


def print_row(row: Row, measured: Measured) -> None:
    median = statistics.median
    flops = measured.facts[row.model]["flops_per_word"]
    shares = {
        phase: median(summary["phase_shares"][phase] for summary in row.summaries)
        for phase in row.summaries[0]["phase_shares"]
    }
    a_step = ", ".join(f"{phase} {share:.1%}" for phase, share in shares.items())
    watching = median(summary["watching_share"] for summary in row.summaries)
    of_peak = of_products = ""
    if row.precision in measured.peaks:
        of_peak = f"{divide(row.speeds, measured.peaks[row.precision]) * flops:.0%}"
        of_products = f"{divide(row.speeds, measured.products[row.model, row.precision]):.0%}"
    figures = f"{median(row.speeds):8,.0f} {median(row.speeds) * flops / 1e9:8.0f} {of_peak:>8} {of_products:>12}"
    print(f"{row.name:40} {figures}  {a_step}; watching {watching:.2%}")


def divide(above: Sequence[float], below: Sequence[float]) -> float:
    """Returns the median of the ratios of the rounds."""
    return statistics.median(list_ratios(above, below))


def list_ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=True)]


def list_comparisons(measured: Measured) -> list[tuple[str, list[float]]]:
    """Returns descriptions of two rows, and the ratios of their speeds in each round."""
    known = {(row.model, row.precision, row.workers, row.without, row.checkout): row for row in measured.rows}
    compared = []
    for row in measured.rows:
        before = [one for one in measured.rows if one.checkout and one.name == f"{row.name}, before"]
        compared += [(f"{row.name} / before", list_ratios(row.speeds, one.speeds)) for one in before]
        if row.checkout or row.without:
            continue
        one_worker = known[row.model, row.precision, 1, "", None]
        alone = known.get((row.model, row.precision, row.workers, "communication", None))
        if row is not one_worker:
            text = f"{row.model} {row.precision}: {CORES} workers x 1 / 1 x {CORES}"
            compared.append((text, list_ratios(row.speeds, one_worker.speeds)))
        if alone:
            text = f"{row.model} {row.precision}: all-reduce / no communication"
            compared.append((text, list_ratios(row.speeds, alone.speeds)))
        for (peer, precision), speeds in measured.peers.items():
            if row.model == "S" and precision == row.precision:
                compared.append((f"{row.name} / {peer} {precision}", list_ratios(row.speeds, speeds)))
    return compared


if __name__ == "__main__":
    main()
