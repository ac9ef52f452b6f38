"""Sharded: every worker stores one shard of the parameters, of the gradients and of the optimizer's state.

torch's FSDP2 (`fully_shard`) gathers a layer's parameters shortly before they are used and frees them afterwards, in
forward and backward; each worker updates its shard alone. `traffic` does the sending and measures it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.utils import get_total_norm

from lockstep.dtypes import DTYPES
from lockstep.parallel.layer_sums import LayerSums, connect_layers, sum_over
from lockstep.parallel.optimizers import MakeOptimizer
from lockstep.parallel.sharded.full_copy import FullCopy
from lockstep.parallel.sharded.layers import ShardedLayer, find_layers
from lockstep.parallel.sharded.traffic import Gather, ReduceInRankOrder, Traffic
from lockstep.parallel.skip_compiler import fsdp_without_compiler
from lockstep.parallel.strategy import B, BatchSplitter, Claim, Outcome, Snapshot, Strategy
from lockstep.parallel.strategy_settings import ShardedSettings
from lockstep.parallel.update import Updater


class Sharded(Strategy):
    """The tensors of `state` are DTensors, which know their place in the full tensor: checkpoints store shards."""

    name = "sharded"

    def __init__(self, settings: ShardedSettings) -> None:
        self.keep_gathered = settings.keep_gathered
        self.gradients, self.sends_gradients_in = DTYPES[settings.gradients], settings.gradients

    def connect(self, make_optimizer: MakeOptimizer, example: object) -> None:
        module = self.raw_module
        self.traffic = Traffic(self.clock, self.silent)
        self.sums = LayerSums(self.clock, sum_over(self.team, self.raw_module))
        self.reduce = ReduceInRankOrder(self.traffic, self.gradients)
        self.full_copy, self.exported = FullCopy(module), FullCopy(module, torch.device("cpu"))
        layers = find_layers(module, example)
        if not self.silent:
            connect_layers(module, self.sums)
        with fsdp_without_compiler():
            self._root = self._shard(module, layers)
            self.shards = dict(module.named_parameters())
            self.updater = Updater(module, make_optimizer, self.context.clip, self.context.loss_scale, self._full_norm)

    def _shard(self, module: nn.Module, layers: list[ShardedLayer]) -> FSDPModule:
        """Shards the root first and the layers afterwards, so that the root owns what belongs to no layer."""
        mesh = init_device_mesh(self.team.device.type, (self.team.size,))
        root = fully_shard(module, mesh=mesh, ignored_params={p for layer in layers for p in layer.matrices})
        mixed = MixedPrecisionPolicy(self.context.compute_dtype, torch.float32, cast_forward_inputs=False)
        modules = [root]
        for layer in layers:
            frees = not self.keep_gathered and layer is not layers[-1]  # backward begins with the last one
            vectors = set(layer.module.parameters()) - layer.matrices
            policy = mixed if layer.cast else MixedPrecisionPolicy()
            modules.append(
                fully_shard(
                    layer.module, mesh=mesh, reshard_after_forward=frees, mp_policy=policy, ignored_params=vectors
                )
            )
        gather = Gather(self.traffic)
        for part in modules:
            part.set_custom_all_gather(gather)
            part.set_custom_reduce_scatter(self.reduce)
            part.set_gradient_divide_factor(1.0)  # the loss is divided by the global word count: sums stay sums
            part.set_force_sum_reduction_for_comms(True)
        for part, following in pairwise(modules):
            part.set_modules_to_forward_prefetch([following])
        return root

    def claims(
        self, splitter: BatchSplitter[B], batches: Iterator[B], first: int, due: Callable[[int], bool]
    ) -> Iterator[Claim[B]]:
        """All workers gather parameters for every micro-batch. A worker with fewer micro-batches than another runs empty
        ones; with `keep_gathered` that is not needed."""
        rank, size = self.team.rank, self.team.size
        for step, batch in enumerate(batches, first):
            shares = [splitter.share(batch, worker, size) for worker in range(size)]
            counts = [len(splitter.micro_batches(share)) for share in shares]
            missing = 0 if self.keep_gathered else max(counts) - counts[rank]
            yield Claim(step, batch, shares[rank], batch.target_words, rank, empty_micro_batches=missing)

    @contextmanager
    def micro(self, last: bool) -> Iterator[None]:
        self.traffic.phase = self.sums.phase = "forward"
        self._root.set_requires_gradient_sync(last)
        if self.keep_gathered:
            self._root.set_reshard_after_backward(last)
        yield

    def backward(self, loss_sum: Tensor, target_words: int) -> None:
        self.traffic.phase = self.sums.phase = "backward"
        super().backward(loss_sum, target_words)
        self.reduce.finish()

    def commit(self, learning_rate: float) -> Outcome:
        self.traffic.phase = "update"
        return self.update(learning_rate)

    def settle(self, outcome: Outcome) -> Outcome:
        sent, overlapped = self.traffic.settle()
        return self.sums.settle(self.team.size, replace(outcome, bytes_sent=sent, merge_overlapped=overlapped))

    def _full_norm(self, gradients: list[Tensor]) -> Tensor:
        """Returns the norm of the full gradient. Squares are added in rank order: every worker gets the same bits."""
        own = get_total_norm(gradients).double().square().view(1)
        if self.silent:
            return own.sqrt()
        squares = own.new_empty(self.team.size)
        with self.traffic.waiting():
            dist.all_gather_single(squares, own)
        return squares.sum().sqrt()

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Gives a plain model with full parameters in fp32: on every worker for an evaluation, in the primary's main memory
        to save it."""
        with ExitStack() as stack:
            yield _ShardedSnapshot(self, stack)


class _ShardedSnapshot(Snapshot):
    """Gathers the parameters when they are asked for: a model that needs sharding may not fit on one device."""

    def __init__(self, strategy: Sharded, stack: ExitStack) -> None:
        super().__init__(strategy.raw_module, strategy.team)
        self._strategy, self._stack = strategy, stack
        self._whole: nn.Module | None = None

    @property
    def module(self) -> nn.Module:
        if self._whole is None:
            self._whole = self._fill(self._strategy.full_copy, needs_values=True)
        return self._whole

    def prepare_evaluation(self) -> None:
        _ = self.module

    def prepare_export(self) -> nn.Module:
        if self._whole is not None:
            return self._whole
        return self._fill(self._strategy.exported, needs_values=self._strategy.team.primary)

    def _fill(self, copy: FullCopy, needs_values: bool) -> nn.Module:
        """Gathers one tensor after the other. A worker that does not need the values drops them."""
        strategy = self._strategy
        gathered = ((name, _gather_full(shard)) for name, shard in strategy.shards.items())
        values = ((name, full) for name, full in gathered if needs_values)
        return self._stack.enter_context(copy.filled(values, strategy.raw_module.named_buffers()))


@torch.no_grad()
def _gather_full(shard: Tensor) -> Tensor:
    """Gathers one tensor. FSDP2 gives every worker the same number of rows until none are left; all send equally many."""
    assert isinstance(shard, DTensor)
    size = shard.device_mesh.size()
    rows = -(-shard.shape[0] // size)
    own = shard.to_local()
    padded = own.new_zeros(rows, *shard.shape[1:])
    padded[: len(own)] = own
    full = padded.new_empty(size * rows, *shard.shape[1:])
    dist.all_gather_single(full, padded)
    return full[: shard.shape[0]]
