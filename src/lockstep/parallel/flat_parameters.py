"""The parameters of a model as one vector, so that any slice of them can be sent without a copy."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class FlatParameters:
    """Trainable parameters become views of `values`; those named in `first` come first. With `gradients` their gradients
    are views of a second vector, to which the backward pass adds."""

    def __init__(self, module: nn.Module, gradients: bool = False, first: Iterable[str] = ()) -> None:
        trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.parameters = {name: trainable[name] for name in first} | trainable
        self.spans: dict[str, tuple[int, int]] = {}
        size = 0
        for name, parameter in self.parameters.items():
            self.spans[name] = (size, size + parameter.numel())
            size += parameter.numel()
        one = next(iter(self.parameters.values()))
        self.values = torch.empty(size, dtype=one.dtype, device=one.device)
        self.gradient = torch.zeros_like(self.values) if gradients else None
        for name, parameter in self.parameters.items():
            begin, end = self.spans[name]
            self.values[begin:end].copy_(parameter.detach().reshape(-1))
            parameter.data = self.values[begin:end].view(parameter.shape)
            if self.gradient is not None:
                parameter.grad = self.gradient[begin:end].view(parameter.shape)

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """Returns views of a vector of the same length, by parameter name and in the parameters' shapes."""
        return {name: vector[begin:end].view(self.parameters[name].shape) for name, (begin, end) in self.spans.items()}
