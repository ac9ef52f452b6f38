"""Settings of what is measured during training, besides loss and scores."""

from pydantic import Field

from lockstep.settings import Settings


class WatchSettings(Settings):
    """What is measured during training, besides loss and scores."""

    sample_seconds: float = Field(5.0, ge=0)
    """Seconds between two samples of CPU, memory, disk, network and GPUs. 0: no samples, and the report has no
    utilisation."""
    probe: bool = True
    """At each start, during the warm-up, measure the FLOPs of the model, the fastest matrix product and the link between
    the workers. The report compares the run with them."""
