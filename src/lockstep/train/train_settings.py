"""Settings of the training loop, the optimizer and the learning rate."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lockstep.settings import FIXED, Place, Settings


class TrainSettings(Settings):
    """How long to train, how often to evaluate and save, and in which precision."""

    steps: int = Field(100_000, ge=1)
    """Updates of the parameters in total. Raise it to continue a finished run."""
    evaluate_every: int | None = Field(1000, ge=1)
    """Steps between two evaluations on the validation set; the last step is always evaluated too. null: never evaluate,
    when only the speed matters."""
    evaluate_sentences: int | None = Field(None, ge=1)
    """Score at most this many sentences or images in each evaluation, also the last one: an even sample of the validation
    set, always the same. Scores of different samples cannot be compared. null: score all."""
    checkpoint_every: int = Field(1000, ge=1)
    """Steps between two checkpoints; the last step is always saved too. A crash loses at most this many steps."""
    keep_last: int = Field(2, ge=1)
    """How many of the newest checkpoints to keep. `--checkpoint last --average N` of translate, evaluate and export takes
    the mean of the last N and needs N here; each takes three times the size of the model on disk."""
    keep_best: int = Field(1, ge=0)
    """How many of the checkpoints with the best validation scores to keep as well. A new best score is always saved. For
    `--average N` of the best ones, set it to N."""
    start_from: Place | None = None
    """Fine-tuning: start with the weights of another run instead of random ones, and use its vocabulary and model sizes. A
    run (its best checkpoint), a checkpoint or a model folder, or an address of one. The run has its own schedule and steps.
    Only the first launch reads the weights; a resumed run has its own."""
    patience: int | None = Field(None, ge=1)
    """Stop after this many evaluations in a row without a better score. null: train all steps."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of matrix products; weights stay fp32. `auto` is bf16 if the hardware of all workers
    multiplies it, else fp16 with loss scaling on GPUs from Volta on (V100, T4), else fp32."""
    tf32: bool = False
    """On CUDA with precision=fp32: round the factors of products and convolutions to 10 bits (TF32, Ampere and later). Much
    faster, and less exact than fp32."""
    kernels: Literal["auto", "native", "torch"] = "auto"
    """How a CPU computes what lies between the matrix products: with the compiled kernels that are installed where a C
    compiler was found (`native`, faster), or with torch's operators. Both compute the same up to rounding; their dropout
    masks differ. `auto` takes `native` where all workers have it, and a resumed run keeps what it has."""
    seed: Annotated[int, Field(ge=0, lt=2**63), FIXED] = 1
    """Seed of the initial weights, the order of the data and the dropout."""
    label_smoothing: float = Field(0.1, ge=0.0, lt=1.0)
    """Share of the target probability that the loss spreads evenly over all words or classes; 0 turns smoothing off."""
    clip: float | None = Field(None, gt=0)
    """Largest L2 norm of the gradient; a larger gradient is scaled down to it. null: no clipping."""
    max_skipped: int = Field(20, ge=1)
    """A step whose gradient is not finite changes nothing. Stop with an error after this many of them in a row."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute. `auto` uses the GPUs if there are any, else the CPU."""
    workers: int | None = Field(None, ge=1)
    """Worker processes on this machine, unless `lockstep train --workers` says otherwise. null: one per GPU. Without GPUs,
    as many as the run had before, or one for every four cores."""
    threads: int | None = Field(None, ge=1)
    """CPU threads per worker. null: the cores of the machine divided by its workers."""
    deterministic: bool = False
    """On CUDA, use only kernels that give the same bits every time. Slower; CPU runs do not need it."""
    timeout_seconds: float = Field(600.0, gt=0)
    """Seconds that a worker waits for another one before it stops with an error. Raise it if some workers start much
    later than others."""

    restarts: int = Field(3, ge=0)
    """How often `lockstep train` starts all workers of this machine again, from the last checkpoint, after one has died. It
    gives up earlier when workers have died three times without a step beyond the furthest one. 0: never. The strategy
    resilient has strategy.restarts instead."""
    return_seconds: float = Field(300.0, gt=0)
    """With an elastic range (`--workers 2:4`): a worker that died twice without a step beyond the furthest one, or for
    which no restart is left, is left out. The others continue from the last checkpoint. After this many seconds all
    start again, from the step that was reached."""
    stall_seconds: float = Field(120.0, gt=0)
    """A worker that stands still is named after 10 seconds, or 4 times the slowest of the last hundred steps. After this
    many seconds it is ended, and all start again (train.restarts). Must be smaller than train.timeout_seconds."""

    @model_validator(mode="after")
    def _stalls_end_before_the_timeout(self) -> Self:
        if "stall_seconds" in self.model_fields_set and self.stall_seconds >= self.timeout_seconds:
            raise ValueError(
                f"train.stall_seconds {self.stall_seconds:g} must be smaller than train.timeout_seconds "
                f"{self.timeout_seconds:g}"
            )
        return self

    @model_validator(mode="after")
    def _patience_needs_evaluations(self) -> Self:
        if self.patience is not None and self.evaluate_every is None:
            raise ValueError("train.patience counts evaluations, and train.evaluate_every=null makes none")
        return self


Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class OptimizerSettings(Settings):
    """AdamW (Adam if weight_decay is 0), or SGD with momentum."""

    name: Annotated[Literal["adamw", "sgd"], FIXED] = "adamw"
    """The optimizer. `adamw` suits Transformers and LSTMs, `sgd` convolutional networks."""
    momentum: Share = 0.9
    """sgd: the momentum, the share of the previous update that is added to the next one."""
    nesterov: bool = False
    """sgd: use Nesterov momentum."""
    betas: tuple[Share, Share] = (0.9, 0.98)
    """adamw: decay rates of the running averages of the gradient and of the squared gradient."""
    epsilon: float = Field(1e-9, gt=0)
    """adamw: added to the denominator of the update, so that it is never zero."""
    weight_decay: float = Field(0.0, ge=0.0)
    """Weight decay. adamw multiplies each weight by 1 - rate * weight_decay; sgd adds weight_decay * weight to the
    gradient (L2)."""


class ScheduleSettings(Settings):
    """The learning rate as a function of the step. Every schedule first rises linearly for `warmup` steps."""

    name: Literal["noam", "inverse_sqrt", "cosine", "linear", "stairs", "constant"] = "inverse_sqrt"
    """How the rate changes after the warm-up. noam: factor * width^-0.5 * min(step^-0.5, step * warmup^-1.5). All others
    rise to `peak`; then inverse_sqrt falls with the square root of the step, cosine and linear fall to `floor` at
    train.steps, stairs falls at each step in `drops`, and constant stays."""
    peak: float = Field(1e-3, gt=0)
    """Highest learning rate, reached at the end of the warm-up. Not used by noam."""
    factor: float = Field(2.0, gt=0)
    """noam: the factor of the formula."""
    warmup: int = Field(4000, ge=0)
    """Steps in which the rate rises linearly from 0."""
    drops: list[Annotated[int, Field(ge=1)]] = []
    """stairs: steps after which the rate is multiplied by `drop`."""
    drop: float = Field(0.1, gt=0, le=1)
    """stairs: the factor at each of the `drops`."""
    floor: float = Field(0.0, ge=0.0, le=1.0)
    """cosine and linear: the rate at train.steps, as a share of `peak`."""
