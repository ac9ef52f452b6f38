"""What is tried: short trainings of three models, by strategy, precision and number of workers."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import torch

DeviceName = Literal["cuda", "cpu"]
STRATEGIES = ("allreduce", "sharded", "server", "local", "resilient")
"""Of several workers."""
OWN_UPDATE = ("local",)
"""Strategies that do not take the steps of one worker: their losses are not compared."""
TOLERANCES = {"fp32": 1e-3, "bf16": 1e-2, "fp16": 1e-2}
"""Largest relative difference between a loss and that of a CPU in fp32."""
RESNET_FACTOR = 20
"""The network for images amplifies rounding: two workers on a CPU differ from one by 0.3 % after 30 steps."""


@dataclass(frozen=True)
class ShortTraining:
    """One training."""

    model: str
    strategy: str
    precision: str
    workers: int

    @property
    def name(self) -> str:
        return f"{self.model}, {self.strategy}, {self.precision}, {self.workers} worker{'s' * (self.workers > 1)}"

    @property
    def folder_name(self) -> str:
        return f"{self.model}-{self.strategy}-{self.precision}-{self.workers}"

    @property
    def tolerance(self) -> float:
        return min(0.05, TOLERANCES[self.precision] * (RESNET_FACTOR if self.model == "resnet" else 1))

    @property
    def settings(self) -> list[str]:
        own = ["strategy.every=5"] if self.strategy == "local" else []
        return [f"strategy.name={self.strategy}", f"train.precision={self.precision}", *own]


def list_precisions(device: DeviceName) -> list[str]:
    """Returns the formats that this device computes in."""
    if device == "cpu":
        return ["fp32", "bf16"]
    has_fp16 = torch.cuda.get_device_capability() >= (7, 0)
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return ["fp32", *["fp16"] * has_fp16, *["bf16"] * has_bf16]


def make_cells(device: DeviceName, workers: int) -> list[ShortTraining]:
    """Returns what is tried: on a GPU every strategy in every format, and the other models with one and with all workers.
    On a CPU mostly in fp32, because that takes minutes."""
    precisions = list_precisions(device)
    formats_of = {model: precisions if device == "cuda" or model == "transformer" else ["fp32"] for model in MODELS}
    cells = [ShortTraining(model, "single", precision, 1) for model in MODELS for precision in formats_of[model]]
    if workers > 1:
        tried = [name for name in STRATEGIES if name != "resilient" or find_spec("torchft") is not None]
        formats = precisions if device == "cuda" else precisions[:1]
        cells += [ShortTraining("transformer", name, precision, workers) for name in tried for precision in formats]
        cells += [ShortTraining(model, "allreduce", precisions[0], workers) for model in MODELS[1:]]
    return cells


MODELS = ("transformer", "lstm", "resnet")
