"""What the tests that compare whole runs to the last bit share."""

import hashlib
from pathlib import Path

import torch

from conftest import weights

TOLERANCE = 1e-5
"""Relative, for losses on another instruction set or torch version."""


def machine(kernels: str = "torch") -> str:
    """What decides the order of additions inside kernels. torch's libraries look at the maker of the CPU too, and oneDNN,
    which the native kernels use, at its model."""
    name = f"torch {torch.__version__.partition('+')[0]}, {torch.backends.cpu.get_cpu_capability()}"
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    facts = [
        line.partition(":")[2].strip() for line in lines if line.startswith(("vendor_id", "cpu family", "model\t"))
    ]
    return f"{name}, {facts[0]}" if kernels == "torch" else f"{name}, {' '.join(facts[:3])}, native kernels"


def model_digest(run: Path, step: int) -> str:
    """SHA-256 over the model's tensors in a checkpoint, in the order of their names."""
    digest = hashlib.sha256()
    for name, data in sorted(weights(run, step).items()):
        if name.startswith("model."):
            digest.update(name.encode() + data)
    return digest.hexdigest()


def losses(text: str) -> list[float]:
    """The losses in a golden file, after its two lines of machine and digest."""
    return [float(line.split()[1]) for line in text.splitlines()[2:]]
