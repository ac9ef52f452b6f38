"""Makes faults in real runs on purpose, and counts how often Lockstep names the right worker and cause.

Each trial trains a small model with two workers. Something happens to worker 1 in step 60 (once: a restarted worker is left
alone), or to its disk, its memory, its processor or the network between two emulated hosts. The first sentence that says
what is wrong must name the right worker (or host, or disk) and the right cause. Control trials have no fault, but
evaluations and saves; some run beside a program that keeps a core busy. Whatever is named in them is a false alarm.

    python benchmarks/faults.py --results FILE [--only SIGKILL "disk full"] [--no-controls | --only-controls]

Needs root on Linux for disks, control groups and emulated hosts: what cannot be made is said and does not count. Every
finished trial is added to the file at once. The same command continues, and skips what this commit of `src` has measured.
Nothing else should use the machine.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fault_cases.cases import CASES, CONTROL_SHARES, CONTROLS, Case
from fault_cases.trial import Result, TrialSettings, run_trial
from kills import SETTINGS
from proofs import burn
from pydantic import JsonValue
from rich.console import Console
from rich.table import Table

BY_NAME = {case.name: case for case in (*CASES, *CONTROLS)}
CONFIG = Path(__file__).parents[1] / "configs" / "demo.yaml"
MOST_SECONDS, MOST_STEPS = 20.0, 6
"""A fault is named in time within the larger of so many seconds and so many steps."""
CONTROL_SETTINGS = ["train.evaluate_every=200", "train.checkpoint_every=100"]


def judge(case: Case, result: Result) -> str:
    """Returns `right`, `wrong`, `missed` or `impossible`; for a control trial `quiet` or `false alarm`. Who says that the
    cause is unknown has missed it."""
    if result["cannot"]:
        return "impossible"
    if case.is_control:
        return "false alarm" if result["named"] else "quiet"
    if not result["named"]:
        return "missed"
    sentence = result["named"][0]["sentence"]
    if case.is_right(sentence):
        return "right"
    return "missed" if "unknown)" in sentence else "wrong"


def is_in_time(result: Result) -> bool:
    return result["named"][0]["seconds"] <= max(MOST_SECONDS, MOST_STEPS * result["step_seconds"])


def print_table(results: Sequence[tuple[Case, Result]]) -> None:
    table = Table("fault", "trials", "right", "wrong", "missed", "seconds until named", "most", "ended as it should")
    for case in dict.fromkeys(case for case, _ in results):
        own = [result for other, result in results if other == case]
        verdicts = [judge(case, result) for result in own]
        if "impossible" in verdicts:
            table.add_row(case.name, "cannot be made here", "-", "-", "-", "-", "-", "-")
        elif case.is_control:
            table.add_row(case.name, str(len(own)), "-", str(verdicts.count("false alarm")), "-", "-", "-", "-")
        else:
            counts = (str(verdicts.count(verdict)) for verdict in ("right", "wrong", "missed"))
            seconds = [result["named"][0]["seconds"] for result in own if result["named"]] or [float("nan")]
            times = f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}"
            well = "-" if case.settings else str(sum(result["exit_code"] in case.exit_codes for result in own))
            table.add_row(case.name, str(len(own)), *counts, *times, well)
    Console(width=120).print(table)


def print_rates(results: Sequence[tuple[Case, Result]]) -> None:
    """Prints recall and precision over the faults after which nobody can train on."""
    possible = [(case, result) for case, result in results if not result["cannot"]]
    alarms = sum(judge(case, result) == "false alarm" for case, result in possible)
    hard = [(judge(case, result), result) for case, result in possible if case.is_hard and not case.is_control]
    if hard:
        right = [result for verdict, result in hard if verdict == "right"]
        in_time, wrong = sum(map(is_in_time, right)), sum(verdict == "wrong" for verdict, _ in hard)
        print(f"hard faults: recall {len(right) / len(hard):.2f}, within max(20 s, 6 steps) {in_time / len(hard):.2f};")
        print(f"precision, with {alarms} false alarms, {len(right) / max(1, len(right) + wrong + alarms):.2f}")


def read_source_commit() -> str:
    """Returns the last commit of `src`, with a mark when files there have changed since."""
    root = Path(__file__).parents[1]
    commit = ["git", "log", "-1", "--format=%H", "--", "src"]
    changed = ["git", "status", "--porcelain", "--", "src"]
    outputs = [
        subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()
        for command in (commit, changed)
    ]
    return outputs[0][:12] + "-dirty" * bool(outputs[1])


def list_trials(options: argparse.Namespace) -> list[tuple[Case, int]]:
    """Returns the trials that are wanted, each with its number."""
    cases = [case for case in CASES if not options.only or case.name in options.only]
    trials = [] if options.only_controls else [(case, number) for number in range(options.times) for case in cases]
    if not options.no_controls and not options.only:
        total = sum(CONTROL_SHARES)
        counts = [-(-options.controls * share // total) for share in CONTROL_SHARES]
        trials += [(case, number) for case, count in zip(CONTROLS, counts, strict=True) for number in range(count)]
    return trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--results", type=Path, required=True, help="the file that gets a line for every finished trial"
    )
    parser.add_argument("--times", type=int, default=5, help="trials of each fault")
    parser.add_argument("--only", nargs="*", choices=[case.name for case in CASES], help="only these faults")
    parser.add_argument("--controls", type=int, default=20, help="control trials")
    parser.add_argument("--control-seconds", type=float, default=180.0, help="how long each of them trains")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--no-controls", action="store_true")
    group.add_argument("--only-controls", action="store_true")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--stall-seconds", type=float, default=12.0)
    options = parser.parse_args()
    key: dict[str, JsonValue] = {
        "commit": read_source_commit(),
        "steps": options.steps,
        "stall_seconds": options.stall_seconds,
    }
    results: Path = options.results
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    done: dict[tuple[str, int], Result] = {
        (line["name"], line["trial"]): line["result"]
        for line in lines
        if all(line[name] == key[name] for name in key)
        and line.get("control_seconds") in (None, options.control_seconds)
    }
    wanted = list_trials(options)
    with tempfile.TemporaryDirectory() as folder:
        run_missing(options, key, done, wanted, Path(folder))
    judged = [(case, done[case.name, number]) for case, number in wanted]
    print_table(judged)
    print_rates(judged)


def run_missing(
    options: argparse.Namespace,
    key: dict[str, JsonValue],
    done: dict[tuple[str, int], Result],
    wanted: list[tuple[Case, int]],
    folder: Path,
) -> None:
    """Runs the trials that have not been measured, and adds each to the file of results."""
    words = [str(CONFIG), *SETTINGS, f"data.corpus={folder / 'corpus'}", f"train.steps={options.steps}"]
    words += ["train.checkpoint_every=40", f"train.evaluate_every={options.steps}", "watch.probe=false"]
    words += [f"train.stall_seconds={options.stall_seconds}", "train.restarts=1"]
    missing = [(case, number) for case, number in wanted if (case.name, number) not in done]
    if missing:
        prepare = [sys.executable, "-m", "lockstep", "prepare", *words]
        subprocess.run(prepare, check=True, capture_output=True)
    for case, number in missing:
        own = [*words, *CONTROL_SETTINGS] if case.is_control else words
        with burn(case.programs):
            result = run_trial(case, TrialSettings(own, options.control_seconds))
        done[case.name, number] = result
        more = {"control_seconds": options.control_seconds} if case.is_control else {}
        line = {**key, **more, "name": case.name, "trial": number, "result": result}
        with options.results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        said = result["named"][0] if result["named"] else result["cannot"] or "-"
        print(f"{case.name}, {number}: {judge(case, result)}; {said}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
