"""Resilient: all-reduce among the workers that are there. When one dies the others take the step again without it; when
it is back it takes over the state of a peer and goes on with them.

Who takes part is settled before every step, and only then is the global batch cut into shares. A step counts when all
shares were summed, so that no sentence is lost and none is used twice; otherwise the same global batch is taken again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from lockstep import faults
from lockstep.ablation import disabled
from lockstep.dtypes import DTYPES
from lockstep.parallel.compress import ring_bytes
from lockstep.parallel.layer_sums import LayerSums, connect
from lockstep.parallel.resilient.buckets import Buckets
from lockstep.parallel.resilient.quorum import Quorum
from lockstep.parallel.spans import Span, busy
from lockstep.parallel.strategy import (
    Agreed,
    B,
    BatchSplitter,
    Claim,
    Clock,
    Context,
    FindTensor,
    MakeOptimizer,
    Members,
    Outcome,
    QuorumView,
    Snapshot,
    State,
)
from lockstep.parallel.strategy_settings import ResilientSettings
from lockstep.parallel.update import Updater
from lockstep.run.checkpoint import Progress


@dataclass(frozen=True)
class PlacedClaim(Claim[B]):
    """A share, and for which place among how many workers it was cut."""

    place: tuple[int, int] = (0, 1)


class Resilient:
    name = "resilient"
    together = True
    lockstep = True
    exact = False
    ahead = 4

    def __init__(self, settings: ResilientSettings) -> None:
        self.settings = settings
        self.format = DTYPES[settings.gradients]
        self.silent = "communication" in disabled()

    def setup(
        self,
        module: nn.Module,
        make_optimizer: MakeOptimizer,
        clock: Clock,
        context: Context,
        example: Any,
    ) -> None:
        self.clock, self.context, self._module = clock, context, module
        self.updater = Updater(module, make_optimizer, context.clip, context.loss_scale)
        self.peers = Quorum(context, self.settings.merge_seconds, self._give, self._take)
        parameters = list(self.updater.optimizer.parameters.values())
        self.buckets = Buckets(parameters, self.settings.bucket_mb, self._send_gradient)
        saved = module.state_dict().keys()
        self._buffers = [buffer for name, buffer in module.named_buffers() if name in saved]  # running averages
        self.sums = LayerSums(clock, self._sum)
        if not self.silent:
            connect(module, self.sums)
        self._met: int | None = None  # the step after which we met and that has not been taken yet
        self._taken: tuple[Progress, str | None] | None = None  # from a peer: where it stands, and why it is ending
        self._wish = False
        self._agreed = Agreed(0.0, False)

    @property
    def members(self) -> Members:
        return self

    @property
    def module(self) -> nn.Module:
        return self._module

    @property
    def leads(self) -> bool:
        return self.peers.rank == 0

    def meet(self, progress: Progress, ending: str | None = None) -> QuorumView:
        if self._met == progress.step and ending is None:
            return QuorumView(self.peers.quorum, self.peers.participants, regrouped=False)
        begin = perf_counter()
        self._given, self._taken = (progress, ending), None
        found = self.peers.meet(progress.step)
        stand, end = self._taken or (progress, None)
        self._met = stand.step
        self._begin_step()
        return QuorumView(
            self.peers.quorum,
            self.peers.participants,
            found.regrouped,
            found.failures,
            perf_counter() - begin,
            stand if self._taken else None,
            found.source,
            end,
        )

    def _give(self) -> dict[str, Any]:
        progress, ending = self._given
        state = self.updater.state()
        return {"tensors": state.tensors, "progress": asdict(progress) | {"scalars": state.scalars}, "ending": ending}

    @torch.no_grad()
    def _take(self, given: dict[str, Any]) -> None:
        for name, tensor in self.updater.state().tensors.items():
            tensor.copy_(given["tensors"][name])
        progress = Progress(**given["progress"])
        self.updater.load(progress.scalars)
        self._taken = (progress, given["ending"])

    def _begin_step(self) -> None:
        self.buckets.empty()
        self._loss = torch.zeros((), device=self.context.device)
        self._spans: list[torch.futures.Future[Span]] = []  # of every packet
        self._rounded: list[tuple[Tensor, Tensor]] = []  # packets, and what travels in their place
        self._bytes = 0
        self.sums.forget()

    def claims(
        self, order: BatchSplitter[B], batches: Iterator[B], first: int, due: Callable[[int], bool]
    ) -> Iterator[Claim[B]]:
        for step, batch in enumerate(batches, first):
            place = (self.peers.rank, self.peers.size)
            yield PlacedClaim(step, batch, order.share(batch, *place), batch.target_words, place[0], place=place)

    def revise(self, claim: Claim[B], order: BatchSplitter[B]) -> Claim[B]:
        assert isinstance(claim, PlacedClaim)
        place = (self.peers.rank, self.peers.size)
        if claim.place != place:
            claim = replace(claim, share=order.share(claim.batch, *place), part=place[0], place=place)
        self._share, self._whole = len(claim.share), len(claim.batch.indices)
        self._before = [buffer.clone() for buffer in self._buffers]
        return claim

    def begin(self, claim: Claim[B]) -> None:
        pass

    @contextmanager
    def micro(self, last: bool) -> Iterator[None]:
        self.buckets.armed = last
        yield
        self.buckets.armed = False

    def backward(self, loss_sum: Tensor, target_words: int) -> None:
        self._loss += loss_sum.detach()
        self.sums.phase = "backward"
        self.updater.backward(loss_sum / target_words)

    def _sum(self, tensor: Tensor) -> None:
        """For a layer. When it fails the step will not count."""
        if self.peers.send(tensor) is not None:
            self.peers.wait()

    def _send_gradient(self, packet: Tensor) -> None:
        faults.at("merge")
        sent = packet.to(self.format)  # the same tensor for fp32
        self._send(sent)
        if sent is not packet:
            self._rounded.append((packet, sent))

    def _send(self, tensor: Tensor) -> None:
        work = None if self.silent else self.peers.send(tensor)
        if work is None:
            return
        ready = self.clock.stamp()
        self._spans.append(work.get_future().then(lambda _: (ready, self.clock.stamp())))
        self._bytes += tensor.numel() * tensor.element_size()

    def commit(self, learning_rate: float) -> Outcome:
        self.buckets.rest()
        facts = [float(self._loss), float(self._wish), float(self._share)]
        together = torch.tensor(facts, dtype=torch.float64, device=self.context.device)
        self._send(together)
        waiting = self.clock.stamp()
        self.peers.wait()
        merged = self.clock.stamp()
        lost = self.peers.commit()
        self._met = None
        if lost is not None:
            for buffer, before in zip(self._buffers, self._before, strict=True):
                buffer.copy_(before)
            return Outcome(applied=False, grad_norm=0.0, retry=lost)
        for packet, sent in self._rounded:
            packet.copy_(sent)
        loss_sum, wishes, sentences = together.tolist()
        assert self.silent or sentences == self._whole, f"{sentences} of {self._whole} sentences were merged"
        self._agreed = Agreed(loss_sum, wishes > 0)
        applied, norm = self.updater.apply(learning_rate)  # waits for the device, so that all stamps can be read
        exposed = self.clock.between(waiting, merged)
        self.clock.move("update", "merge", exposed)
        under_way = busy(self.clock, [span.wait() for span in self._spans])
        size = ring_bytes(self._bytes, self.peers.size)
        return self.sums.settle(self.peers.size, Outcome(applied, norm, size, max(0.0, under_way - exposed)))

    def agree(self, loss_sum: float, stop: bool) -> Agreed:
        """What was merged with the gradient, so that it holds for exactly those for whom the step counts. A wish to
        stop travels with the next step."""
        self._wish = stop
        return self._agreed

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Every worker evaluates by itself: the same weights give the same scores, whoever comes or goes meanwhile."""
        yield Snapshot(self._module, self.context.team.alone())

    def state(self) -> State:
        return self.updater.state()

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        return self.updater.load(scalars)

    def finish(self) -> None:
        pass

    def close(self) -> None:
        self.peers.close()
