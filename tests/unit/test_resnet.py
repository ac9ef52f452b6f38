"""Residual networks match the paper, and batch norm matches torch's, with any number of workers."""

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep.errors import LockstepError
from lockstep.models.batch_norm import BatchNorm
from lockstep.models.model_settings import ResNetSettings
from lockstep.models.resnet import ConvLayer, ResidualBlock, ResNet
from lockstep.parallel.layer_sums import connect_layers


class NamedOperators(TorchDispatchMode):
    """Notes the operators that torch is asked for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def resnet(depth: int, channels: int | None = None, colours: int = 3) -> ResNet:
    return ResNet(ResNetSettings(name="resnet", depth=depth, channels=channels), colours, classes=10)


@pytest.mark.parametrize(("depth", "parameters"), [(20, 269_722), (32, 464_154), (56, 853_018)])
def test_parameters_are_as_many_as_the_paper_says(depth: int, parameters: int) -> None:
    """0.27, 0.46 and 0.85 million in table 6."""
    assert sum(parameter.numel() for parameter in resnet(depth).parameters()) == parameters


def test_layers_with_weights_are_the_depth() -> None:
    for depth in (20, 32, 9):
        assert sum(isinstance(module, nn.Conv2d | nn.Linear) for module in resnet(depth, 4).modules()) == depth


@pytest.mark.parametrize(("depth", "size", "colours"), [(8, 32, 3), (9, 32, 3), (8, 28, 1), (9, 28, 1)])
def test_images_of_both_corpora_get_a_score_for_each_class(depth: int, size: int, colours: int) -> None:
    assert resnet(depth, 4, colours)(torch.rand(2, colours, size, size)).shape == (2, 10)


def test_a_shortcut_takes_every_second_pixel_and_has_no_parameters() -> None:
    block = ResidualBlock(2, 4, stride=2).eval()
    nn.init.zeros_(block.second_norm.weight)
    values = torch.rand(1, 2, 6, 6)
    assert torch.equal(block(values)[:, :2], values[:, :, ::2, ::2])
    assert not block(values)[:, 2:].any()


def test_unknown_depths_are_refused() -> None:
    with pytest.raises(ValueError, match="neither 9 nor"):
        ResNetSettings(name="resnet", depth=21)


def make_norms(shape: tuple[int, ...]) -> tuple[BatchNorm, nn.BatchNorm2d, Tensor, Tensor]:
    torch.manual_seed(3)
    ours, theirs = BatchNorm(shape[1]), nn.BatchNorm2d(shape[1])
    with torch.no_grad():
        for parameter in (ours.weight, ours.bias):
            parameter.copy_(torch.randn(shape[1]))
    theirs.weight.data.copy_(ours.weight)
    theirs.bias.data.copy_(ours.bias)
    return ours, theirs, 3.0 + 2.0 * torch.randn(shape), torch.randn(shape)


def test_on_one_worker_it_is_torchs_batch_norm() -> None:
    ours, theirs, values, gradient = make_norms((6, 4, 5, 5))
    for training in (True, False):
        mine, other = values.clone().requires_grad_(), values.clone().requires_grad_()
        ours.train(training)
        theirs.train(training)
        one, two = ours(mine), theirs(other)
        one.backward(gradient)
        two.backward(gradient)
        assert mine.grad is not None
        assert other.grad is not None
        assert torch.allclose(one, two, atol=1e-5)
        assert torch.allclose(mine.grad, other.grad, atol=1e-5)
    assert theirs.running_mean is not None
    assert theirs.running_var is not None
    assert torch.allclose(ours.running_mean, theirs.running_mean, atol=1e-6)
    assert torch.allclose(ours.running_var, theirs.running_var, atol=1e-6)
    assert ours.weight.grad is not None
    assert theirs.weight.grad is not None
    assert torch.allclose(ours.weight.grad, theirs.weight.grad, atol=1e-4)


class ThreadSum:
    """Sums tensors over threads that stand in for workers, in rank order."""

    def __init__(self, workers: int) -> None:
        self.barrier = threading.Barrier(workers)
        self.given: list[Tensor] = [torch.zeros(0)] * workers

    def for_worker(self, worker: int) -> Callable[[Tensor], None]:
        def add(tensor: Tensor) -> None:
            self.given[worker] = tensor.clone()
            self.barrier.wait()
            tensor.copy_(torch.stack(self.given).sum(0))
            self.barrier.wait()

        return add


def run_threads(work: Callable[[int], None], workers: int) -> None:
    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


@pytest.mark.parametrize("depth", [8, 9])
def test_gradients_of_shares_add_up_to_those_of_the_whole_batch(depth: int) -> None:
    """In double precision, where no rectifier flips by rounding."""
    torch.manual_seed(4)
    reference = resnet(depth, 3).double()
    images, labels, shares = torch.rand(7, 3, 16, 16).double(), torch.arange(7), (4, 0, 3)
    F.cross_entropy(reference(images), labels, reduction="sum").backward()
    copies, thread_sum = [copy.deepcopy(reference) for _ in shares], ThreadSum(len(shares))
    for copied in copies:
        copied.zero_grad()

    def work(worker: int) -> None:
        for module in copies[worker].modules():
            if isinstance(module, BatchNorm):
                module.sum_over_workers = thread_sum.for_worker(worker)
        mine = slice(sum(shares[:worker]), sum(shares[: worker + 1]))
        F.cross_entropy(copies[worker](images[mine]), labels[mine], reduction="sum").backward()

    run_threads(work, len(shares))
    for name, parameter in reference.named_parameters():
        gradients = [copied.get_parameter(name).grad for copied in copies]
        assert parameter.grad is not None
        summed = torch.stack([gradient for gradient in gradients if gradient is not None]).sum(0)
        assert torch.allclose(summed, parameter.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shares", [(3, 3), (5, 1), (6, 0), (0, 2, 4)], ids=str)
def test_shares_of_any_size_are_normalised_as_one_batch(shares: tuple[int, ...]) -> None:
    reference, _, values, gradient = make_norms((6, 4, 5, 5))
    complete = values.clone().requires_grad_()
    expected = reference(complete)
    expected.backward(gradient)
    thread_sum = ThreadSum(len(shares))
    results: dict[int, tuple[Tensor, Tensor, BatchNorm]] = {}

    def work(worker: int) -> None:
        norm = BatchNorm(4)
        norm.load_state_dict(
            {**norm.state_dict(), "weight": reference.weight.detach(), "bias": reference.bias.detach()}
        )
        norm.sum_over_workers = thread_sum.for_worker(worker)
        begin = sum(shares[:worker])
        mine = values[begin : begin + shares[worker]].clone().requires_grad_()
        out = norm(mine)
        out.backward(gradient[begin : begin + shares[worker]])
        assert mine.grad is not None
        results[worker] = (out.detach(), mine.grad, norm)

    run_threads(work, len(shares))
    outs, gradients, norms = zip(*(results[worker] for worker in range(len(shares))), strict=True)
    assert complete.grad is not None
    assert torch.allclose(torch.cat(outs), expected, atol=1e-5)
    assert torch.allclose(torch.cat(gradients), complete.grad, atol=1e-5)
    for norm in norms:
        assert torch.equal(norm.running_mean, norms[0].running_mean)
        assert torch.equal(norm.running_var, norms[0].running_var)
        assert torch.allclose(norm.running_var, reference.running_var, atol=1e-6)
    for name in ("weight", "bias"):
        summed = torch.stack([getattr(norm, name).grad for norm in norms]).sum(0)
        assert torch.allclose(summed, getattr(reference, name).grad, atol=1e-4)


@pytest.mark.parametrize(
    "values", [torch.zeros(0, 4, 5, 5), torch.full((2, 4, 5, 5), float("nan"))], ids=["none", "nan"]
)
def test_empty_and_nan_batches_leave_the_running_averages_unchanged(values: Tensor) -> None:
    norm = BatchNorm(4)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    norm(values)
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["planes", "channels last"])
def test_statistics_of_bf16_values_are_not_rounded_to_bf16(layout: torch.memory_format) -> None:
    """Far from zero, where a mean in bf16 would be off by as much as their standard deviation."""
    torch.manual_seed(6)
    values, gradient = 20.0 + 0.5 * torch.randn(32, 4, 8, 8), torch.randn(32, 4, 8, 8)
    right = values.bfloat16().float().requires_grad_()
    mine = values.bfloat16().to(memory_format=layout).requires_grad_()
    exact, norm = BatchNorm(4), BatchNorm(4)
    norm.sum_over_workers = lambda sums: None  # one worker, with the statistics of several
    expected, actual = exact(right), norm(mine)
    expected.backward(gradient.bfloat16().float())
    actual.backward(gradient.bfloat16())
    assert actual.dtype is torch.bfloat16
    assert right.grad is not None
    assert mine.grad is not None
    assert torch.allclose(actual.mean((0, 2, 3), dtype=torch.float32), torch.zeros(4), atol=1e-3)
    assert torch.allclose(actual.float(), expected, rtol=2**-7, atol=1e-3)
    assert torch.allclose(mine.grad.float(), right.grad, rtol=2**-5, atol=2**-7)
    assert torch.allclose(norm.running_mean, exact.running_mean, atol=1e-5)
    assert norm.weight.grad is not None
    assert exact.weight.grad is not None
    assert torch.allclose(norm.weight.grad, exact.weight.grad, rtol=1e-3, atol=0.05)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm])
def test_torch_s_own_batch_norm_is_refused_where_workers_make_one_update(norm: type[nn.Module]) -> None:
    model = nn.Sequential(nn.Linear(3, 4), norm(4))
    with pytest.raises(LockstepError, match=f"{norm.__name__} is torch's own batch norm") as caught:
        connect_layers(model, lambda tensor: None)
    assert "lockstep.models.batch_norm.BatchNorm" in caught.value.remedy


def test_sum_bytes_are_the_bytes_that_are_all_reduced() -> None:
    norm, sent = BatchNorm(5), list[int]()
    norm.sum_over_workers = lambda tensor: sent.append(tensor.nbytes)
    norm(torch.randn(4, 5, 3, 3, requires_grad=True)).sum().backward()
    assert tuple(sent) == norm.sum_bytes


@pytest.mark.parametrize("size", [8, 7])
def test_deterministic_training_pools_without_the_kernel_that_has_no_fixed_order(size: int) -> None:
    images, results = torch.rand(2, 3, size, size), []
    torch.manual_seed(1)
    layer = ConvLayer(3, 4, halves=True)
    for is_deterministic in (False, True):
        torch.use_deterministic_algorithms(is_deterministic)
        try:
            with NamedOperators() as seen:
                output = layer(images)
                gradients = torch.autograd.grad(output.square().sum(), list(layer.parameters()))
        finally:
            torch.use_deterministic_algorithms(False)
        assert ("max_pool2d_with_indices" in seen.names) is not is_deterministic
        results.append((output, *gradients))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
