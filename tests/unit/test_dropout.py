import pytest
import torch

from lockstep.models.dropout import Dropout, dropout, relu_dropout

PROBABILITIES = pytest.mark.parametrize("p", [0.1, 0.5, 0.999])


@PROBABILITIES
def test_a_share_of_p_becomes_zero_and_the_mean_is_preserved(p: float) -> None:
    torch.manual_seed(1)
    result = dropout(torch.ones(1000, 1001), p)
    rounded = min(255, round(p * 256)) / 256
    assert float((result == 0).float().mean()) == pytest.approx(rounded, abs=0.002)
    assert sorted(result.unique().tolist()) == [0.0, pytest.approx(1 / (1 - rounded))]


@PROBABILITIES
def test_the_gradient_uses_the_mask_of_the_forward_pass(p: float) -> None:
    torch.manual_seed(1)
    x = torch.randn(50, 7, requires_grad=True)
    result = dropout(x, p)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    torch.testing.assert_close(gradient * x, result)


@PROBABILITIES
def test_relu_dropout_equals_relu_then_dropout(p: float) -> None:
    x = torch.randn(50, 7, generator=torch.Generator().manual_seed(2), requires_grad=True)
    torch.manual_seed(1)
    expected = dropout(torch.relu(x), p)
    torch.manual_seed(1)
    actual = relu_dropout(x * 1.0, p)  # it works in place
    torch.testing.assert_close(actual, expected)
    weights = torch.arange(350.0).view(50, 7)
    (right,) = torch.autograd.grad((expected * weights).sum(), x)
    (gradient,) = torch.autograd.grad((actual * weights).sum(), x)
    torch.testing.assert_close(gradient, right)


def test_the_random_state_determines_the_mask() -> None:
    torch.manual_seed(1)
    first = dropout(torch.ones(100), 0.5)
    second = dropout(torch.ones(100), 0.5)
    torch.manual_seed(1)
    assert torch.equal(first, dropout(torch.ones(100), 0.5))
    assert not torch.equal(first, second)


def test_dropout_is_the_identity_for_p_0_and_in_evaluation() -> None:
    x = torch.randn(5)
    assert dropout(x, 0.0) is x
    assert torch.equal(relu_dropout(x, 0.0), torch.relu(x))
    assert Dropout(0.5).eval()(x) is x
