"""Gradients in flat packets: handed on in one order, complete, and never by the way."""

import torch
from torch import Tensor, nn

from lockstep.parallel.exchange import busy_seconds, stamped_seconds
from lockstep.parallel.resilient.buckets import Buckets
from lockstep.parallel.strategy import Stamp


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8), nn.Linear(8, 4))


def test_packets_hold_the_gradients_and_leave_the_last_layers_first() -> None:
    module, plain, x = model(), model(), torch.randn(5, 8)
    plain(x).sum().backward()
    parameters, sent = list(module.parameters()), list[Tensor]()
    buckets = Buckets(parameters, 600 / 2**20, sent.append)  # two or three tensors fit into one
    buckets.armed = True
    module(x).sum().backward()
    assert len(sent) > 1
    assert torch.equal(sent[0][:4], plain[3].bias.grad)  # type: ignore[arg-type]
    together = torch.cat(sent)
    assert together.numel() == sum(p.numel() for p in parameters)
    expected = torch.cat([p.grad.flatten() for p in reversed(list(plain.parameters())) if p.grad is not None])
    assert torch.equal(together, expected)
    sent[0].fill_(7.0)  # what a merge writes into a packet is the gradient
    assert torch.equal(module[3].bias.grad, torch.full((4,), 7.0))  # type: ignore[arg-type]


def test_nothing_is_handed_on_before_the_last_micro_batch_and_sums_are_complete() -> None:
    module, plain = model(), model()
    one, two = torch.randn(3, 8), torch.randn(2, 8)
    sent: list[Tensor] = []
    buckets = Buckets(list(module.parameters()), 600 / 2**20, lambda packet: sent.append(packet.clone()))
    for part, last in ((one, False), (two, True)):
        buckets.armed = last
        plain(part).sum().backward()
        module(part).sum().backward()
        assert bool(sent) == last
    expected = torch.cat([p.grad.flatten() for p in reversed(list(plain.parameters())) if p.grad is not None])
    assert torch.equal(torch.cat(sent), expected)


def test_what_backward_did_not_reach_is_handed_on_as_zeros_in_the_same_order() -> None:
    module, x = model(), torch.randn(5, 8)
    sent: list[Tensor] = []
    buckets = Buckets(list(module.parameters()), 600 / 2**20, lambda packet: sent.append(packet.clone()))
    buckets.armed = True
    module[:2](x).sum().backward()
    assert not sent, "a packet overtook the ones before it"
    buckets.send_rest()
    assert torch.cat(sent)[:36].eq(0).all()
    buckets.clear()
    assert all(p.grad is not None and p.grad.eq(0).all() for p in module.parameters())
    module(x).sum().backward()
    buckets.send_rest()
    assert torch.cat(sent).numel() == 2 * sum(p.numel() for p in module.parameters())


class Seconds:
    """A clock whose stamps are seconds."""

    def stamp(self) -> float:
        return 0.0

    def between(self, begin: Stamp, end: Stamp) -> float:
        assert isinstance(begin, float)
        assert isinstance(end, float)
        return end - begin

    def since(self, begin: Stamp) -> float:
        return 0.0

    def move(self, source: str, target: str, seconds: float) -> None:
        pass


def test_time_under_way_counts_once_where_packets_overlap() -> None:
    assert stamped_seconds(Seconds(), []) == 0.0
    spans = [(10.0, 12.0), (11.0, 14.0), (20.0, 21.0), (20.5, 20.6)]
    assert stamped_seconds(Seconds(), spans) == busy_seconds(reversed(spans)) == 5.0


def test_time_under_way_counts_up_to_a_limit() -> None:
    spans = [(1.0, 4.0), (2.0, 6.0), (8.0, 9.0)]
    assert [busy_seconds(spans, until) for until in (0.0, 3.0, 5.0, 7.0, 8.5)] == [0.0, 2.0, 4.0, 5.0, 5.5]
