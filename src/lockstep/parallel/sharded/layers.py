"""Finds the layers of a model that are gathered one at a time. A layer is an element of a list of modules."""

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import nn

LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
CAST = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Layers whose weights autocast turns into half precision before it multiplies."""


@dataclass(frozen=True)
class ShardedLayer:
    """A layer and its matrices. Vectors (biases, norms) are not among them: they are small, and a mixed-precision pass
    needs them in full precision."""

    module: nn.Module
    matrices: frozenset[nn.Parameter]
    cast: bool  # autocast rounds all of them


def find_layers(module: nn.Module, example: object) -> list[ShardedLayer]:
    """Returns the layers that can be gathered alone, in the order in which `module(example)` uses them.

    A layer that is used twice or not at all, and a matrix that other layers use too, belongs to the root.
    """
    owners = defaultdict(list)
    for owner in module.modules():
        for parameter in owner.parameters(recurse=False):
            owners[parameter].append(owner)
    calls = _record_calls(module, _list_layers(module), example)
    layers = []
    for layer in calls:
        inside = set(layer.modules())
        own = [p for p in layer.parameters() if p.ndim > 1 and inside.issuperset(owners[p])]
        if own and calls.count(layer) == 1:
            cast = all(isinstance(owner, CAST) for parameter in own for owner in owners[parameter])
            layers.append(ShardedLayer(layer, frozenset(own), cast))
    return layers


def _list_layers(module: nn.Module) -> list[nn.Module]:
    """Returns the elements of the outermost lists. A list inside a list is no layer, but its elements are."""
    layers = []
    for child in module.children():
        if isinstance(module, LISTS) and not isinstance(child, LISTS):
            layers.append(child)
        else:
            layers += _list_layers(child)
    return layers


@torch.no_grad()
def _record_calls(module: nn.Module, layers: list[nn.Module], example: object) -> list[nn.Module]:
    """Returns the layers in the order of a forward pass. In evaluation mode, so that norms keep no statistics of it."""
    calls: list[nn.Module] = []
    hooks = [layer.register_forward_pre_hook(lambda layer, _: calls.append(layer)) for layer in layers]
    training = module.training
    module.eval()
    module(example)
    module.train(training)
    for hook in hooks:
        hook.remove()
    return calls
