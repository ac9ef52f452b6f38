import copy
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from lockstep.parallel.optimizers import AdamW, Sgd
from lockstep.parallel.update import LossScale, Updater

RATE = 0.1


def module() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def adam(parameters: dict[str, nn.Parameter]) -> AdamW:
    return AdamW(parameters, betas=(0.9, 0.98), epsilon=1e-9, weight_decay=0.01)


def updater(clip: float | None = None, loss_scale: float | None = None) -> Updater:
    return Updater(module(), adam, clip, loss_scale)


def give(target: Updater | nn.Module, value: float, seed: int = 0) -> None:
    """Sets every gradient to a random one times `value`."""
    draw = torch.Generator().manual_seed(seed)
    parameters = target.optimizer.parameters.values() if isinstance(target, Updater) else target.parameters()
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=draw) * value


def norm(target: Updater) -> float:
    gradients = [p.grad.flatten() for p in target.optimizer.parameters.values() if p.grad is not None]
    return float(torch.cat(gradients).norm())


def snapshot(target: Updater) -> tuple[dict[str, Tensor], dict[str, float]]:
    state = target.state()
    return copy.deepcopy(state.tensors), dict(state.scalars)


def assert_same(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_without_clip_and_scale_an_update_is_plain_adamw() -> None:
    ours, plain = updater(), module()
    optimizer = torch.optim.AdamW(plain.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01, fused=True)
    for step in range(5):
        give(ours, 1.0, step)
        give(plain, 1.0, step)
        expected = norm(ours)
        applied, found = ours.apply(RATE / (step + 1))
        assert applied
        assert found == pytest.approx(expected)
        optimizer.param_groups[0]["lr"] = RATE / (step + 1)
        optimizer.step()
    assert_same(dict(ours.module.state_dict()), dict(plain.state_dict()))


@pytest.mark.parametrize("nesterov", [False, True])
def test_gradient_descent_with_momentum_is_torchs(nesterov: bool) -> None:
    make = partial(Sgd, momentum=0.9, nesterov=nesterov, weight_decay=0.01)
    ours, plain = Updater(module(), make, None, None), module()
    optimizer = torch.optim.SGD(plain.parameters(), lr=RATE, momentum=0.9, nesterov=nesterov, weight_decay=0.01)
    for step in range(5):
        give(ours, 1.0, step)
        give(plain, 1.0, step)
        ours.apply(RATE / (step + 1))
        optimizer.param_groups[0]["lr"] = RATE / (step + 1)
        optimizer.step()
    for name, value in plain.state_dict().items():
        assert torch.allclose(ours.module.state_dict()[name], value, rtol=1e-6)
    assert ours.state().scalars["optimizer.step"] == 5.0
    assert "optimizer.momentum.0.weight" in ours.state().tensors


def test_gradients_are_gone_after_an_update() -> None:
    ours = updater()
    give(ours, 1.0)
    ours.apply(RATE)
    assert all(parameter.grad is None for parameter in ours.optimizer.parameters.values())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("loss_scale", [None, 8.0])
def test_a_gradient_that_is_not_finite_changes_nothing(value: float, loss_scale: float | None) -> None:
    ours = updater(clip=1.0, loss_scale=loss_scale)
    give(ours, 1.0)
    ours.apply(RATE)
    before, scalars = snapshot(ours)
    give(ours, 1.0, seed=1)
    first = ours.optimizer.parameters["0.weight"].grad
    assert first is not None
    first[0, 0] = value
    applied, _ = ours.apply(RATE)
    after, scalars_after = snapshot(ours)
    assert applied is False
    assert_same(before, after)
    assert scalars["optimizer.step"] == scalars_after["optimizer.step"] == 1.0
    assert all(parameter.grad is None for parameter in ours.optimizer.parameters.values())


def test_after_a_skipped_step_training_continues_as_if_it_had_not_been() -> None:
    skipping, straight = updater(), updater()
    for ours in (skipping, straight):
        give(ours, 1.0)
        ours.apply(RATE)
    give(skipping, float("nan"))
    skipping.apply(RATE)
    for ours in (skipping, straight):
        give(ours, 1.0, seed=2)
        ours.apply(RATE)
    assert_same(snapshot(skipping)[0], snapshot(straight)[0])


@pytest.mark.parametrize("loss_scale", [None, 64.0])
def test_a_large_gradient_is_scaled_down_to_the_clip(loss_scale: float | None) -> None:
    clipped, small = updater(clip=0.5, loss_scale=loss_scale), updater()
    give(small, 1.0)
    length = norm(small)
    give(small, 0.5 / length)
    give(clipped, loss_scale or 1.0)
    applied, found = clipped.apply(RATE)
    small.apply(RATE)
    assert applied
    assert found == pytest.approx(length, rel=1e-6)  # the norm before clipping, without the scale
    for name, tensor in clipped.state().tensors.items():
        torch.testing.assert_close(tensor, small.state().tensors[name], rtol=1e-5, atol=1e-7)


def test_a_gradient_below_the_clip_is_left_alone() -> None:
    clipping, free = updater(clip=1e6), updater()
    for ours in (clipping, free):
        give(ours, 1.0)
        ours.apply(RATE)
    assert_same(snapshot(clipping)[0], snapshot(free)[0])


def test_the_loss_scale_cancels_out_of_the_update() -> None:
    scaled, plain = updater(loss_scale=1024.0), updater()
    for ours in (scaled, plain):
        loss = ours.module(torch.ones(2, 3)).square().sum()
        ours.backward(loss)
        ours.apply(RATE)
    assert_same(snapshot(scaled)[0], snapshot(plain)[0])  # a power of two changes no bit


def test_an_overflow_halves_the_loss_scale_and_skips_the_step() -> None:
    ours = updater(loss_scale=2.0**16)
    give(ours, float("inf"))
    assert ours.apply(RATE)[0] is False
    assert ours.state().scalars["loss_scale.value"] == 2.0**15


def test_the_loss_scale_doubles_after_enough_good_steps_in_a_row() -> None:
    scale = LossScale(8.0)
    for _ in range(LossScale.GROW_AFTER - 1):
        scale.adapt(finite=True)
    assert scale.value == 8.0
    scale.adapt(finite=True)
    assert (scale.value, scale.good_steps) == (16.0, 0)


def test_an_overflow_begins_the_count_of_good_steps_anew() -> None:
    scale = LossScale(8.0)
    for _ in range(LossScale.GROW_AFTER - 1):
        scale.adapt(finite=True)
    scale.adapt(finite=False)
    scale.adapt(finite=True)
    assert (scale.value, scale.good_steps) == (4.0, 1)


def test_the_loss_scale_never_falls_below_one() -> None:
    scale = LossScale(2.0)
    for _ in range(5):
        scale.adapt(finite=False)
    assert scale.value == 1.0


def test_the_scale_in_use_unscales_the_step_that_makes_it_grow() -> None:
    growing, plain = updater(loss_scale=4.0), updater()
    assert growing.guard.scale is not None
    growing.guard.scale.good_steps = LossScale.GROW_AFTER - 1
    give(growing, 4.0)
    give(plain, 1.0)
    growing.apply(RATE)
    plain.apply(RATE)
    assert growing.guard.scale.value == 8.0
    assert_same(snapshot(growing)[0], snapshot(plain)[0])


@pytest.mark.parametrize("loss_scale", [None, 32.0])
def test_a_state_carried_over_continues_bit_for_bit(loss_scale: float | None) -> None:
    first, second = updater(loss_scale=loss_scale), updater(loss_scale=loss_scale)
    for step in range(3):
        give(first, 1.0, step)
        first.apply(RATE)
    saved, scalars = snapshot(first)
    with torch.no_grad():
        for name, tensor in second.state().tensors.items():
            tensor.copy_(saved[name])
    assert second.load(scalars) == []
    for ours in (first, second):
        give(ours, 1.0, seed=9)
        ours.apply(RATE)
    assert snapshot(first)[1] == snapshot(second)[1]
    assert_same(snapshot(first)[0], snapshot(second)[0])


def test_the_state_has_the_same_shape_before_and_after_the_first_step() -> None:
    ours = updater()
    before = {name: tensor.shape for name, tensor in ours.state().tensors.items()}
    give(ours, 1.0)
    ours.apply(RATE)
    assert {name: tensor.shape for name, tensor in ours.state().tensors.items()} == before
    assert "optimizer.exp_avg.0.weight" in before
    assert "optimizer.exp_avg_sq.1.bias" in before


def test_the_state_is_live_memory() -> None:
    ours = updater()
    give(ours, 1.0)
    tensors = ours.state().tensors
    ours.apply(RATE)
    assert_same(tensors, ours.state().tensors)


def test_an_fp16_run_resumed_from_fp32_says_that_its_scale_is_reset() -> None:
    _, scalars = snapshot(updater())
    assert updater(loss_scale=8.0).load(scalars) == ["the fp16 loss scale starts from its initial value"]
    _, scaled = snapshot(updater(loss_scale=8.0))
    assert updater().load(scaled) == []


def test_a_frozen_parameter_is_left_alone_and_has_no_moments() -> None:
    frozen = module()
    bias = frozen.get_parameter("1.bias").requires_grad_(False)
    before = bias.clone()
    ours = Updater(frozen, adam, None, None)
    give(ours, 1.0)
    assert ours.apply(RATE)[0] is True
    assert torch.equal(bias, before)
    assert "optimizer.exp_avg.1.bias" not in ours.state().tensors
    assert "1.bias" in ours.state().tensors


def test_a_parameter_that_got_no_gradient_is_named() -> None:
    ours = updater()
    give(ours, 1.0)
    ours.optimizer.parameters["1.bias"].grad = None
    with pytest.raises(AssertionError, match="1.bias"):
        ours.apply(RATE)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("loss_scale", [None, 64.0])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_device_that_judges_by_itself_takes_the_same_updates(
    optimizer: str, loss_scale: float | None, clip: float | None
) -> None:
    """The kernels read the norm, and the host learns later whether the update was applied."""
    sgd = partial(Sgd, momentum=0.9, nesterov=True, weight_decay=0.01)

    make = sgd if optimizer == "sgd" else adam
    host, device = (Updater(module(), make, clip, loss_scale) for _ in range(2))
    for step, factor in enumerate([1.0, 0.01, float("nan"), 2.0]):
        for ours in (host, device):
            give(ours, factor * (loss_scale or 1.0), step)
        applied, norm_of_host = host.apply(RATE)
        judgement = device.guard.judge(float(device.apply_on_device(RATE)))
        assert judgement.finite is applied is (step != 2)
        assert judgement.norm == pytest.approx(norm_of_host, rel=1e-6, nan_ok=True)
    assert snapshot(host)[1] == snapshot(device)[1]
    for name, tensor in snapshot(host)[0].items():
        torch.testing.assert_close(snapshot(device)[0][name], tensor, rtol=1e-5, atol=1e-8)
