"""A copy of a model whose parameters take memory only while they are needed."""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Named = Iterable[tuple[str, Tensor]]


class FullCopy:
    """Has the structure of a model, ties included, and shares its buffers; the parameters come and go."""

    def __init__(self, module: nn.Module) -> None:
        places: dict[int, object] = {}
        for parameter in module.parameters():
            place = nn.Parameter(torch.empty_like(parameter), parameter.requires_grad)
            _resize(place, 0)
            places[id(parameter)] = place
        self._copy = copy.deepcopy(module, places)

    @contextmanager
    def filled(self, parameters: Named, buffers: Named) -> Iterator[nn.Module]:
        places = dict(self._copy.named_parameters())
        try:
            for name, whole in parameters:
                _resize(places[name], whole.numel())
                places[name].detach().copy_(whole)
            for name, buffer in buffers:
                owner, _, own_name = name.rpartition(".")
                self._copy.get_submodule(owner)._buffers[own_name] = buffer
            yield self._copy
        finally:
            for place in places.values():
                _resize(place, 0)


def _resize(place: Tensor, values: int) -> None:
    place.untyped_storage().resize_(values * place.element_size())
