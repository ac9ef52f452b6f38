"""Settings of the strategies: each class has the settings that its strategy reads, and no others."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from lockstep.settings import NamedSettings, Settings

Device = Literal["cpu", "device"]
Format = Annotated[
    Literal["fp32", "bf16", "fp16"],
    Field(
        description="Number format in which values are sent. `bf16` and `fp16` halve the traffic and round the values."
    ),
]
BucketMb = Annotated[
    float,
    Field(
        gt=0,
        description="Approximate size of one message in MiB (2^20 bytes). Large models are sent in several messages.",
    ),
]


class AllReduceSettings(Settings):
    """Every worker has a copy of the model, and gradients are summed over all workers."""

    name: Literal["auto", "allreduce"] = "auto"
    """Every worker has a copy of the model, and gradients are summed over all workers while the backward pass computes.
    `auto`, the default, is the same. With one worker both run as `single`. docs/use/strategies.md compares
    the strategies."""
    gradients: Literal["fp32", "bf16", "fp16", "powersgd"] = "fp32"
    """How gradients are sent. `bf16` and `fp16` halve the traffic and round the values. `powersgd` sends each matrix as
    the product of two low-rank matrices."""
    powersgd_rank: int = Field(8, ge=1)
    """Rank of the PowerSGD approximation. A higher rank is more accurate and sends more. Used with gradients=powersgd."""
    powersgd_start: int = Field(100, ge=2)
    """Number of steps that send uncompressed gradients before PowerSGD starts. Used with gradients=powersgd."""
    bucket_mb: BucketMb = 25.0


class SingleSettings(NamedSettings):
    """One worker, which communicates with nobody."""

    name: Literal["single"] = "single"
    """One worker without communication."""


class ReplicasSettings(NamedSettings):
    """Independent workers."""

    name: Literal["replicas"] = "replicas"
    """Every worker trains its own model and nothing is exchanged: a baseline that shows what communication costs."""


class ShardedSettings(NamedSettings):
    """Parameters, gradients and optimizer state are sharded over the workers."""

    name: Literal["sharded"] = "sharded"
    """Every worker has one shard of the parameters, the gradients and the optimizer state (FSDP)."""
    gradients: Format = "fp32"
    keep_gathered: bool = False
    """Keep the gathered parameters of each layer from the forward to the backward pass. This sends less and needs more
    memory."""


class ServerSettings(NamedSettings):
    """Parameter servers have the parameters; workers send gradients and receive parameters."""

    name: Literal["server"] = "server"
    """Parameter servers have the parameters and apply the updates. Workers send gradients and receive parameters."""
    servers: int = Field(0, ge=0)
    """Number of processes that are only parameter servers (the option --servers). With 0 every worker also serves an
    equal part of the parameters."""
    mode: Literal["sync", "async"] = "sync"
    """`sync`: one update per step with the sum of all gradients, as allreduce does. `async`: each worker takes the next
    share of a batch as soon as it is free, and its gradient is applied at once without waiting for other workers."""
    staleness: int | None = Field(None, ge=1)
    """Upper limit, in updates, for how old a gradient may be when it is applied: the number of updates by other workers
    since its parameters were read. Faster workers wait to keep the limit. The smallest possible value is the number of
    workers minus one. When not given there is no limit. Used with mode=async."""
    embeddings: Literal["whole", "rows"] = "whole"
    """`rows` sends only the rows of embedding tables that a step uses, in both directions; the update is the same. It
    saves traffic when the vocabulary is large and the batch small. It needs embeddings that are not shared with the
    output layer (model.name=lstm)."""
    parameters: Device = "cpu"
    """Where a worker that also serves parameters stores them: in main memory, or on its own device (GPU). Used with
    servers=0."""
    update: Device = "cpu"
    """Where a worker that also serves parameters computes their update. Used with servers=0."""
    bucket_mb: BucketMb = 25.0


class LocalSettings(NamedSettings):
    """Local SGD and DiLoCo: workers train independently and synchronize every few steps."""

    name: Literal["local"] = "local"
    """Workers train independently and synchronize their models every few steps (local SGD, DiLoCo)."""
    gradients: Format = "fp32"
    bucket_mb: BucketMb = 25.0
    every: int | None = Field(None, ge=1)
    """Number of steps between two synchronizations. When not given, a twentieth of train.steps, at most 500."""
    outer_rate: float = Field(0.7, gt=0)
    """Learning rate of the outer optimizer, which takes the workers' mean change since the last synchronization as its
    gradient (DiLoCo). A rate of 1 with outer_momentum=0 averages the models: local SGD."""
    outer_momentum: float | None = Field(None, ge=0, lt=1)
    """Nesterov momentum of the outer optimizer. When not given, 0.9 as in DiLoCo if `every` is 500 or more, otherwise 0.5,
    because changes that are only a few steps apart point in the same direction."""


class ResilientSettings(NamedSettings):
    """All-reduce among the workers that are alive."""

    name: Literal["resilient"] = "resilient"
    """As allreduce, but training continues when a worker dies. A restarted worker copies the state of another one."""
    gradients: Format = "fp32"
    transport: Literal["gloo", "nccl"] = "gloo"
    """How gradients travel between GPUs. `gloo`: through main memory; a death is noticed safely, and a network of 1 to 10
    Gbit/s is the limit in any case. `nccl`: from GPU to GPU, faster within a machine; a death aborts NCCL's group, which
    nobody has tried yet. CPUs always use gloo."""
    bucket_mb: BucketMb = 25.0
    restarts: int = Field(100, ge=0)
    """How often a worker that died is restarted. A worker that dies three times in a row before its first step is not
    restarted again."""
    dead_after_seconds: float = Field(2.0, gt=0)
    """Seconds without a heartbeat after which a worker counts as dead. Workers send ten heartbeats per second."""
    merge_seconds: float = Field(60.0, gt=0)
    """Timeout, in seconds, of the gradient exchange and of the copy of another worker's state. After it the step is
    repeated."""


_Union = (
    AllReduceSettings
    | SingleSettings
    | ReplicasSettings
    | ShardedSettings
    | ServerSettings
    | LocalSettings
    | ResilientSettings
)


def _name_default(value: Any) -> Any:
    return {"name": "auto"} | value if isinstance(value, dict) else value


StrategySettings = Annotated[_Union, Field(discriminator="name"), BeforeValidator(_name_default)]
"""The settings of any strategy. The field `name` says of which."""
