"""A made-up profile for tests of the planner, with round figures that can be checked by hand."""

from lockstep.lab.plan.overlap import ProfiledTensor
from lockstep.lab.plan.profile import Point, Profile


def make_profile(
    millions: int = 60,
    forward: float = 0.1,
    backward: float = 0.2,
    update: float = 0.04,
    spread: float = 0.0,
    words: float = 1000.0,
) -> Profile:
    """Returns a profile of layers with a million parameters each, which are ready at equal intervals, the last layer
    first."""
    tensors = tuple(
        ProfiledTensor(f"model.layers.{layer}.weight", (1000, 1000), (millions - layer) / millions)
        for layer in range(millions)
    )
    point = Point(words, forward, backward, update, 0.0)
    return Profile(1_000_000 * millions, tensors, 6e8, (point,), spread, 0.01, 1, "fp32", "cpu")
