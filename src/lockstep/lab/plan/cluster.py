"""Clusters, links and devices to plan for: presets by name, or a YAML file of the same form."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import TypedDict

import yaml
from pydantic import JsonValue

from lockstep.errors import LockstepError
from lockstep.lab.plan.costs import LinkModel, Wiring
from lockstep.lab.plan.device_limits import estimate_seconds
from lockstep.lab.plan.profile import ModelShape, Point, Profile
from lockstep.yaml_text import parse_yaml

PRESETS = Path(__file__).with_name("presets.yaml")
KEYS = {"device", "nodes", "per_node", "inside", "link", "algorithm", "dollars", "cores", "contention"}
ALGORITHMS = ("ring", "tree", "hierarchical")
NAMED_ERROR, SCALED_ERROR = 0.10, 0.35
"""Relative error of a link that is known by its name only, and of a device that was not measured."""
FEWER = 256
"""The second point of a device's profile has so many times fewer words."""
UPDATE_BYTES = 40
"""Bytes per parameter that the gradient norm, clipping and AdamW read and write."""
_RATE = re.compile(r"^(\d+(?:\.\d+)?)(k|m|g|t)bit$")


class DeviceFacts(TypedDict):
    peak: dict[str, float]
    achieved: dict[str, float]
    memory: float
    dollars: float
    dated: str


class Presets(TypedDict):
    devices: dict[str, DeviceFacts]
    links: dict[str, dict[str, JsonValue]]
    clusters: dict[str, dict[str, JsonValue]]


@dataclass(frozen=True)
class Device:
    """The peak rates of a device, and the share of them that training typically reaches."""

    name: str
    peak: dict[str, float]  # TFLOP/s by number format
    achieved: dict[str, float]  # share of the peak by number format
    memory: float  # GB/s
    dollars: float | None = None  # per hour
    dated: str | None = None

    def choose_precision(self, wanted: str) -> str:
        """Returns `wanted`, or fp32 where the device has no such arithmetic. `auto` is what a training takes
        (train/resume.py): bf16, else fp16 where units for matrix products make it far faster, else fp32."""
        if wanted == "auto":
            has_matrix_units = self.peak.get("fp16", 0.0) >= 4 * self.peak["fp32"]
            wanted = "bf16" if "bf16" in self.peak else "fp16" if has_matrix_units else "fp32"
        return wanted if wanted in self.peak else "fp32"

    def scale_profile(self, profile: Profile, precision: str) -> Profile:
        """Returns the profile of another device with the times of this one. `precision` is train.precision: another device
        may have resolved it to another format."""
        if profile.flops_per_word is None:
            raise LockstepError(
                "The profile does not include the model's arithmetic, which --device needs.",
                "Leave --device out, or make a new profile with --save-profile.",
                code=2,
            )
        forward = sum(point.forward for point in profile.points)
        forward_share = forward / (forward + sum(point.backward for point in profile.points))
        shape = ModelShape(profile.parameters, profile.flops_per_word, forward_share, profile.tensors)
        return self.estimate_profile(shape, profile.points[-1].words, self.choose_precision(precision))

    def estimate_profile(self, shape: ModelShape, words: float, precision: str) -> Profile:
        """Returns what one worker would do on this device, from the model's arithmetic and its kernels. A second point with
        few words shows what is left of a step when many workers share its batch."""
        rate = 1e12 * self.peak[precision] * self.achieved[precision]
        update = UPDATE_BYTES * shape.parameters / (1e9 * self.memory)
        steps = {size: estimate_seconds(shape, size, rate, SCALED_ERROR) for size in (words / FEWER, words)}
        forward = shape.forward_share
        return Profile(
            parameters=shape.parameters,
            tensors=shape.tensors,
            flops_per_word=shape.flops_per_word,
            points=tuple(
                Point(size, forward * step.middle, (1 - forward) * step.middle, update, 0.0, step.error)
                for size, step in steps.items()
            ),
            spread=0.02,
            error=steps[words].error,
            threads=1,
            precision=precision,
            device=self.name,
        )


@dataclass(frozen=True)
class Cluster:
    """Nodes of equal workers. Without a device the workers are like the profiled one."""

    name: str
    nodes: int
    wiring: Wiring
    device: Device | None = None
    dollars: float | None = None  # per hour of one worker
    cores: int | None = None  # shared by all workers of an emulated cluster
    contention: dict[int, float] | None = None

    @property
    def workers(self) -> int:
        return self.nodes * self.wiring.per_node

    def with_link(self, link: LinkModel) -> "Cluster":
        return replace(self, wiring=replace(self.wiring, between=link))


@cache
def read_presets() -> Presets:
    presets: Presets = yaml.safe_load(PRESETS.read_text(encoding="utf-8"))
    return presets


def find_device(name: str) -> Device:
    devices = read_presets()["devices"]
    if name not in devices:
        raise LockstepError(f"There is no preset for a device {name}.", f"Known: {', '.join(devices)}.", code=2)
    return Device(name, **devices[name])


def parse_link(value: JsonValue) -> LinkModel:
    """Reads the name of a preset, a rate such as 300mbit, a mapping with gbit and perhaps share, latency (in microseconds)
    and error, or the mapping that a sweep has printed."""
    presets = read_presets()["links"]
    if isinstance(value, str) and value in presets:
        return _make_link(value, presets[value], "preset")
    if isinstance(value, str) and (match := _RATE.match(value)):
        gbit = float(match[1]) * {"k": 1e-6, "m": 1e-3, "g": 1.0, "t": 1e3}[match[2]]
        if gbit > 0:
            return _make_link(value, {"gbit": gbit, "share": 0.935, "latency": 100}, "by its name")
    if isinstance(value, dict) and (link := _read_measured_link(value)) is not None:
        return link
    if isinstance(value, dict) and isinstance(gbits := value.get("gbit"), int | float) and gbits > 0:
        return _make_link(str(value.get("name", f"{gbits:g}gbit")), value, "given")
    known = ", ".join(presets)
    raise LockstepError(f"{value!r} is not a link.", f"Use a rate such as 1gbit, or one of {known}.", code=2)


def _read_measured_link(facts: Mapping[str, JsonValue]) -> LinkModel | None:
    """Returns the link that a sweep has measured; None where the mapping has another form."""
    if "bytes_per_second" not in facts or not {field.name for field in fields(LinkModel)}.issuperset(facts):
        return None
    return LinkModel(
        name=str(facts.get("name", "measured")),
        bytes_per_second=_read_number(facts, "bytes_per_second", 0.0),
        latency_seconds=_read_number(facts, "latency_seconds", LinkModel.latency_seconds),
        error=_read_number(facts, "error", LinkModel.error),
        source=str(facts.get("source", LinkModel.source)),
        host_seconds_per_byte=_read_number(facts, "host_seconds_per_byte", LinkModel.host_seconds_per_byte),
    )


def _make_link(name: str, facts: Mapping[str, JsonValue], source: str) -> LinkModel:
    rate = _read_number(facts, "gbit", 0.0) * 1e9 / 8 * _read_number(facts, "share", 1.0)
    latency = _read_number(facts, "latency", 100) * 1e-6
    return LinkModel(name, rate, latency, _read_number(facts, "error", NAMED_ERROR), source)


def _read_number(facts: Mapping[str, JsonValue], key: str, default: float) -> float:
    value = facts.get(key, default)
    if not isinstance(value, int | float):
        raise LockstepError(f"{key} is {value!r}, which is not a number.", f"For example {key}: 1.", code=2)
    return value


def _read_optional(facts: Mapping[str, JsonValue], key: str) -> float | None:
    return None if facts.get(key) is None else _read_number(facts, key, 0.0)


def load_cluster(name: str) -> Cluster:
    """Reads a preset by its name, or a YAML file."""
    presets = read_presets()["clusters"]
    if name in presets:
        return build_cluster(name, presets[name])
    path = Path(name)
    if not path.exists():
        raise LockstepError(
            f"{name} is neither a file nor a preset of a cluster.", f"Presets: {', '.join(presets)}.", code=2
        )
    try:
        facts: JsonValue = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise LockstepError(
            f"{name} cannot be read as YAML ({type(error).__name__}).", "Correct the file.", code=2
        ) from None
    return build_cluster(path.stem, facts)


def build_cluster(name: str, facts: JsonValue) -> Cluster:
    """Checks the settings of a cluster and makes it from them."""
    if not isinstance(facts, dict) or not KEYS.issuperset(facts):
        unknown = ", ".join(sorted(set(facts) - KEYS)) if isinstance(facts, dict) else "no settings"
        raise LockstepError(f"The cluster {name} has {unknown}.", f"Its keys may be {', '.join(sorted(KEYS))}.", code=2)
    nodes, per_node = facts.get("nodes", 1), facts.get("per_node", 1)
    if not isinstance(nodes, int) or not isinstance(per_node, int) or min(nodes, per_node) < 1:
        raise LockstepError(
            f"The cluster {name} needs nodes and per_node as whole numbers from 1 on.", "For example nodes: 4.", code=2
        )
    algorithm = facts.get("algorithm", "ring")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise LockstepError(
            f"The cluster {name} has the unknown algorithm {algorithm}.", f"Use {', '.join(ALGORITHMS)}.", code=2
        )
    inside = parse_link(facts["inside"]) if "inside" in facts else None
    if per_node > 1 and inside is None:
        raise LockstepError(
            f"The cluster {name} has no link between the workers of a node.",
            "Set inside, for example to pcie4.",
            code=2,
        )
    device = find_device(str(facts["device"])) if "device" in facts else None
    dollars = _read_optional(facts, "dollars") if "dollars" in facts else device.dollars if device else None
    wiring = Wiring(parse_link(facts.get("link", "1gbit")), inside, per_node, algorithm)
    cores = None if facts.get("cores") is None else int(_read_number(facts, "cores", 1))
    contention = parse_contention(facts["contention"]) if facts.get("contention") else None
    return Cluster(name, nodes, wiring, device, dollars, cores, contention)


def parse_contention(value: JsonValue) -> dict[int, float]:
    """Reads `1,1.0,2,1.1,4,2.2`, or a mapping: a number of replicas, and how many times slower each of them is."""
    pairs: dict[int, float] = {}
    try:
        if isinstance(value, str):
            numbers = value.split(",")
            pairs = {int(count): float(times) for count, times in zip(numbers[::2], numbers[1::2], strict=True)}
        elif isinstance(value, dict):
            pairs = {int(count): _read_number(value, count, 1.0) for count in value}
    except ValueError:
        pairs = {}
    if not pairs or min(pairs) < 1 or not all(0 < times < float("inf") for times in pairs.values()):
        raise LockstepError(
            f"{value} does not say how much slower several workers are.", "For example 1,1.0,2,1.1,4,2.2.", code=2
        )
    return {1: 1.0} | pairs
