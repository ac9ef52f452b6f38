import pytest
import torch

from lockstep.models.dropout import Dropout, dropout, relu_dropout

SHARES = pytest.mark.parametrize("share", [0.1, 0.5, 0.999])


@SHARES
def test_about_the_share_becomes_zero_and_the_rest_keeps_the_mean(share: float) -> None:
    torch.manual_seed(1)
    result = dropout(torch.ones(1000, 1001), share)
    rounded = min(255, round(share * 256)) / 256
    assert float((result == 0).float().mean()) == pytest.approx(rounded, abs=0.002)
    assert sorted(result.unique().tolist()) == [0.0, pytest.approx(1 / (1 - rounded))]


@SHARES
def test_the_gradient_passes_where_the_value_did(share: float) -> None:
    torch.manual_seed(1)
    x = torch.randn(50, 7, requires_grad=True)
    result = dropout(x, share)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    torch.testing.assert_close(gradient * x, result)


@SHARES
def test_relu_and_dropout_in_one_are_the_two_in_a_row(share: float) -> None:
    x = torch.randn(50, 7, generator=torch.Generator().manual_seed(2), requires_grad=True)
    torch.manual_seed(1)
    expected = dropout(torch.relu(x), share)
    torch.manual_seed(1)
    found = relu_dropout(x * 1.0, share)  # it works in place
    torch.testing.assert_close(found, expected)
    weights = torch.arange(350.0).view(50, 7)
    (right,) = torch.autograd.grad((expected * weights).sum(), x)
    (gradient,) = torch.autograd.grad((found * weights).sum(), x)
    torch.testing.assert_close(gradient, right)


def test_the_random_state_decides_the_mask() -> None:
    torch.manual_seed(1)
    first = dropout(torch.ones(100), 0.5)
    second = dropout(torch.ones(100), 0.5)
    torch.manual_seed(1)
    assert torch.equal(first, dropout(torch.ones(100), 0.5))
    assert not torch.equal(first, second)


def test_nothing_happens_without_a_share_or_outside_training() -> None:
    x = torch.randn(5)
    assert dropout(x, 0.0) is x
    assert torch.equal(relu_dropout(x, 0.0), torch.relu(x))
    assert Dropout(0.5).eval()(x) is x
