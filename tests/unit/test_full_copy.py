import torch
from torch import nn

from lockstep.parallel.sharded.full_copy import FullCopy


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight


def sizes(module: nn.Module) -> set[int]:
    return {parameter.untyped_storage().size() for parameter in module.parameters()}


def test_a_hollow_model_has_parameters_only_while_it_is_filled() -> None:
    model = Tied()
    hollow = FullCopy(model)
    assert sizes(hollow._copy) == {0}
    with hollow.filled(model.named_parameters(), model.named_buffers()) as filled:
        assert type(filled) is Tied
        assert all(torch.equal(p, q) for p, q in zip(filled.parameters(), model.parameters(), strict=True))
        assert filled.second.weight is filled.first.weight
        assert filled.norm.running_mean is model.norm.running_mean
        assert filled.state_dict().keys() == model.state_dict().keys()
    assert sizes(hollow._copy) == {0}
    assert 0 not in sizes(model)


def test_it_shows_the_parameters_of_the_moment() -> None:
    model = Tied()
    hollow = FullCopy(model)
    for value in (1.0, 2.0):
        nn.init.constant_(model.first.weight, value)
        with hollow.filled(model.named_parameters(), model.named_buffers()) as filled:
            assert float(filled.get_parameter("second.weight").detach().mean()) == value
