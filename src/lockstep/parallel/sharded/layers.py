"""The layers of a model that are gathered one at a time. It knows no model: a layer is an element of a list of modules."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
CAST = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Layers whose weights autocast turns into half precision before it multiplies."""


@dataclass(frozen=True)
class ShardedLayer:
    """A layer and its matrices. Its vectors (biases, norms) are not among them: they are small, and a mixed-precision
    pass needs them in full precision."""

    module: nn.Module
    matrices: frozenset[nn.Parameter]
    cast: bool  # does autocast round all of them, wherever it is on?


def find_layers(module: nn.Module, example: Any) -> list[ShardedLayer]:
    """The layers that can be gathered alone, in the order in which `module(example)` uses them.

    A layer that is used twice or not at all, and a matrix that others use too, is left to the whole.
    """
    owners = defaultdict(list)
    for owner in module.modules():
        for parameter in owner.parameters(recurse=False):
            owners[parameter].append(owner)
    calls = _calls(module, _layers(module), example)
    found = []
    for layer in calls:
        inside = set(layer.modules())
        own = [p for p in layer.parameters() if p.ndim > 1 and inside.issuperset(owners[p])]
        if own and calls.count(layer) == 1:
            cast = all(isinstance(owner, CAST) for parameter in own for owner in owners[parameter])
            found.append(ShardedLayer(layer, frozenset(own), cast))
    return found


def _layers(module: nn.Module) -> list[nn.Module]:
    """The elements of the outermost lists. A list in a list is no layer, but its elements are."""
    found = []
    for child in module.children():
        if isinstance(module, LISTS) and not isinstance(child, LISTS):
            found.append(child)
        else:
            found += _layers(child)
    return found


@torch.no_grad()
def _calls(module: nn.Module, layers: list[nn.Module], example: Any) -> list[nn.Module]:
    """The layers as a forward pass calls them. It leaves no trace: in evaluation, norms keep no statistics."""
    calls: list[nn.Module] = []
    hooks = [layer.register_forward_pre_hook(lambda layer, _: calls.append(layer)) for layer in layers]
    training = module.training
    module.eval()
    module(example)
    module.train(training)
    for hook in hooks:
        hook.remove()
    return calls
