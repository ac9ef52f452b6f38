import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lockstep.tasks import output_loss
from lockstep.tasks.output_loss import cross_entropy

WORDS, WIDTH, VOCABULARY = 45, 8, 30


def make_inputs() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(5)
    x, weight = torch.randn(WORDS, WIDTH), torch.randn(VOCABULARY, WIDTH)
    return x.requires_grad_(), weight.requires_grad_(), torch.randint(0, VOCABULARY, (WORDS,))


def compute_unfused(x: Tensor, weight: Tensor, target: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(F.linear(x, weight).float(), target, reduction="sum", label_smoothing=smoothing)


@pytest.fixture(params=[16 * VOCABULARY, 45 * VOCABULARY, 2**22], ids=["three blocks", "one full block", "one block"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(output_loss.BLOCK_SCORES, "cpu", request.param)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.usefixtures("blocks")
def test_loss_and_gradients_are_those_of_the_unfused_output_layer(smoothing: float) -> None:
    x, weight, target = make_inputs()
    expected = compute_unfused(x, weight, target, smoothing)
    grads = torch.autograd.grad(expected / 7.0, (x, weight))
    loss = cross_entropy(x, weight, target, smoothing)
    torch.testing.assert_close(loss, expected)
    for actual, right in zip(torch.autograd.grad(loss / 7.0, (x, weight)), grads, strict=True):
        torch.testing.assert_close(actual, right)


@pytest.mark.usefixtures("blocks")
def test_without_gradients_only_the_loss_is_computed() -> None:
    x, weight, target = make_inputs()
    with torch.no_grad():
        loss = cross_entropy(x, weight, target, 0.1)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, compute_unfused(x, weight, target, 0.1).detach())


@pytest.mark.usefixtures("blocks")
def test_products_follow_autocast_and_the_loss_stays_fp32() -> None:
    x, weight, target = make_inputs()
    with torch.autocast("cpu", torch.bfloat16):
        loss, expected = cross_entropy(x, weight, target, 0.1), compute_unfused(x, weight, target, 0.1)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=0.01, atol=0.0)
    grads = torch.autograd.grad(expected, (x, weight))
    for actual, right in zip(torch.autograd.grad(loss, (x, weight)), grads, strict=True):
        assert actual.dtype == torch.float32
        torch.testing.assert_close(actual, right, rtol=0.05, atol=0.1)


def test_backward_runs_only_once() -> None:
    loss = cross_entropy(*make_inputs(), 0.1)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="only once"):
        loss.backward()


def test_the_weights_get_their_gradient_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autograd rounded the sum over the blocks to the format of the products."""
    monkeypatch.setitem(output_loss.BLOCK_SCORES, "cpu", 16 * VOCABULARY)
    x, weight, target = make_inputs()
    with torch.autocast("cpu", torch.bfloat16):
        (gradient,) = torch.autograd.grad(cross_entropy(x, weight, target, 0.1), (weight,))
    assert not torch.equal(gradient, gradient.bfloat16().float())
