"""Where a job would run: a preset by its name, or a YAML file of the same form."""

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lockstep.errors import LockstepError
from lockstep.lab.plan.costs import Pipe, Wiring
from lockstep.lab.plan.profile import Point, Profile

PRESETS = Path(__file__).with_name("presets.yaml")
KEYS = {"device", "nodes", "per_node", "inside", "link", "algorithm", "dollars", "cores", "contention"}
ALGORITHMS = ("ring", "tree", "hierarchical")
NAMED_ERROR, SCALED_ERROR = 0.10, 0.35
"""How far a link may be from its name, and a device that was not measured from what it typically reaches."""
UPDATE_BYTES = 40
"""Memory that the norm, clipping and AdamW move for a parameter."""
_RATE = re.compile(r"^(\d+(?:\.\d+)?)(k|m|g|t)bit$")


@dataclass(frozen=True)
class Device:
    """What a device computes at best, and what is typically reached."""

    name: str
    peak: dict[str, float]  # TFLOP/s by number format
    achieved: dict[str, float]  # share of the peak
    memory: float  # GB/s
    dollars: float | None = None  # of an hour
    dated: str | None = None

    def precision(self, wanted: str) -> str:
        """What is asked for, or fp32 where the device has no such products."""
        return wanted if wanted in self.peak else "fp32"

    def scaled(self, known: Profile) -> Profile:
        """A profile of another device, with this one's seconds."""
        if known.flops_per_word is None:
            raise LockstepError("The profile does not know the model's arithmetic.", "Leave --device out.", code=2)
        forward = sum(point.forward for point in known.points)
        share = forward / (forward + sum(point.backward for point in known.points))
        shape = {"parameters": known.parameters, "tensors": [vars(tensor) for tensor in known.tensors]}
        more = {"flops_per_word": known.flops_per_word, "forward_share": share}
        return self.profile(shape | more, known.points[-1].words, self.precision(known.precision))

    def profile(self, shape: dict[str, Any], words: float, precision: str) -> Profile:
        """What one worker would do on this device, from the model's arithmetic."""
        seconds = shape["flops_per_word"] * words / (1e12 * self.peak[precision] * self.achieved[precision])
        forward = shape["forward_share"] * seconds
        update = UPDATE_BYTES * shape["parameters"] / (1e9 * self.memory)
        point = Point(words, forward, seconds - forward, update, 0.0)
        facts = {"parameters": shape["parameters"], "tensors": shape["tensors"]}
        more = {"flops_per_word": shape["flops_per_word"], "precision": precision, "device": self.name, "threads": 1}
        known = facts | more | {"points": [vars(point)], "spread": 0.02, "error": SCALED_ERROR}
        return Profile.of(known)


@dataclass(frozen=True)
class Cluster:
    """Nodes of equal workers. Without a device they are as the profile has measured."""

    name: str
    nodes: int
    wiring: Wiring
    device: Device | None = None
    dollars: float | None = None  # of an hour of one worker
    cores: int | None = None  # that all workers share, where they are emulated on one machine
    contention: dict[int, float] | None = None

    @property
    def workers(self) -> int:
        return self.nodes * self.wiring.per_node

    def linked(self, pipe: Pipe) -> "Cluster":
        return replace(self, wiring=replace(self.wiring, between=pipe))


@cache
def presets() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(PRESETS.read_text(encoding="utf-8"))
    return found


def device(name: str) -> Device:
    known = presets()["devices"]
    if name not in known:
        raise LockstepError(f"There is no preset for a device {name}.", f"Known: {', '.join(known)}.", code=2)
    facts = dict(known[name])
    return Device(name, **facts)


def pipe(told: Any) -> Pipe:
    """A preset's name, a rate such as 300mbit, or a mapping with gbit and perhaps share, latency (microseconds) and
    error; or one with what a sweep has measured."""
    if isinstance(told, str) and told in presets()["links"]:
        return _pipe(told, presets()["links"][told], "preset")
    if isinstance(told, str) and (found := _RATE.match(told)):
        gbit = float(found[1]) * {"k": 1e-6, "m": 1e-3, "g": 1.0, "t": 1e3}[found[2]]
        if gbit > 0:
            return _pipe(told, {"gbit": gbit, "share": 0.935, "latency": 100}, "by its name")
    if isinstance(told, dict) and "bytes_per_second" in told:
        try:
            named: dict[str, Any] = {"name": "measured"} | told
            return Pipe(**named)
        except TypeError:
            pass
    if isinstance(told, dict) and isinstance(told.get("gbit"), int | float) and told["gbit"] > 0:
        return _pipe(str(told.get("name", f"{told['gbit']:g}gbit")), told, "given")
    known = ", ".join(presets()["links"])
    raise LockstepError(f"{told!r} is no link.", f"Name a rate such as 1gbit, or one of {known}.", code=2)


def _pipe(name: str, facts: dict[str, Any], source: str) -> Pipe:
    rate = facts["gbit"] * 1e9 / 8 * facts.get("share", 1.0)
    return Pipe(name, rate, facts.get("latency", 100) * 1e-6, facts.get("error", NAMED_ERROR), source)


def load(told: str) -> Cluster:
    """A preset's name or a file."""
    known = presets()["clusters"]
    if told in known:
        return cluster(told, known[told])
    path = Path(told)
    if not path.exists():
        raise LockstepError(
            f"{told} is neither a file nor a preset of a cluster.", f"Presets: {', '.join(known)}.", code=2
        )
    try:
        facts = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise LockstepError(f"{told} cannot be read as YAML ({type(error).__name__}).", "Correct it.", code=2) from None
    return cluster(path.stem, facts)


def cluster(name: str, facts: Any) -> Cluster:
    if not isinstance(facts, dict) or not KEYS.issuperset(facts):
        wrong = ", ".join(sorted(set(facts) - KEYS)) if isinstance(facts, dict) else "no settings"
        raise LockstepError(f"The cluster {name} holds {wrong}.", f"It may hold {', '.join(sorted(KEYS))}.", code=2)
    counts = {key: facts.get(key, 1) for key in ("nodes", "per_node")}
    if not all(isinstance(count, int) and count > 0 for count in counts.values()):
        raise LockstepError(f"The cluster {name} needs whole numbers of nodes and per_node.", "For example 4.", code=2)
    algorithm = facts.get("algorithm", "ring")
    if algorithm not in ALGORITHMS:
        raise LockstepError(f"No algorithm is called {algorithm}.", f"Known: {', '.join(ALGORITHMS)}.", code=2)
    inside = pipe(facts["inside"]) if "inside" in facts else None
    if counts["per_node"] > 1 and inside is None:
        raise LockstepError(f"The cluster {name} does not say what joins a node's workers.", "Set inside.", code=2)
    made = device(facts["device"]) if "device" in facts else None
    dollars = facts.get("dollars", made.dollars if made else None)
    wiring = Wiring(pipe(facts.get("link", "1gbit")), inside, counts["per_node"], algorithm)
    slow = facts.get("contention")
    return Cluster(name, counts["nodes"], wiring, made, dollars, facts.get("cores"), slow and contention(slow))


def contention(told: Any) -> dict[int, float]:
    """`1,1.0,2,1.1,4,2.2`, or a mapping: so many replicas at once, and how many times slower each of them is."""
    try:
        if isinstance(told, str):
            numbers = told.split(",")
            told = dict(zip(numbers[::2], numbers[1::2], strict=True))
        found = {int(workers): float(times) for workers, times in told.items()}
    except (ValueError, AttributeError, TypeError):
        found = {}
    if not found or min(found) < 1 or not all(0 < times < float("inf") for times in found.values()):
        raise LockstepError(
            f"{told} does not say how much slower workers are together.", "For example 1,1.0,2,1.1,4,2.2.", code=2
        )
    return {1: 1.0} | found
