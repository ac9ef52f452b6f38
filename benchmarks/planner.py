"""Compares predictions of the planner with measurements.

The planner gets the profile of one worker, a probe of each link, and the slowdown of replicas on shared cores. Then 2 and 4
emulated hosts train over links of 100 Mbit/s and 1 Gbit/s.

Needs root for the emulated network, and about 20 minutes on a machine that runs nothing else. The same command continues
after an interruption, with the measurements in the file.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from statistics import fmean, median

from rich.console import Console

from lockstep.files import read_json, write_json
from lockstep.lab.emulated_network import EmulatedNetwork
from lockstep.lab.plan.cluster import Cluster
from lockstep.lab.plan.costs import LinkModel, Wiring
from lockstep.lab.plan.planned_job import Choice, PlannedJob
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


@dataclass
class Measurements:
    """All measurements so far."""

    profile: Profile | None = None
    links: dict[str, LinkModel] = field(default_factory=dict)
    contention: dict[int, float] = field(default_factory=dict)  # slowdown by number of replicas
    settings: dict[str, MeasuredSetting] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> "Measurements":
        facts = read_json(path) or {}
        return cls(
            Profile.from_dict(facts["profile"]) if "profile" in facts else None,
            {name: LinkModel(**link) for name, link in facts.get("links", {}).items()},
            {int(hosts): times for hosts, times in facts.get("contention", {}).items()},
            {key: MeasuredSetting(**setting) for key, setting in facts.get("measured", {}).items()},
        )

    def save(self, path: Path) -> None:
        facts = {"profile": self.profile.as_dict()} if self.profile is not None else {}
        others = {
            "links": {name: asdict(link) for name, link in self.links.items()},
            "contention": {str(hosts): times for hosts, times in self.contention.items()},
            "measured": {key: asdict(setting) for key, setting in self.settings.items()},
        }
        write_json(path, {**facts, **others})


def list_overrides(choice: Choice) -> list[str]:
    words = [f"strategy.name={choice.strategy}"]
    if choice.strategy in ("allreduce", "local"):
        words.append(f"strategy.gradients={choice.gradients}")
    return [*words, f"strategy.every={choice.every}"] if choice.strategy == "local" else words


def train(choice: Choice, hosts: int, link: str | None, steps: int) -> Trial:
    with tempfile.TemporaryDirectory(prefix="lockstep-planner-") as folder, EmulatedNetwork(hosts, link) as network:
        settings = [*SETTINGS, *list_overrides(choice), *make_trial_settings(steps)]
        return run_trial(Path(folder) / "run", CONFIG, settings, hosts, network=network)


def measure_computing(trial: Trial) -> float:
    """Returns the median seconds of forward and backward per target word, over all workers."""
    phases = ("forward", "backward")
    lines = [line for worker in trial.measured for line in worker]
    return median(sum(line["phases"][phase] for phase in phases) / line["words"]["target"] for line in lines)


def measure(choice: Choice, hosts: int, link: str) -> MeasuredSetting:
    every = choice.every if choice.strategy == "local" else None
    trial = train(choice, hosts, link, LOCAL_STEPS if every else STEPS)
    seconds = fmean(average_step(worker, every) for worker in trial.measured)
    return MeasuredSetting(hosts, choice.strategy, seconds, choice.gradients, link, every=every)


def calibrate(measurements: Measurements, out: Path, say: Console) -> Profile:
    """Measures the inputs of the planner that are missing, and returns the profile."""
    if measurements.profile is None:
        say.print("Profile of one worker")
        measurements.profile = measure_profile(CONFIG, SETTINGS, steps=PROFILE_STEPS)
        measurements.save(out)
    for link in LINKS:
        if link not in measurements.links:
            say.print(f"Probe of a link of {link}")
            measurements.links[link] = measure_link(link)
            measurements.save(out)
    point = measurements.profile.points[-1]
    for hosts in HOSTS:
        if hosts not in measurements.contention:
            say.print(f"Replicas on {hosts} hosts")
            seconds = measure_computing(train(Choice("replicas"), hosts, None, REPLICA_STEPS))
            measurements.contention[hosts] = seconds * point.words / (point.forward + point.backward)
            measurements.save(out)
    return measurements.profile


def predict(profile: Profile, links: list[LinkModel], contention: dict[int, float]) -> list[PlanRow]:
    times, cores = {1: 1.0} | contention, len(os.sched_getaffinity(0))
    job = PlannedJob(profile, profile.points[-1].words, per_worker=True, cores=cores, contention=times)
    cluster = Cluster("emulated hosts", max(HOSTS), Wiring(links[0]), cores=cores, contention=times)
    return make_plan(job, cluster, HOSTS, tuple(CHOICES.values()), links).rows


def make_table(scores: list[Score]) -> str:
    lines = ["| hosts | link | setting | predicted | interval | measured | error |", "|---|---|---|---|---|---|---|"]
    for one in scores:
        interval = f"{one.low:.2f} to {one.high:.2f}" + ("" if one.is_inside else " \\*")
        cells = (str(one.workers), one.link, one.name, f"{one.predicted:.2f} s", interval, f"{one.measured:.2f} s")
        lines.append(f"| {' | '.join(cells)} | {one.error:+.1%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("planner.json"), help="file for the measurements")
    parser.add_argument("--only", choices=list(CHOICES), help="measure only this setting")
    parser.add_argument("--hosts", type=int, choices=HOSTS, help="measure only with this number of hosts")
    parser.add_argument("--link", choices=LINKS, help="measure only over this link")
    options = parser.parse_args()
    say = Console(stderr=True)
    measurements = Measurements.load(options.out)
    prepare = [sys.executable, "-m", "lockstep", "prepare", str(CONFIG), *SETTINGS]
    subprocess.run(prepare, check=True, capture_output=True)
    profile = calibrate(measurements, options.out, say)
    wanted = (options.hosts, options.link, options.only)
    for hosts, link, (name, choice) in product(HOSTS, LINKS, CHOICES.items()):
        key = f"{hosts} {link} {name}"
        is_wanted = all(value in (None, own) for value, own in zip(wanted, (hosts, link, name), strict=True))
        if is_wanted and key not in measurements.settings:
            say.print(f"Training: {key}")
            measurements.settings[key] = measure(choice, hosts, link)
            measurements.save(options.out)
    rows = predict(profile, [measurements.links[link] for link in LINKS], measurements.contention)
    scores, _ = score(rows, list(measurements.settings.values()))
    point = profile.points[-1]
    seconds = point.forward + point.backward + point.update + point.other
    slowdowns = (f"{hosts} replicas take {times:.2f} times as long" for hosts, times in measurements.contention.items())
    print(
        f"{profile.parameters:,} parameters; one worker alone computes a step in {seconds:.3f} s; {', '.join(slowdowns)}"
    )
    for name, measured in measurements.links.items():
        print(f"{name}: {8 * measured.bytes_per_second / 1e6:,.0f} Mbit/s, error {measured.error:.0%}")
    print(f"\n{make_table(scores)}\n\n{summarise_scores(scores)}")


if __name__ == "__main__":
    main()
