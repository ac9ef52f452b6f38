from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep.train import precision

CPU = torch.device("cpu")


class Products(TorchDispatchMode):
    """Notes the number formats of the products that torch is asked for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.formats: set[torch.dtype] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.overloadpacket.__name__ in ("mm", "addmm", "bmm", "convolution", "convolution_backward"):
            self.formats.add(args[1].dtype)
        return function(*args, **(kwargs or {}))


@pytest.fixture
def no_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "has_native_bf16", lambda device: False)


@pytest.mark.usefixtures("no_bf16")
@pytest.mark.parametrize(
    ("make", "shape", "atol"),
    [
        (lambda: torch.nn.Linear(24, 16), (32, 24), 1e-3),
        (lambda: torch.nn.Conv2d(3, 4, 3, 2, 1), (5, 3, 7, 7), 1e-2),
    ],
)
def test_emulated_products_are_those_of_torch(
    make: Callable[[], torch.nn.Module], shape: tuple[int, ...], atol: float
) -> None:
    torch.manual_seed(1)
    layer, x = make(), torch.randn(shape, requires_grad=True)

    def gradients() -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(x)
        assert y.dtype is torch.bfloat16
        return [y, *torch.autograd.grad(y.float().square().sum(), [x, *layer.parameters()])]

    right = gradients()
    with Products() as reached, precision.emulate_products("bf16", CPU):
        found = gradients()
    assert reached.formats == {torch.float32}, "a bf16 product reached torch"
    for ours, theirs in zip(found, right, strict=True):
        assert ours.dtype is theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=2**-7, atol=atol)  # sums in another order, rounded to 8 bits


@pytest.mark.usefixtures("no_bf16")
@pytest.mark.parametrize("name", ["fp32", "fp16"])
def test_other_formats_are_left_alone(name: str) -> None:
    assert not precision.is_emulated(name, CPU)


def test_hardware_that_has_bf16_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "has_native_bf16", lambda device: True)
    assert not precision.is_emulated("bf16", CPU)


@pytest.mark.parametrize("tf32", [False, True])
def test_products_and_convolutions_of_a_gpu_have_one_format(tf32: bool) -> None:
    """torch's defaults are two formats, and the probe of the peak used a third."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        precision.choose_fp32_products(torch.device("cuda"), tf32)
        assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == (tf32, tf32)
        assert precision.uses_tf32("fp32", torch.device("cuda")) is tf32
        assert not precision.uses_tf32("bf16", torch.device("cuda"))
        assert not precision.uses_tf32("fp32", CPU)
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def test_a_cpu_keeps_its_products() -> None:
    before = torch.get_float32_matmul_precision()
    precision.choose_fp32_products(CPU, True)
    assert torch.get_float32_matmul_precision() == before
