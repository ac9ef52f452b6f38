"""`lockstep doctor --gpu`, which tries the GPUs of a machine, in its form for CPUs."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conftest import command, lockstep
from lockstep.lab.gpu_check import check_gpus as checking
from lockstep.lab.gpu_check import measure
from lockstep.lab.gpu_check.check_gpus import GpuCheck, run_check, write_result
from lockstep.lab.gpu_check.measure import Observation, TrainingResult
from lockstep.lab.gpu_check.trainings import ShortTraining, list_precisions, make_cells
from lockstep.run.journal import WorkerLines


@pytest.mark.slow
def test_the_whole_check_passes_on_a_cpu(tmp_path: Path) -> None:
    words = command("doctor", "--gpu", "--device", "cpu", "--out", tmp_path, "--json")
    facts = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=600, check=True).stdout)
    assert facts["good"] is True
    assert {one["name"]: one["is_good"] for one in facts["findings"]} == {
        "kill -9 of a worker and exact resume": True,
        "synchronizations per step": None,
    }
    assert json.loads((tmp_path / "gpu-check.json").read_text()) == facts
    assert "checks passed on cpu" in (tmp_path / "gpu-check.html").read_text()


def test_a_training_is_compared_with_the_recorded_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "make_cells", lambda *_: [ShortTraining("transformer", "single", "fp32", 1)])
    monkeypatch.setattr(checking, "check_resume", lambda *_: Observation("resume", True, "left out"))
    told: list[tuple[str, bool | None]] = []
    check = run_check("cpu", tmp_path, lambda name, is_good, text: told.append((name, is_good)))
    (result,) = check.cells
    assert result.error == ""
    assert result.deviation is not None
    assert result.deviation < 1e-4
    assert result.utilisation is not None
    assert 0 < result.utilisation < 1
    assert told == [
        ("transformer, single, fp32, 1 worker", True),
        ("resume", True),
        ("synchronizations per step", None),
    ]
    page, facts = write_result(check, tmp_path)
    assert "2 of 2 checks passed on cpu." in page.read_text()
    assert json.loads(facts.read_text())["cells"][0]["losses"] == result.losses


def make_lines(losses: list[float], seconds: float = 0.1) -> WorkerLines:
    phases = {"input": 0.0, "forward": seconds / 2, "backward": seconds / 2, "merge": 0.0, "update": 0.0}
    steps: list[Any] = [
        {
            "kind": "step",
            "step": number,
            "loss": loss,
            "seconds": seconds,
            "phases": phases,
            "time": 0.1 * number,
            "warmup": number < 5,
            "words": {"source": 10, "target": 10},
        }
        for number, loss in enumerate(losses, 1)
    ]
    model = {"kind": "model", "flops_per_word": 1e6, "peak_flops": 1e7}
    return WorkerLines(steps, [model])


@pytest.mark.parametrize(
    ("losses", "seconds", "problem"),
    [
        ([1.0] * 30, 0.1, "the arithmetic is 1000% of the measured peak"),
        ([1.01] * 30, 0.1, "losses differ by up to 1.00%"),
        ([float("nan")] * 30, 0.1, "30 of 30 steps have a finite loss"),
        ([1.0] * 20, 0.1, "20 of 30 steps have a finite loss"),
        ([1.0] * 30, 0.2, "steps of 5.20 s in"),
    ],
)
def test_what_is_wrong_is_found(losses: list[float], seconds: float, problem: str) -> None:
    result = TrainingResult(ShortTraining("transformer", "single", "fp32", 1), 1.0)
    measure._judge(result, make_lines(losses, seconds), [1.0] * 30)
    assert problem in result.error
    assert not GpuCheck("cuda", {}, [result]).is_good


def test_a_gpu_is_tried_in_every_strategy_and_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (8, 0))
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: True)
    assert list_precisions("cuda") == ["fp32", "fp16", "bf16"]
    cells = make_cells("cuda", 4)
    assert {(cell.strategy, cell.precision) for cell in cells if cell.model == "transformer"} >= {
        (strategy, precision)
        for strategy in ("single", "allreduce", "sharded", "server", "local")
        for precision in ("fp32", "fp16", "bf16")
    }
    assert {cell.model for cell in cells if cell.workers == 4} == {"transformer", "lstm", "resnet"}
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: (7, 0))
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: False)
    assert list_precisions("cuda") == ["fp32", "fp16"]


def test_a_machine_without_gpu_is_told_so(tmp_path: Path) -> None:
    assert "no GPU that torch can use" in lockstep("doctor", "--gpu", "--out", tmp_path, code=2).stderr
