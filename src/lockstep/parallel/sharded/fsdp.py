"""Sharded: every worker keeps a part of the parameters, of the gradients and of the optimizer's state.

torch's FSDP2 (`fully_shard`) gathers a layer's parameters shortly before it is used and forgets them afterwards, forward
and backward; each worker updates its part alone. What is sent, and how long the computation waits for it, is in `traffic`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.utils import get_total_norm

from lockstep.ablation import disabled
from lockstep.dtypes import DTYPES
from lockstep.parallel.agreement import agree_now
from lockstep.parallel.layer_sums import LayerSums, among, connect
from lockstep.parallel.sharded.full_copy import FullCopy
from lockstep.parallel.sharded.layers import ShardedLayer, find_layers
from lockstep.parallel.sharded.traffic import Gather, Reduce, Traffic
from lockstep.parallel.skip_compiler import compiler_left_out
from lockstep.parallel.strategy import (
    Agreed,
    B,
    BatchSplitter,
    Claim,
    Clock,
    Context,
    FindTensor,
    MakeOptimizer,
    Outcome,
    Snapshot,
    State,
)
from lockstep.parallel.strategy_settings import ShardedSettings
from lockstep.parallel.update import Updater


class Sharded:
    name = "sharded"
    together = True
    lockstep = True
    exact = True
    members = None
    ahead = 4

    def __init__(self, settings: ShardedSettings) -> None:
        self.keep_gathered = settings.keep_gathered
        self.gradients = DTYPES[settings.gradients]
        self.silent = "communication" in disabled()

    def setup(
        self,
        module: nn.Module,
        make_optimizer: MakeOptimizer,
        clock: Clock,
        context: Context,
        example: Any,
    ) -> None:
        self.context, self._module = context, module
        self.traffic = Traffic(clock, self.silent)
        self.sums = LayerSums(clock, among(context.team))
        self.reduce = Reduce(self.traffic, self.gradients)
        self.hollow = FullCopy(module)
        layers = find_layers(module, example)
        if not self.silent:
            connect(module, self.sums)
        with compiler_left_out():
            self._root = self._shard(module, layers)
            self._parts = dict(module.named_parameters())
            self.updater = Updater(module, make_optimizer, context.clip, context.loss_scale, self._norm)

    def _shard(self, module: nn.Module, layers: list[ShardedLayer]) -> FSDPModule:
        """The whole first and its layers afterwards, so that the whole can keep what the layers leave to it."""
        mesh = init_device_mesh(self.context.device.type, (self.context.size,))
        root = fully_shard(module, mesh=mesh, ignored_params={p for layer in layers for p in layer.matrices})
        half = MixedPrecisionPolicy(self.context.products, torch.float32, cast_forward_inputs=False)
        sharded = [root]
        for layer in layers:
            forgets = not self.keep_gathered and layer is not layers[-1]  # backward begins with the last one
            vectors = set(layer.module.parameters()) - layer.matrices
            policy = half if layer.cast else MixedPrecisionPolicy()
            sharded.append(
                fully_shard(
                    layer.module, mesh=mesh, reshard_after_forward=forgets, mp_policy=policy, ignored_params=vectors
                )
            )
        gather = Gather(self.traffic)
        for part in sharded:
            part.set_custom_all_gather(gather)
            part.set_custom_reduce_scatter(self.reduce)
            part.set_gradient_divide_factor(1.0)  # the loss is divided by the global word count: sums stay sums
            part.set_force_sum_reduction_for_comms(True)
        for part, following in pairwise(sharded):
            part.set_modules_to_forward_prefetch([following])
        return root

    @property
    def module(self) -> nn.Module:
        return self._module

    def claims(
        self, order: BatchSplitter[B], batches: Iterator[B], first: int, due: Callable[[int], bool]
    ) -> Iterator[Claim[B]]:
        """Workers gather parameters together for every micro-batch. Who has fewer than another takes part with empty
        ones; when parameters stay gathered, there is no need to."""
        rank, size = self.context.rank, self.context.size
        for step, batch in enumerate(batches, first):
            shares = [order.share(batch, worker, size) for worker in range(size)]
            counts = [len(order.micro_batches(share)) for share in shares]
            missing = 0 if self.keep_gathered else max(counts) - counts[rank]
            yield Claim(step, batch, shares[rank], batch.target_words, rank, empty_micro_batches=missing)

    def begin(self, claim: Claim[B]) -> None:
        pass

    @contextmanager
    def micro(self, last: bool) -> Iterator[None]:
        self.traffic.phase = self.sums.phase = "forward"
        self._root.set_requires_gradient_sync(last)
        if self.keep_gathered:
            self._root.set_reshard_after_backward(last)
        yield

    def backward(self, loss_sum: Tensor, target_words: int) -> None:
        self.traffic.phase = self.sums.phase = "backward"
        self.updater.backward(loss_sum / target_words)
        self.reduce.finish()

    def commit(self, learning_rate: float) -> Outcome:
        self.traffic.phase = "update"
        applied, norm = self.updater.apply(learning_rate)  # waits for the device, so that all stamps can be read
        return self.sums.settle(self.context.size, Outcome(applied, norm, *self.traffic.settle()))

    def _norm(self, gradients: list[Tensor]) -> Tensor:
        """Of the whole gradient, from the parts, added in the order of ranks: every worker gets the same bits."""
        mine = get_total_norm(gradients).double().square().view(1)
        if self.silent:
            return mine.sqrt()
        squares = mine.new_empty(self.context.size)
        with self.traffic.waiting():
            dist.all_gather_single(squares, mine)
        return squares.sum().sqrt()

    def agree(self, loss_sum: float, stop: bool) -> Agreed:
        return agree_now(loss_sum, stop, self.context.team)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """A plain model with whole parameters in fp32, on every worker."""
        wholes = ((name, _whole(part)) for name, part in self._parts.items())
        with self.hollow.filled(wholes, self._module.named_buffers()) as module:
            yield Snapshot(module, self.context.team)

    def state(self) -> State:
        """The tensors are parts that know their place in the whole (DTensor): they are saved and loaded as parts."""
        return self.updater.state()

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        return self.updater.load(scalars)

    def finish(self) -> None:
        pass


@torch.no_grad()
def _whole(part: Tensor) -> Tensor:
    """Gathers one tensor. Rows are dealt out in equal numbers until there are none left; all workers send as many."""
    assert isinstance(part, DTensor)
    size = part.device_mesh.size()
    rows = -(-part.shape[0] // size)
    mine = part.to_local()
    padded = mine.new_zeros(rows, *part.shape[1:])
    padded[: len(mine)] = mine
    whole = padded.new_empty(size * rows, *part.shape[1:])
    dist.all_gather_single(whole, padded)
    return whole[: part.shape[0]]
