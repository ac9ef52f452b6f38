"""What the tensor files of a checkpoint hold, from their headers alone: no tensor is read, no torch is needed."""

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import JsonValue

from lockstep.errors import LockstepError

MOMENTS = {
    "exp_avg": "Adam's running mean of the gradient, one value per parameter",
    "exp_avg_sq": "Adam's running mean of the squared gradient, one value per parameter",
    "momentum": "the momentum of SGD, one value per parameter",
}
PARAMETERS = "the weights and running averages of the model"
PRIVATE = "what only the strategy that saved it can use, such as the workers' own models"
LARGEST_HEADER = 100_000_000
"""Bytes: the limit of the format."""


@dataclass(frozen=True)
class TensorGroup:
    """Tensors of one purpose, summed over all files of a state."""

    name: str  # model, optimizer.exp_avg, private, ...
    purpose: str
    values: int
    bytes: int

    def as_dict(self) -> dict[str, JsonValue]:
        return asdict(self)


def read_groups(folder: Path) -> list[TensorGroup]:
    """Returns what the `state` folder of a checkpoint holds, the model first."""
    values, sizes = Counter[str](), Counter[str]()
    for path in sorted(folder.glob("*.safetensors")):
        for name, tensor in _read_header(path).items():
            begin, end = tensor["data_offsets"]
            group = _find_group(name)
            values[group] += math.prod(tensor["shape"])
            sizes[group] += end - begin
    order = sorted(sizes, key=lambda group: (group != "model", group))
    return [TensorGroup(group, _find_purpose(group), values[group], sizes[group]) for group in order]


def _find_group(name: str) -> str:
    first, _, rest = name.partition(".")
    return f"optimizer.{rest.partition('.')[0]}" if first == "optimizer" else first


def _find_purpose(group: str) -> str:
    if group == "model":
        return PARAMETERS
    if group == "private":
        return PRIVATE
    kind = group.removeprefix("optimizer.")
    return MOMENTS.get(kind, "state of the optimizer")


def _read_header(path: Path) -> dict[str, dict[str, list[int]]]:
    """Reads the header of a safetensors file: dtype, shape and place of every tensor by name."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header: dict[str, dict[str, list[int]]] = json.loads(file.read(min(length, LARGEST_HEADER)))
        return {name: tensor for name, tensor in header.items() if name != "__metadata__"}
    except (OSError, ValueError, AttributeError):
        raise LockstepError(
            f"{path} is damaged: its header cannot be read.", "`lockstep checkpoint verify RUN` checks all checkpoints."
        ) from None
