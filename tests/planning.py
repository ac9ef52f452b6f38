"""A made-up profile for tests of the planner: round figures that can be followed by hand."""

from lockstep.lab.plan.overlap import Tensor
from lockstep.lab.plan.profile import Point, Profile


def profile(
    millions: int = 60,
    forward: float = 0.1,
    backward: float = 0.2,
    update: float = 0.04,
    spread: float = 0.0,
    words: float = 1000.0,
) -> Profile:
    """A layer of a million parameters each, ready one after the other in equal steps, the last one of the model first."""
    tensors = tuple(
        Tensor(f"model.layers.{layer}.weight", (1000, 1000), (millions - layer) / millions) for layer in range(millions)
    )
    point = Point(words, forward, backward, update, 0.0)
    return Profile(1_000_000 * millions, tensors, 6e8, (point,), spread, 0.01, 1, "fp32", "cpu")
