"""GPUs that torch cannot use, workers with different devices, and the precision of a device. None needs a GPU."""

from pathlib import Path

import pytest
import torch

from lockstep import gpu_driver
from lockstep.devices import can_execute, pick_device
from lockstep.errors import LockstepError
from lockstep.parallel.strategy import Strategy
from lockstep.train.resume import HostFacts, check_devices, choose_precision
from lockstep.train.worker import is_exact
from lockstep.watch.clock import PhaseClock

CUDA_13 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]
CUDA_12 = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]


def show_gpu(monkeypatch: pytest.MonkeyPatch, name: str, capability: tuple[int, int], architectures: list[str]) -> None:
    for function, answer in {
        "is_available": True,
        "device_count": 1,
        "get_arch_list": architectures,
        "get_device_capability": capability,
        "get_device_name": name,
    }.items():
        monkeypatch.setattr(torch.cuda, function, lambda *_, answer=answer: answer)


@pytest.mark.parametrize(
    ("capability", "architectures", "expected"),
    [
        ((7, 0), CUDA_13, False),
        ((6, 1), CUDA_13, False),
        ((7, 5), CUDA_13, True),
        ((8, 9), CUDA_13, True),  # binaries of 8.6 run on 8.9
        ((8, 0), ["sm_86"], False),  # but not the other way round
        ((12, 1), CUDA_13, True),
        ((13, 0), CUDA_13, True),  # from PTX
        ((13, 0), CUDA_12, False),
        ((6, 1), CUDA_12, True),
        ((7, 0), CUDA_12, True),
        ((9, 0), ["sm_90a"], True),
        ((9, 1), ["sm_90a", "compute_90a"], False),
        ((10, 3), ["sm_100f"], True),
        ((11, 0), ["compute_100f"], False),
    ],
)
def test_which_gpus_run_the_kernels_of_a_build(
    capability: tuple[int, int], architectures: list[str], expected: bool
) -> None:
    assert can_execute(capability, architectures) is expected


def test_a_gpu_without_kernels_is_refused_with_the_build_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    show_gpu(monkeypatch, "Tesla V100", (7, 0), CUDA_13)
    with pytest.raises(LockstepError, match="no kernels for Tesla V100 .compute capability 7.0.*sm_75") as caught:
        pick_device("auto", 0)
    assert "CUDA 12.6" in caught.value.remedy
    show_gpu(monkeypatch, "Tesla V100", (7, 0), CUDA_12)
    assert pick_device("auto", 0) == torch.device("cuda", 0)
    show_gpu(monkeypatch, "Instinct", (9, 4), ["gfx90a", "gfx942"])
    assert pick_device("auto", 0) == torch.device("cuda", 0)


def write_driver_files(folder: Path) -> None:
    (folder / "gpus" / "0000:01:00.0").mkdir(parents=True)
    (folder / "gpus" / "0000:01:00.0" / "information").write_text("Model: \t\t Tesla T4\nIRQ: 16\n")
    (folder / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed Oct 27\n")


def test_a_gpu_that_torch_cannot_use_is_never_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Training went on on the CPU without a word."""
    write_driver_files(tmp_path)
    monkeypatch.setattr(gpu_driver, "DRIVER_FILES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for wanted in ("auto", "cuda"):
        with pytest.raises(LockstepError, match="1 GPU .Tesla T4; driver 470.82.01. that torch cannot use") as caught:
            pick_device(wanted, 0)
        assert "train.device=cpu" in caught.value.remedy
    assert pick_device("cpu", 0).type == "cpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert pick_device("auto", 0).type == "cpu"


def make_facts(device: str, capability: list[int] | None = None, bf16: bool = False) -> HostFacts:
    facts: HostFacts = {"host": "node", "device": device, "device_name": "", "cores": 8, "memory": 0, "bf16": bf16}
    return facts if capability is None else {**facts, "capability": capability}


def test_workers_on_different_kinds_of_devices_are_refused() -> None:
    check_devices([make_facts("cuda:0"), make_facts("cuda:1")])
    with pytest.raises(LockstepError, match="worker 0 on node computes on cuda:0, worker 2 on node computes on cpu|"):
        check_devices([make_facts("cuda:0"), make_facts("cuda:1"), make_facts("cpu")])


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([make_facts("cpu", bf16=True)], "bf16"),
        ([make_facts("cpu", bf16=True), make_facts("cpu")], "fp32"),
        ([make_facts("cuda:0", [8, 0], True), make_facts("cuda:0", [9, 0], True)], "bf16"),
        ([make_facts("cuda:0", [8, 0], True), make_facts("cuda:0", [7, 0])], "fp16"),
        ([make_facts("cuda:0", [7, 5])], "fp16"),
        ([make_facts("cuda:0", [7, 0]), make_facts("cuda:0", [6, 1])], "fp32"),
        ([make_facts("cpu")], "fp32"),
    ],
)
def test_the_weakest_device_decides_the_precision(hosts: list[HostFacts], expected: str) -> None:
    assert choose_precision(hosts) == expected


@pytest.mark.parametrize(("device", "exact"), [("cpu", {False, True}), ("cuda", {True})])
def test_a_gpu_resumes_exactly_only_with_deterministic_kernels(device: str, exact: set[bool]) -> None:
    assert {wanted for wanted in (False, True) if is_exact(Strategy(), torch.device(device), wanted)} == exact


class LateEvent:
    """An event that the device has not reached until somebody waits for it. Like torch's, it cannot be read before."""

    def __init__(self, enable_timing: bool) -> None:
        self.is_reached = False

    def record(self, stream: object) -> None:
        assert stream == "stream of cuda"  # the thread may have another current device

    def query(self) -> bool:
        return self.is_reached

    def synchronize(self) -> None:
        self.is_reached = True

    def elapsed_time(self, end: "LateEvent") -> float:
        assert self.is_reached
        assert end.is_reached
        return 1000.0


def test_the_clock_waits_for_events_before_it_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies read stamps in the middle of a step, when the device has not reached them."""
    monkeypatch.setattr(torch.cuda, "Event", LateEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    clock = PhaseClock(torch.device("cuda"))
    begin, end = clock.stamp(), clock.stamp()
    assert clock.between(begin, end) == 1.0
    assert clock.since(clock.stamp()) == 1.0
    clock.start()
    clock.mark("forward")
    assert clock.finish()[1]["forward"] == 1.0
