"""Runs the trainings of a check and reads what came of them."""

import hashlib
import math
import os
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.job_secret import make_secret_environment
from lockstep.lab.gpu_check.made_up_data import STEPS
from lockstep.lab.gpu_check.trainings import OWN_UPDATE, DeviceName, ShortTraining
from lockstep.launch.run_all import Program, run_all
from lockstep.run.journal import Line, WorkerLines, read

WAIT = re.compile("called a synchronizing CUDA operation")
"""What torch writes when the host waits for a GPU and it was asked to say so."""
CLOCK_SLACK = 0.05
"""By so much the seconds of all steps may exceed the time that passed: they are measured by another clock."""


@dataclass
class Observation:
    """One thing that was checked. `is_good` is None for something that could not be measured here."""

    name: str
    is_good: bool | None
    text: str


@dataclass
class TrainingResult:
    """What one training showed."""

    cell: ShortTraining
    seconds: float
    error: str = ""
    losses: list[float] = field(default_factory=list)
    deviation: float | None = None  # the largest relative difference from the recorded losses
    step_seconds: float | None = None  # median, without warm-up
    share_of_wall: float | None = None  # of the time between first and last step, what the phases account for
    utilisation: float | None = None  # arithmetic over the measured peak
    memory: float | None = None  # largest bytes that the sampler saw on a GPU

    @property
    def is_good(self) -> bool:
        return not self.error


def run_training(config: Path, settings: list[str], workers: int, run: Path, environment: dict[str, str]) -> str:
    """Trains; returns why it failed, or an empty string."""
    words = ["train", str(config), *settings, "--run", str(run), "--workers", str(workers)]
    program = [sys.executable, "-m", "lockstep", *words]
    return run_all([Program(program, make_secret_environment() | environment)])


def run_cell(
    cell: ShortTraining, device: DeviceName, config: Path, folder: Path, reference: dict[str, list[float]]
) -> TrainingResult:
    run, begin = folder / cell.folder_name, time.perf_counter()
    error = run_training(config, [*cell.settings, f"train.device={device}"], cell.workers, run, {})
    result = TrainingResult(cell, time.perf_counter() - begin, error)
    if not error:
        _judge(result, read(run / "journal"), reference.get(cell.model))
    return result


def _judge(result: TrainingResult, lines: WorkerLines, reference: list[float] | None) -> None:
    steps, problems = lines.steps, list[str]()
    result.losses = [float(line["loss"]) for line in steps]
    if len(steps) != STEPS or not all(map(math.isfinite, result.losses)):
        problems.append(f"{len(steps)} of {STEPS} steps have a finite loss")
    elif result.cell.strategy in OWN_UPDATE or reference is None:
        if result.losses[-1] >= result.losses[0]:
            problems.append("the loss has not fallen")
    else:
        pairs = zip(result.losses, reference, strict=True)
        result.deviation = max(abs(loss - right) / right for loss, right in pairs)
        if result.deviation > result.cell.tolerance:
            problems.append(f"losses differ by up to {result.deviation:.2%} from those recorded on a CPU")
    problems += _measure_steps(result, [line for line in steps if not line["warmup"]])
    _measure_use(result, lines)
    if result.utilisation is not None and result.utilisation > 1.0:
        problems.append(f"the arithmetic is {result.utilisation:.0%} of the measured peak")
    result.error = "; ".join(problems)


def _measure_steps(result: TrainingResult, measured: list[Line]) -> list[str]:
    """Compares the phases with the time that passed. Returns what does not fit."""
    if len(measured) < 2:
        return ["too few steps after the warm-up"]
    seconds = [float(line["seconds"]) for line in measured]
    result.step_seconds = sorted(seconds)[len(seconds) // 2]
    phases = sum(sum(line["phases"].values()) for line in measured)
    passed = float(measured[-1]["time"]) - float(measured[0]["time"]) + seconds[0]
    result.share_of_wall = phases / passed
    problems = []
    if abs(phases - sum(seconds)) > 1e-3 * sum(seconds):
        problems.append("the phases do not add up to the step")
    if sum(seconds) > passed + CLOCK_SLACK:
        problems.append(f"steps of {sum(seconds):.2f} s in {passed:.2f} s")
    return problems


def _measure_use(result: TrainingResult, lines: WorkerLines) -> None:
    models = lines.of("model")
    measured = [line for line in lines.steps if not line["warmup"]]
    if models and models[-1].get("flops_per_word") and models[-1].get("peak_flops") and measured:
        words = sum(line["words"]["target"] for line in measured)
        rate = words / sum(line["seconds"] for line in measured)
        result.utilisation = float(models[-1]["flops_per_word"]) * rate / float(models[-1]["peak_flops"])
    samples = [gpu for line in lines.of("system") for gpu in line.get("gpus") or []]
    result.memory = max((float(gpu["memory_used"]) for gpu in samples if gpu.get("memory_used")), default=None)


def check_resume(device: DeviceName, config: Path, workers: int, folder: Path) -> Observation:
    """Kills a worker by SIGKILL and compares the end with that of a run that nobody disturbed."""
    settings = ["train.deterministic=true", "train.checkpoint_every=10", "train.restarts=3", f"train.device={device}"]
    undisturbed, killed = folder / "undisturbed", folder / "killed"
    fault = {"LOCKSTEP_FAULT": f"kill:rank={workers - 1}:phase=merge:step=25:restarts=0"}
    name = "kill -9 of a worker and exact resume"
    error = run_training(config, settings, workers, undisturbed, {})
    if not error and workers > 1:
        error = run_training(config, settings, workers, killed, fault)  # all start again by themselves
    elif not error:
        if not run_training(config, settings, workers, killed, fault):
            return Observation(name, False, "the worker was not killed")
        error = run_training(config, settings, workers, killed, {})
    if error:
        return Observation(name, False, error)
    digests = {_digest_model(run) for run in (undisturbed, killed)}
    attempts = {line.get("attempt") for line in read(killed / "journal").steps}
    if len(attempts) < 2:
        return Observation(name, False, "the run was not interrupted")
    same = "the same bits as" if len(digests) == 1 else "other bits than"
    return Observation(name, len(digests) == 1, f"After SIGKILL at step 25 of {STEPS} the model has {same} without it.")


def _digest_model(run: Path) -> str:
    model = run / "checkpoints" / f"step-{STEPS:08d}" / "model" / "model.safetensors"
    return hashlib.sha256(model.read_bytes()).hexdigest()


def count_waits(device: DeviceName, config: Path, folder: Path) -> Observation:
    """Counts for what the host waits per step: the difference between a long and a short training, divided by the steps."""
    name = "synchronizations per step"
    if device == "cpu":
        return Observation(name, None, "There is no GPU to wait for.")
    counts = {}
    for steps in (10, STEPS):
        run = folder / f"waits-{steps}"
        settings = ["train.device=cuda", f"train.steps={steps}", "train.evaluate_every=null", "watch.probe=false"]
        error = run_training(config, settings, 1, run, {"LOCKSTEP_COUNT_WAITS": "1"})
        if error:
            return Observation(name, False, error)
        logs = [path.read_text(errors="replace") for path in (run / "logs").glob("worker-*.log")]
        counts[steps] = sum(len(WAIT.findall(text)) for text in logs)
    per_step = (counts[STEPS] - counts[10]) / (STEPS - 10)
    return Observation(
        name, per_step <= 1.0, f"The host waits for the device {per_step:.2f} times per step; 1 is meant."
    )


def describe_machine() -> dict[str, object]:
    """Returns what a reader of the result needs to know."""
    import platform

    import torch

    from lockstep.gpu_driver import list_gpus

    names, driver = list_gpus()
    facts: dict[str, object] = {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "driver": driver if names else None,
        "gpus": names,
        "cores": os.cpu_count(),
    }
    if torch.cuda.is_available():
        facts["capabilities"] = [list(torch.cuda.get_device_capability(i)) for i in range(torch.cuda.device_count())]
        facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        facts["cudnn"] = torch.backends.cudnn.version()
    return facts
