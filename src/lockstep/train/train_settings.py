"""Settings of the training loop, the optimizer and the learning rate."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lockstep.settings import FIXED, Settings


class TrainSettings(Settings):
    """How long and how carefully to train."""

    steps: int = Field(100_000, ge=1)
    """Updates of the parameters in total; raise it to go on with a finished run."""
    evaluate_every: int | None = Field(1000, ge=1)
    """Steps between two evaluations on the validation text or images (one more comes at the end); null: none at all, when
    only the speed matters."""
    checkpoint_every: int = Field(1000, ge=1)
    """Steps between two checkpoints (one more comes at the end)."""
    keep_last: int = Field(2, ge=1)
    """Checkpoints kept because they are the newest."""
    keep_best: int = Field(1, ge=0)
    """Checkpoints kept because they scored best of those saved; a new best score is always saved."""
    patience: int | None = Field(None, ge=1)
    """Stop after this many evaluations without a better score."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of matrix products; weights stay fp32. `auto`: bf16 where the hardware has it, else fp32."""
    seed: Annotated[int, Field(ge=0, lt=2**63), FIXED] = 1
    """Decides the first weights, the order of the data and the dropout."""
    label_smoothing: float = Field(0.1, ge=0.0, lt=1.0)
    """Share of the probability that the loss spreads over all words instead of the right one."""
    clip: float | None = Field(None, gt=0)
    """Largest norm of the gradient; a larger one is scaled down to it."""
    max_skipped: int = Field(20, ge=1)
    """Stop with an error after this many steps in a row whose gradient was not finite."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; `auto` takes the GPUs if there are any."""
    threads: int | None = Field(None, ge=1)
    """CPU threads per worker; when not given, the cores of the machine shared out evenly."""
    deterministic: bool = False
    """On CUDA, use only kernels that give the same bits every time (slower)."""
    timeout_seconds: float = Field(600.0, gt=0)
    """How long a worker waits for another before it gives up."""

    @model_validator(mode="after")
    def _patience_needs_evaluations(self) -> Self:
        if self.patience is not None and self.evaluate_every is None:
            raise ValueError("train.patience counts evaluations, and train.evaluate_every=null makes none")
        return self


Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class OptimizerSettings(Settings):
    """AdamW (with weight_decay 0 it is Adam), or gradient descent with momentum."""

    name: Annotated[Literal["adamw", "sgd"], FIXED] = "adamw"
    """`adamw` suits transformers, `sgd` convolutional networks."""
    momentum: Share = 0.9
    """sgd: how much of the movement before is kept."""
    nesterov: bool = False
    """sgd: look ahead along the movement before (Nesterov)."""
    betas: tuple[Share, Share] = (0.9, 0.98)
    """adamw: how slowly the averages of gradient and squared gradient forget."""
    epsilon: float = Field(1e-9, gt=0)
    """adamw: keeps the division by the root of the squared gradient finite."""
    weight_decay: float = Field(0.0, ge=0.0)
    """Share of each weight taken away per unit of learning rate; sgd adds it to the gradient."""


class ScheduleSettings(Settings):
    """The learning rate as a function of the step. Every schedule first rises in a straight line for `warmup` steps."""

    name: Literal["noam", "inverse_sqrt", "cosine", "linear", "stairs", "constant"] = "inverse_sqrt"
    """noam: factor * width^-0.5 * min(step^-0.5, step * warmup^-1.5); the others rise to `peak` and then fall:
    `linear` after a long rise is the one-cycle schedule, `stairs` falls at the steps named in `drops`."""
    peak: float = Field(1e-3, gt=0)
    """Highest learning rate (not used by noam)."""
    factor: float = Field(2.0, gt=0)
    """noam's factor."""
    warmup: int = Field(4000, ge=0)
    """Steps of the rise."""
    drops: list[Annotated[int, Field(ge=1)]] = []
    """stairs: after each of these steps the rate is multiplied by `drop`."""
    drop: float = Field(0.1, gt=0, le=1)
    """stairs: the factor."""
    floor: float = Field(0.0, ge=0.0, le=1.0)
    """cosine and linear end at this share of the peak, at train.steps."""
