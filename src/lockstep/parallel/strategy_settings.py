"""Settings of how gradients cross processes."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lockstep.settings import Settings

Place = Literal["cpu", "device"]


class StrategySettings(Settings):
    """How the workers' gradients are brought together."""

    name: Literal["auto", "single", "replicas", "allreduce", "sharded", "server", "local", "resilient"] = "auto"
    """`allreduce`: every worker holds the model, gradients are summed over all; `sharded`: every worker holds a part of
    parameters, gradients and optimizer; `server`: parameter servers hold them; `local`: workers train alone and meet now
    and then; `resilient`: as allreduce, but when a worker dies the others go on, and it heals from them when it is back;
    `replicas`: they never meet, to compare with; `auto`: allreduce, or `single` for one worker. docs/strategies.md
    helps to choose."""
    gradients: Literal["fp32", "bf16", "fp16", "powersgd"] = "fp32"
    """allreduce, sharded, resilient: how gradients travel; powersgd (allreduce only) sends products of two thin matrices.
    local: `bf16` and `fp16` halve what is sent when the workers meet."""
    powersgd_rank: int = Field(8, ge=1)
    """allreduce: columns of powersgd's thin matrices; more is closer to the gradient and larger."""
    powersgd_start: int = Field(100, ge=2)
    """allreduce: the first steps send whole gradients before powersgd begins."""
    bucket_mb: float = Field(25.0, gt=0)
    """allreduce, server, resilient: gradients travel in packets of about this size, while backward still computes. local:
    packets of a meeting."""
    keep_gathered: bool = False
    """sharded: keep each layer's parameters from its forward to its backward pass: less is sent, more memory is used."""
    servers: int = Field(0, ge=0)
    """server: processes that only hold parameters (--servers). With none every worker holds a part."""
    mode: Literal["sync", "async"] = "sync"
    """server: `sync` sums the gradients of all workers as allreduce does; in `async` every worker claims shares as fast
    as it computes them, updates the parameters with each by itself, and waits for nobody."""
    staleness: int | None = Field(None, ge=1)
    """server, async: at most so many updates of others may come between a gradient's parameters and its update; workers
    that are ahead wait. At least the number of workers minus one."""
    embeddings: Literal["whole", "rows"] = "whole"
    """server: `rows` sends only those rows of embedding tables that a step uses, both ways; the update is the same. It
    pays where the vocabulary is large and the batch small, for models that look words up in tables which serve nothing
    else (model.name=lstm)."""
    parameters: Place = "cpu"
    """server: where a worker keeps the parameters that it holds for all; `device` is its GPU."""
    update: Place = "cpu"
    """server: where they are updated."""
    every: Annotated[int | None, Field(ge=1)] = None
    """local: steps between two meetings; when not given, a twentieth of the run and at most 500."""
    outer_rate: float = Field(0.7, gt=0)
    """local: the share of the workers' mean movement that is taken over (DiLoCo). 1 with outer_momentum=0 is their
    mean: local SGD."""
    outer_momentum: Annotated[float | None, Field(ge=0, lt=1)] = None
    """local: how much of the movements at earlier meetings is added (Nesterov). When not given, DiLoCo's 0.9 for 500
    steps between meetings and more; else 0.5, because movements that follow each other closely point the same way."""
    restarts: int = Field(100, ge=0)
    """resilient: how often a worker that died is started again. One that dies three times in a row before its first
    step is given up earlier."""
    dead_after_seconds: float = Field(2.0, gt=0)
    """resilient: a worker that gives no sign of life for this long is left out (it gives ten a second)."""
    merge_seconds: float = Field(60.0, gt=0)
    """resilient: how long a merge, or the copy of a peer's state, may stand still before the step is taken again."""

    @model_validator(mode="after")
    def _servers_serve(self) -> Self:
        if self.servers and self.name != "server":
            raise ValueError(f"strategy.servers={self.servers} is for strategy.name=server, not {self.name}")
        if self.embeddings == "rows" and self.name != "server":
            raise ValueError(f"strategy.embeddings=rows is for strategy.name=server, not {self.name}")
        if self.gradients == "powersgd" and self.name in ("sharded", "local"):
            raise ValueError(f"strategy.gradients=powersgd is for strategy.name=allreduce, not {self.name}")
        return self
