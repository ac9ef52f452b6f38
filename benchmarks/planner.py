"""How good is the planner? It sees one worker alone, a probe of each link, and how much slower replicas are on shared
cores. Then 2 and 4 emulated hosts really train over links of 100 Mbit/s and 1 Gbit/s, and predictions are laid beside it.

Needs root, for the emulated network, and a machine that does nothing else: about 20 minutes. It may be interrupted; the
same command goes on, with what is in the file already.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rich.console import Console

from lockstep.files import read_json, write_json
from lockstep.lab.emulated_network import EmulatedNetwork
from lockstep.lab.plan.cluster import Cluster
from lockstep.lab.plan.costs import Link, Wiring
from lockstep.lab.plan.job import Choice, PlannedJob
from lockstep.lab.plan.predict import PlanRow, make_plan
from lockstep.lab.plan.profile import Profile, measure_profile
from lockstep.lab.plan.score import MeasuredSetting, Score, average_step, score, summarise_scores
from lockstep.lab.plan.sweep import measure_link
from lockstep.lab.trial import Trial, make_trial_settings, run_trial

CONFIG = Path(__file__).parents[1] / "configs" / "demo.yaml"
SETTINGS = [  # 10,653,760 parameters
    "data.grammar.train=20000",
    "model.encoder_layers=4",
    "model.decoder_layers=3",
    "model.width=320",
    "model.feed_forward=1280",
    "model.heads=5",
    "batch.words=400",
    "batch.per=worker",
    "train.threads=1",
    "train.precision=fp32",
]
HOSTS, LINKS = (2, 4), ("100mbit", "1gbit")
CHOICES = {
    "allreduce fp32": Choice("allreduce"),
    "allreduce bf16": Choice("allreduce", "bf16"),
    "server sync": Choice("server"),
    "local every 10": Choice("local", every=10),
}
STEPS, LOCAL_STEPS, PROFILE_STEPS, REPLICA_STEPS = 15, 30, 45, 30


def overrides(choice: Choice) -> list[str]:
    words = [f"strategy.name={choice.strategy}"]
    if choice.strategy in ("allreduce", "local"):
        words.append(f"strategy.gradients={choice.gradients}")
    return [*words, f"strategy.every={choice.every}"] if choice.strategy == "local" else words


def trial(choice: Choice, hosts: int, link: str | None, steps: int) -> Trial:
    with tempfile.TemporaryDirectory(prefix="lockstep-planner-") as folder, EmulatedNetwork(hosts, link) as network:
        settings = [*SETTINGS, *overrides(choice), *make_trial_settings(steps)]
        return run_trial(Path(folder) / "run", CONFIG, settings, hosts, network=network)


def alone(found: Trial) -> float:
    """Seconds per target word of computing, over all workers."""
    phases = ("forward", "backward")
    lines = [line for worker in found.measured for line in worker]
    return median(sum(line["phases"][phase] for phase in phases) / line["words"]["target"] for line in lines)


def measured(choice: Choice, hosts: int, link: str) -> MeasuredSetting:
    every = choice.every if choice.strategy == "local" else None
    found = trial(choice, hosts, link, LOCAL_STEPS if every else STEPS)
    seconds = fmean(average_step(worker, every) for worker in found.measured)
    return MeasuredSetting(hosts, choice.strategy, seconds, choice.gradients, link, every=every)


def calibrate(state: dict[str, Any], keep: Any, say: Console) -> None:
    """What the planner is told. It sees nothing else."""
    if "profile" not in state:
        say.print("Profile of one worker")
        keep(profile=measure_profile(CONFIG, SETTINGS, steps=PROFILE_STEPS).as_dict())
    for link in LINKS:
        if link not in state.setdefault("links", {}):
            say.print(f"Probe of a link of {link}")
            keep(links=state["links"] | {link: asdict(measure_link(link))})
    point = Profile.from_dict(state["profile"]).points[-1]
    for hosts in HOSTS:
        if str(hosts) not in state.setdefault("contention", {}):
            say.print(f"Replicas on {hosts} hosts")
            together = alone(trial(Choice("replicas"), hosts, None, REPLICA_STEPS))
            times = together * point.words / (point.forward + point.backward)
            keep(contention=state["contention"] | {str(hosts): times})


def predict(state: dict[str, Any]) -> list[PlanRow]:
    profile, pipes = Profile.from_dict(state["profile"]), [Link(**state["links"][link]) for link in LINKS]
    times = {1: 1.0} | {int(hosts): times for hosts, times in state["contention"].items()}
    cores = len(os.sched_getaffinity(0))
    job = PlannedJob(profile, profile.points[-1].words, per_worker=True, cores=cores, contention=times)
    cluster = Cluster("emulated hosts", max(HOSTS), Wiring(pipes[0]), cores=cores, contention=times)
    return make_plan(job, cluster, HOSTS, tuple(CHOICES.values()), pipes).rows


def table(scores: list[Score]) -> str:
    lines = ["| hosts | link | setting | predicted | interval | measured | error |", "|---|---|---|---|---|---|---|"]
    for one in scores:
        interval = f"{one.low:.2f} to {one.high:.2f}" + ("" if one.is_inside else " \\*")
        cells = (str(one.workers), one.link, one.name, f"{one.predicted:.2f} s", interval, f"{one.measured:.2f} s")
        lines.append(f"| {' | '.join(cells)} | {one.error:+.1%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("planner.json"), help="what was measured so far")
    parser.add_argument("--only", choices=list(CHOICES), help="one of the settings")
    parser.add_argument("--hosts", type=int, choices=HOSTS, help="only so many")
    parser.add_argument("--link", choices=LINKS, help="only this one")
    options = parser.parse_args()
    say = Console(stderr=True)
    state: dict[str, Any] = read_json(options.out) or {}

    def keep(**facts: Any) -> None:
        state.update(facts)
        write_json(options.out, state)

    prepare = [sys.executable, "-m", "lockstep", "prepare", str(CONFIG), *SETTINGS]
    subprocess.run(prepare, check=True, capture_output=True)
    calibrate(state, keep, say)
    found = state.setdefault("measured", {})
    for hosts in HOSTS:
        for link in LINKS:
            for name, choice in CHOICES.items():
                key, wanted = f"{hosts} {link} {name}", (options.hosts, options.link, options.only)
                if key in found or any(
                    w not in (None, is_) for w, is_ in zip(wanted, (hosts, link, name), strict=True)
                ):
                    continue
                say.print(f"Rehearsal: {key}")
                found[key] = asdict(measured(choice, hosts, link))
                keep(measured=found)
    scores, _ = score(predict(state), [MeasuredSetting(**one) for one in found.values()])
    profile = Profile.from_dict(state["profile"])
    print(f"{profile.parameters:,} parameters; one worker alone computes a step in {_alone(profile):.3f} s; ", end="")
    print(", ".join(f"{hosts} replicas take {times:.2f} times as long" for hosts, times in state["contention"].items()))
    for link, pipe in state["links"].items():
        print(f"{link}: {8 * pipe['bytes_per_second'] / 1e6:,.0f} Mbit/s, error {pipe['error']:.0%}")
    print(f"\n{table(scores)}\n\n{summarise_scores(scores)}")


def _alone(profile: Profile) -> float:
    point = profile.points[-1]
    return point.forward + point.backward + point.update + point.other


if __name__ == "__main__":
    main()
