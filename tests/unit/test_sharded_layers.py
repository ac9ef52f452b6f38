import numpy as np
import torch
from torch import Tensor, nn

from lockstep.models.lstm import Lstm
from lockstep.models.model_settings import LstmSettings, TransformerSettings
from lockstep.models.packed import Layout
from lockstep.models.transformer import Transformer
from lockstep.parallel.sharded.layers import ShardedLayer, find_layers

X = torch.ones(2, 4)


class Chain(nn.Module):
    """Calls its layers one after the other, in the order of `numbers`."""

    def __init__(self, layers: list[nn.Module], numbers: list[int]) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)
        self.layers, self.numbers = nn.ModuleList(layers), numbers

    def forward(self, x: Tensor) -> Tensor:
        for number in self.numbers:
            x = self.layers[number](x)
        return self.head(x)


def linears(count: int) -> list[nn.Module]:
    return [nn.Linear(4, 4) for _ in range(count)]


def modules(found: list[ShardedLayer]) -> list[nn.Module]:
    return [unit.module for unit in found]


def test_layers_come_in_the_order_of_their_use() -> None:
    layers = linears(3)
    assert modules(find_layers(Chain(layers, [2, 0, 1]), X)) == [layers[2], layers[0], layers[1]]


def test_a_unit_has_the_matrices_and_leaves_vectors_and_all_outside_of_layers() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    (unit,) = find_layers(Chain([layer], [0]), X[None])
    assert unit.matrices == {p for p in layer.parameters() if p.ndim == 2}
    assert len(unit.matrices) == 4


def test_a_layer_that_is_used_twice_or_never_is_left_to_the_whole() -> None:
    layers = linears(3)
    assert modules(find_layers(Chain(layers, [0, 1, 0]), X)) == [layers[1]]


def test_a_matrix_that_is_used_elsewhere_is_left_to_the_whole() -> None:
    tied, other = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    chain = Chain([tied, nn.Identity(), other], [0, 1, 2])
    chain.head.weight = tied.weight
    assert modules(find_layers(chain, X)) == list(other)


def test_a_list_in_a_list_is_no_layer_but_its_elements_are() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            return x + self.inside(x)

    blocks = [Block() for _ in range(4)]
    stages: list[nn.Module] = [nn.Sequential(*blocks[:2]), nn.Sequential(*blocks[2:])]
    found = find_layers(Chain(stages, [0, 1]), X)
    assert modules(found) == blocks
    assert all(len(unit.matrices) == 1 for unit in found)


def test_a_model_without_lists_has_no_units() -> None:
    assert find_layers(nn.Linear(4, 4), X) == []


def test_only_weights_of_linear_layers_and_convolutions_are_cast() -> None:
    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.linear = nn.Parameter(torch.ones(3, 4)), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) + self.table[0]

    found = find_layers(Chain([nn.Linear(4, 4), Lookup(), nn.GRUCell(4, 4)], [0, 1, 2]), X)
    assert [unit.cast for unit in found] == [True, False, False]


def test_the_look_leaves_no_trace() -> None:
    norm = nn.BatchNorm1d(4)
    chain = Chain([norm, nn.Linear(4, 4)], [0, 1]).train()
    before = {name: tensor.clone() for name, tensor in chain.state_dict().items()}
    find_layers(chain, X)
    assert chain.training
    assert norm.training
    assert all(torch.equal(before[name], tensor) for name, tensor in chain.state_dict().items())
    assert not any(module._forward_pre_hooks for module in chain.modules())


class Loss(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        layout = Layout.from_lengths(np.array([len(ids)]))
        output: Tensor = self.model(ids, layout, ids, layout)
        return output.sum()


def left_to_the_whole(model: nn.Module, found: list[ShardedLayer]) -> set[str]:
    inside = set().union(*(unit.matrices for unit in found))
    return {name for name, p in model.named_parameters() if p.ndim > 1 and p not in inside}


def test_a_transformer_is_cut_into_its_layers() -> None:
    settings = TransformerSettings(encoder_layers=2, decoder_layers=3, width=8, feed_forward=8, heads=2)
    model = Transformer(settings, 20)
    found = find_layers(Loss(model), torch.tensor([3, 4, 5]))
    assert modules(found) == [*model.encoder, *model.decoder]
    assert all(unit.cast for unit in found)
    assert left_to_the_whole(model, found) == {"embedding.weight"}


def test_an_lstm_is_cut_into_its_layers() -> None:
    model = Lstm(LstmSettings(encoder_layers=2, decoder_layers=3, width=8), 20)
    found = find_layers(Loss(model), torch.tensor([3, 4, 5]))
    assert modules(found) == [*model.encoder, *model.decoder]
    large = {"source_embedding.weight", "target_embedding.weight", "projection.weight"}
    assert left_to_the_whole(model, found) == large
