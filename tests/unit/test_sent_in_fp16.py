"""Gradients and movements that travel in fp16, computed in fp32. A group of one worker rounds them, too."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep.parallel.allreduce import AllReduce
from lockstep.parallel.local_sgd import LocalSgd
from lockstep.parallel.optimizers import Sgd
from lockstep.parallel.strategy import Context, Strategy
from lockstep.parallel.strategy_settings import AllReduceSettings, LocalSettings
from lockstep.team import Team
from lockstep.train.precision import FIRST_LOSS_SCALE, choose_loss_scale
from lockstep.watch.clock import PhaseClock

CPU = torch.device("cpu")


@pytest.fixture
def group() -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    dist.destroy_process_group()


def take_step(strategy: Strategy, group: dist.ProcessGroup, words: int, rate: float) -> tuple[Tensor, Tensor]:
    """Returns the gradient of one step as torch computes it, and the movement of the parameters divided by the rate."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 1))
    loss = _Summed(module)
    make: Callable[..., Any] = partial(Sgd, momentum=0.0, nesterov=False, weight_decay=0.0)
    context = Context(Team(0, 1, CPU, group), None, choose_loss_scale("fp32", strategy.sends_gradients_in))
    x, before = torch.randn(9, 7), nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    strategy.setup(loss, make, PhaseClock(CPU), context, x)
    gradient = torch.autograd.grad(loss(x) / words, list(module.parameters()))
    with strategy.micro(last=True):
        strategy.backward(strategy.module(x), words)
    strategy.commit(rate)
    after = nn.utils.parameters_to_vector(module.parameters()).detach()
    return torch.cat([part.flatten() for part in gradient]), (before.double() - after.double()) / rate


class _Summed(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).square().sum()


def test_a_small_gradient_survives_its_way_in_fp16(group: dist.ProcessGroup) -> None:
    """The smallest value of fp16 is 6e-8: of these gradients nothing was left."""
    strategy = AllReduce(AllReduceSettings(gradients="fp16"))
    gradient, moved = take_step(strategy, group, words=10**9, rate=1e6)
    assert gradient.abs().max() < 6e-8
    torch.testing.assert_close(moved.float(), gradient, rtol=2e-2, atol=1e-10)


def test_a_small_movement_survives_its_way_in_fp16(group: dist.ProcessGroup) -> None:
    strategy = LocalSgd(LocalSettings(gradients="fp16", every=1, outer_rate=1.0, outer_momentum=0.0))
    gradient, moved = take_step(strategy, group, words=10**4, rate=1e-2)
    small = (gradient.abs() > 1e-5) & (gradient.abs() * 1e-2 < 1e-5)
    assert small.any(), "no movement that fp16 rounds coarsely"
    torch.testing.assert_close(moved.float()[small], gradient[small], rtol=2e-2, atol=1e-6)


@pytest.mark.parametrize(
    ("precision", "gradients", "is_scaled"),
    [("fp32", "fp32", False), ("bf16", "bf16", False), ("fp32", "fp16", True), ("bf16", "fp16", True)],
)
def test_only_fp16_needs_a_loss_scale(precision: str, gradients: str, is_scaled: bool) -> None:
    assert (choose_loss_scale(precision, gradients) is not None) is is_scaled
    assert choose_loss_scale("fp16", gradients) == FIRST_LOSS_SCALE
