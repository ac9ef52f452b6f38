"""Measures the bytes that every strategy sends, with the interface counters of emulated hosts, and compares them with the
formula and with the strategy's own count.

Each process runs on its own emulated host. The difference between a longer and a shorter run gives the bytes per step,
without start, evaluation and checkpoint. Needs root.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from lockstep.lab.emulated_network import EmulatedNetwork
from lockstep.lab.trial import run_trial
from lockstep.run.journal import read

Formula = Callable[[float, int, int], float]


def ring_bytes(p: float, w: int, s: int) -> float:
    return 2 * p * (w - 1)


SETTINGS: dict[str, tuple[list[str], int, Formula | None]] = {
    "allreduce": ([], 0, ring_bytes),
    "allreduce bf16": (["strategy.gradients=bf16"], 0, lambda p, w, s: ring_bytes(p, w, s) / 2),
    "sharded, kept": (["strategy.name=sharded", "strategy.keep_gathered=true"], 0, ring_bytes),
    "sharded": (["strategy.name=sharded"], 0, None),
    "powersgd": (["strategy.gradients=powersgd", "strategy.powersgd_start=2"], 0, None),
    "replicas": (["strategy.name=replicas"], 0, lambda p, w, s: 0.0),
    "server sync, colocated": (["strategy.name=server"], 0, ring_bytes),
    "server sync, 1 server": (["strategy.name=server"], 1, lambda p, w, s: 2 * p * w),
    "server async, 1 server": (["strategy.name=server", "strategy.mode=async"], 1, lambda p, w, s: 2 * p * w),
    "resilient": (["strategy.name=resilient"], 0, ring_bytes),
    "local, every 5": (["strategy.name=local", "strategy.every=5"], 0, lambda p, w, s: ring_bytes(p, w, s) / 5),
}
"""Settings, dedicated servers, and a formula for the bytes per step of all processes, with `p` bytes of parameters, `w`
workers and `s` servers. None: the formula depends on single layers, and the strategy's own count implements it."""


def count_sent(config: Path, run: Path, settings: list[str], servers: int, workers: int, steps: int) -> int:
    """Returns the bytes that all processes sent in one run. `resilient` has its own launcher and lighthouse, so it runs on
    one host and its loopback is counted."""
    if "strategy.name=resilient" in settings:
        with EmulatedNetwork(1) as network:
            (host,) = network.members
            words = ["train", str(config), *settings, f"train.steps={steps}"]
            words += ["--workers", str(workers), "--run", str(run)]
            subprocess.run(host.command([sys.executable, "-m", "lockstep", *words]), check=True, capture_output=True)
            return host.read_counter("tx_bytes", "lo")
    with EmulatedNetwork(workers + servers) as network:
        run_trial(run, config, [*settings, f"train.steps={steps}"], workers, servers, without="", network=network)
        return sum(host.read_counter("tx_bytes") for host in network.members)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="workers of each run")
    parser.add_argument("--steps", type=int, nargs=2, default=(10, 30), help="steps of the shorter and the longer run")
    names = list(SETTINGS)
    parser.add_argument("--only", nargs="*", choices=names, default=names, help="measure only these")
    options = parser.parse_args()
    table = Table(
        "strategy", "workers", "measured MB/step", "formula", "measured / formula", "journal", title="Bytes per step"
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = write_config(folder)
        subprocess.run([sys.executable, "-m", "lockstep", "prepare", str(config)], check=True, capture_output=True)
        for name in options.only:
            settings, servers, formula = SETTINGS[name]
            few, many = options.steps
            runs = {steps: folder / f"{name}-{steps}" for steps in (few, many)}
            totals = [
                count_sent(config, runs[steps], settings, servers, options.workers, steps) for steps in (few, many)
            ]
            measured = (totals[1] - totals[0]) / (many - few)
            run = runs[many]
            lines = [line for rank in range(options.workers) for line in read(run / "journal", rank).steps]
            own = sum(line["bytes_sent"] for line in lines if line["step"] > few) / (many - few)
            expected = formula(count_parameter_bytes(run), options.workers, servers) if formula else own
            ratio = f"{measured / expected:.3f}" if expected else "-"
            shown = [f"{value / 1e6:.3f}" for value in (measured, expected)]
            table.add_row(name, str(options.workers), *shown, ratio, f"{own / 1e6:.3f}")
            Console(stderr=True).print(f"{name}: {shown[0]} MB measured, {shown[1]} MB expected")
    Console().print(table)


def write_config(folder: Path) -> Path:
    """Writes the config of a model with two million parameters, so large that small messages do not matter."""
    model = {"encoder_layers": 2, "decoder_layers": 2, "width": 192, "feed_forward": 768, "heads": 4}
    config = {
        "data": {
            "languages": ["en", "de"],
            "grammar": {"train": 4000, "validation": 20, "test": 20},
            "vocabulary": {"size": 2500, "kind": "bpe"},
            "corpus": str(folder / "corpus"),
        },
        "batch": {"words": 400},
        "model": model,
        "train": {"precision": "fp32", "threads": 1, "evaluate_every": 10**6, "checkpoint_every": 10**6},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def count_parameter_bytes(run: Path) -> float:
    """Returns the bytes of the parameters in fp32."""
    from safetensors import safe_open

    newest = max((run / "checkpoints").glob("step-*"))
    with safe_open(newest / "model" / "model.safetensors", framework="numpy") as file:
        return 4.0 * sum(file.get_tensor(name).size for name in file.keys())  # noqa: SIM118


if __name__ == "__main__":
    main()
