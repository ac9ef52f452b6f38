"""Settings of how gradients cross processes."""

from typing import Literal

from pydantic import Field

from lockstep.settings import Settings


class StrategySettings(Settings):
    """How the workers' gradients are brought together."""

    name: Literal["auto", "single", "allreduce"] = "auto"
    """`allreduce`: every worker holds the model, gradients are summed over all; `auto`: that, or `single` for one."""
    bucket_mb: float = Field(25.0, gt=0)
    """allreduce: gradients travel in packets of about this size, while the backward pass still computes the rest."""
