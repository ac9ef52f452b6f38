"""Settings of the measurements during training: the `watch` section of a configuration."""

from pydantic import Field

from lockstep.settings import Settings


class WatchSettings(Settings):
    """Measurements during training."""

    sample_seconds: float = Field(5.0, ge=0)
    """Seconds between two samples of processor, memory, disk, network and GPUs; 0 takes none."""
    probe: bool = True
    """Measure once per launch, within its warm-up: FLOPs of the model, the fastest matrix product, the workers' link."""
