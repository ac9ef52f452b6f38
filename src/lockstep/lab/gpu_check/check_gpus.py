"""The whole check: all trainings, a kill, what the host waits for; and its result as JSON and as a page."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from lockstep.errors import LockstepError
from lockstep.explain.formatting import count, seconds, share
from lockstep.explain.pages.html_page import render
from lockstep.files import read_json, write_atomically
from lockstep.lab.gpu_check.made_up_data import write_data
from lockstep.lab.gpu_check.measure import (
    Observation,
    TrainingResult,
    check_resume,
    count_waits,
    describe_machine,
    run_cell,
)
from lockstep.lab.gpu_check.trainings import DeviceName, make_cells

REFERENCE = Path(__file__).with_name("losses.json")
"""The losses of one worker on a CPU in fp32, by model. `lockstep doctor --gpu --device cpu --json` prints all losses."""
CPU_WORKERS = 2
HEADS = (
    "training",
    "result",
    "loss differs by",
    "allowed",
    "step",
    "phases in wall time",
    "of the peak",
    "GPU memory",
)


@dataclass
class GpuCheck:
    """What was found on this machine."""

    device: DeviceName
    machine: dict[str, object]
    cells: list[TrainingResult] = field(default_factory=list)
    findings: list[Observation] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return all(cell.is_good for cell in self.cells) and all(one.is_good is not False for one in self.findings)

    @property
    def sentence(self) -> str:
        verdicts = [*(cell.is_good for cell in self.cells), *(one.is_good for one in self.findings)]
        measured = [verdict for verdict in verdicts if verdict is not None]
        return f"{sum(measured)} of {len(measured)} checks passed on {self.device}."

    def as_json(self) -> str:
        return json.dumps({"good": self.is_good, **asdict(self)}, indent=1)

    def as_page(self) -> str:
        rows = [_make_row(result) for result in self.cells]
        others = [f"{one.name} ({describe_verdict(one.is_good)}): {one.text}" for one in self.findings]
        failures = [f"{result.cell.name}: {result.error}" for result in self.cells if result.error]
        machine = [(name, str(value)) for name, value in self.machine.items()]
        return render(
            "gpu_check.html.j2",
            [],
            check=self,
            heads=HEADS,
            rows=rows,
            others=others,
            failures=failures,
            machine=machine,
        )


def describe_verdict(is_good: bool | None) -> str:
    return {True: "passed", False: "failed", None: "not measured"}[is_good]


def _make_row(result: TrainingResult) -> tuple[str, ...]:
    values = (
        None if result.deviation is None else f"{result.deviation:.1e}",
        None if result.deviation is None else f"{result.cell.tolerance:.0e}",
        None if result.step_seconds is None else seconds(result.step_seconds),
        None if result.share_of_wall is None else share(result.share_of_wall),
        None if result.utilisation is None else share(result.utilisation),
        None if result.memory is None else f"{count(result.memory / 2**20)} MiB",
    )
    verdict = describe_verdict(result.is_good)
    return (result.cell.name, verdict, *("-" if value is None else value for value in values))


def choose_workers(device: DeviceName) -> int:
    """Returns the number of workers of the trainings with several. Raises if there is no GPU to check."""
    if device == "cpu":
        return CPU_WORKERS
    if not torch.cuda.is_available():
        raise LockstepError(
            "This machine has no GPU that torch can use.",
            "Try the check itself with --device cpu; docs/use/gpus.md says which build of torch a GPU needs.",
            code=2,
        )
    return torch.cuda.device_count()


def run_check(device: DeviceName, folder: Path, tell: Callable[[str, bool | None, str], None]) -> GpuCheck:
    """Tries everything in a new folder. `tell` is called with each result: what it is, whether it is good, and a text."""
    workers = choose_workers(device)
    configs, reference = write_data(folder / "data"), read_json(REFERENCE) or {}
    check = GpuCheck(device, describe_machine())
    for cell in make_cells(device, workers):
        result = run_cell(cell, device, configs[cell.model], folder, reference)
        check.cells.append(result)
        tell(cell.name, result.is_good, result.error or _describe(result))
    transformer = configs["transformer"]
    for finding in (
        check_resume(device, transformer, workers, folder),
        count_waits(device, transformer, folder),
    ):
        check.findings.append(finding)
        tell(finding.name, finding.is_good, finding.text)
    return check


def _describe(result: TrainingResult) -> str:
    parts = [f"{result.seconds:.0f} s"]
    if result.step_seconds is not None:
        parts.append(f"{seconds(result.step_seconds)} per step")
    if result.deviation is not None:
        parts.append(f"losses differ by at most {result.deviation:.1e}")
    return ", ".join(parts)


def write_result(check: GpuCheck, folder: Path) -> tuple[Path, Path]:
    """Writes the page and the JSON; returns their paths."""
    page, facts = folder / "gpu-check.html", folder / "gpu-check.json"
    write_atomically(page, check.as_page())
    write_atomically(facts, check.as_json() + "\n")
    return page, facts
