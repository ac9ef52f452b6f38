"""A copy of a sharded model with full parameters, which take memory only while they are needed."""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

NamedTensors = Iterable[tuple[str, Tensor]]


class FullCopy:
    """Has the structure of a model, tied parameters included, and shares its buffers. Parameters are empty until
    `filled`."""

    def __init__(self, module: nn.Module, device: torch.device | None = None) -> None:
        """With a `device` the parameters are there; buffers stay where they are."""
        copies: dict[int, object] = {}
        for parameter in module.parameters():
            empty = nn.Parameter(torch.empty_like(parameter, device=device), parameter.requires_grad)
            _resize(empty, 0)
            copies[id(parameter)] = empty
        self._copy = copy.deepcopy(module, copies)

    @contextmanager
    def filled(self, parameters: NamedTensors, buffers: NamedTensors) -> Iterator[nn.Module]:
        """Gives the module with these values, and frees them at the end."""
        own_parameters = dict(self._copy.named_parameters())
        try:
            for name, values in parameters:
                _resize(own_parameters[name], values.numel())
                own_parameters[name].detach().copy_(values)
            for name, buffer in buffers:
                owner, _, own_name = name.rpartition(".")
                self._copy.get_submodule(owner)._buffers[own_name] = buffer
            yield self._copy
        finally:
            for parameter in own_parameters.values():
                _resize(parameter, 0)


def _resize(tensor: Tensor, values: int) -> None:
    tensor.untyped_storage().resize_(values * tensor.element_size())
