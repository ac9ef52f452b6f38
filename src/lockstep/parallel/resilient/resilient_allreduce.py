"""Resilient: all-reduce among the workers that are alive. When one dies the others repeat the step without it; when it is
back it copies the state of a peer and continues with them.

Before every step the workers form a quorum, and only then is the global batch cut into shares. A step counts when all
shares were summed, so that no sentence is lost or used twice; otherwise the same global batch is repeated.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from time import perf_counter

import torch
from torch import Tensor

from lockstep import faults
from lockstep.dtypes import DTYPES
from lockstep.parallel.exchange import Span, ring_bytes, stamped_seconds
from lockstep.parallel.layer_sums import LayerSums, connect_layers
from lockstep.parallel.optimizers import MakeOptimizer
from lockstep.parallel.resilient.buckets import Buckets
from lockstep.parallel.resilient.membership import Lineage, Membership, QuorumView
from lockstep.parallel.resilient.quorum import PeerState, Quorum
from lockstep.parallel.strategy import Agreed, B, BatchSplitter, Claim, Outcome, Snapshot, Strategy
from lockstep.parallel.strategy_settings import ResilientSettings
from lockstep.run import environment_variables
from lockstep.run.checkpoint import Progress


@dataclass(frozen=True)
class PlacedClaim(Claim[B]):
    """A claim that was cut for a rank among a number of workers."""

    place: tuple[int, int] = (0, 1)


class Resilient(Strategy):
    name = "resilient"
    exact_resume = False
    elastic = True

    def __init__(self, settings: ResilientSettings) -> None:
        self.settings = settings
        self.dtype, self.sends_gradients_in = DTYPES[settings.gradients], settings.gradients

    def connect(self, make_optimizer: MakeOptimizer, example: object) -> None:
        super().connect(make_optimizer, example)
        module = self.raw_module
        self.quorum = Quorum(self.context, self.settings, self._give_state, self._copy_state)
        self._is_staged = self.team.device.type != "cpu" and self.settings.transport == "gloo"
        self.membership = Membership(self.context)
        parameters = list(self.updater.optimizer.parameters.values())
        self.buckets = Buckets(parameters, self.settings.bucket_mb, self._send_gradient)
        saved_names = module.state_dict().keys()
        self._buffers = [buffer for name, buffer in module.named_buffers() if name in saved_names]  # running averages
        self.sums = LayerSums(self.clock, self._sum_layer)
        if not self.silent:
            connect_layers(module, self.sums)
        self._quorum_step: int | None = None  # the quorum for the step after this one is formed and not yet used
        self._peer: PeerState | None = None  # state that was copied from a peer
        self._wants_stop = False
        self._agreed = Agreed(0.0, False)

    def synchronize(self, progress: Progress) -> Progress | None:
        view = self._form_quorum(progress, None)
        if view.progress is not None:
            self.healed, self.peer_stop_reason = True, view.peer_stop_reason
        return view.progress

    def _form_quorum(self, progress: Progress, stop_reason: str | None) -> QuorumView:
        """Forms the quorum of the next step, or with `stop_reason` the last one before this worker leaves."""
        if self._quorum_step == progress.step and stop_reason is None:
            view = QuorumView(self.quorum.number, self.quorum.participants, regrouped=False)
        else:
            begin = perf_counter()
            self._offered, self._peer = (progress, stop_reason), None
            change = self.quorum.form(progress.step)
            peer = self._peer
            self._quorum_step = progress.step if peer is None else peer["progress"]["step"]
            self._begin_step()
            view = QuorumView(
                self.quorum.number,
                self.quorum.participants,
                change.regrouped,
                change.failures,
                perf_counter() - begin,
                None if peer is None else Progress(**peer["progress"]),
                change.source,
                None if peer is None else peer["ending"],
            )
        self.membership.note(view, progress)
        return view

    def _give_state(self) -> PeerState:
        progress, stop_reason = self._offered
        state = self.updater.state()
        facts = asdict(progress) | {"scalars": state.scalars}
        tensors = {
            name: tensor.cpu() for name, tensor in state.tensors.items()
        }  # a GPU's would go to the same GPU there
        return {"tensors": tensors, "progress": facts, "ending": stop_reason}

    @torch.no_grad()
    def _copy_state(self, peer: PeerState) -> None:
        for name, tensor in self.updater.state().tensors.items():
            tensor.copy_(peer["tensors"][name])
        self.updater.load(peer["progress"]["scalars"])
        self._peer = peer

    def _begin_step(self) -> None:
        self.buckets.clear()
        self._loss = torch.zeros((), device=self.team.device)
        self._spans: list[torch.futures.Future[Span]] = []  # of every packet
        self._rounded: list[tuple[Tensor, Tensor]] = []  # packets, and what is sent in their place
        self._bytes = 0
        self.sums.reset()

    def start_branch(self, progress: Progress) -> dict[str, Lineage]:
        return self.membership.start_branch(progress, self.quorum.number)

    def leave(self, progress: Progress, reason: str, ensure_saved: Callable[[Progress], None]) -> Progress:
        """Forms a last quorum, so that a worker that is behind copies the state before its peers are gone. When a worker
        came or went, the last checkpoint or its score may be missing: it is saved, and the quorum is formed again."""
        while True:
            view = self._form_quorum(progress, reason)
            progress = view.progress or progress
            if not view.regrouped:
                return progress
            ensure_saved(progress)

    @property
    def writes(self) -> bool:
        """The first worker of the quorum writes for all."""
        return self.quorum.rank == 0

    def claims(
        self, splitter: BatchSplitter[B], batches: Iterator[B], first: int, due: Callable[[int], bool]
    ) -> Iterator[Claim[B]]:
        for step, batch in enumerate(batches, first):
            place = (self.quorum.rank, self.quorum.size)
            yield PlacedClaim(step, batch, splitter.share(batch, *place), batch.target_words, place[0], place=place)

    def begin(self, claim: Claim[B], splitter: BatchSplitter[B]) -> Claim[B]:
        """Cuts the batch again if the quorum has changed since the claim was prefetched."""
        assert isinstance(claim, PlacedClaim)
        place = (self.quorum.rank, self.quorum.size)
        if claim.place != place:
            claim = replace(claim, share=splitter.share(claim.batch, *place), part=place[0], place=place)
        self._own_sentences, self._all_sentences = len(claim.share), len(claim.batch.indices)
        self._buffers_before = [buffer.clone() for buffer in self._buffers]
        return claim

    @contextmanager
    def micro(self, last: bool) -> Iterator[None]:
        self.buckets.armed = last
        try:
            yield
        finally:
            self.buckets.armed = False

    def backward(self, loss_sum: Tensor, target_words: int) -> None:
        self._loss += loss_sum.detach()
        self.sums.phase = "backward"
        super().backward(loss_sum, target_words)

    def _sum_layer(self, tensor: Tensor) -> None:
        """Sums a layer's statistics. When that fails the step will not count."""
        if self.quorum.start_sum(tensor) is not None:
            self.quorum.wait()

    def _send_gradient(self, packet: Tensor) -> None:
        faults.at("merge")
        sent = packet.to(self.dtype)  # the same tensor for fp32
        self._send(sent)
        if sent is not packet:
            self._rounded.append((packet, sent))

    def _send(self, tensor: Tensor) -> None:
        work = None if self.silent else self.quorum.start_sum(tensor)
        if work is None:
            return
        self._bytes += tensor.numel() * tensor.element_size()
        if self._is_staged:  # Gloo's threads see nothing of the device's streams: what backward hides is not measured
            return
        ready = self.clock.stamp()
        self._spans.append(work.get_future().then(lambda _: (ready, self.clock.stamp())))

    def commit(self, learning_rate: float) -> Outcome:
        self.buckets.send_rest()
        loss = self._loss.double()
        own_facts = (torch.full_like(loss, float(fact)) for fact in (self._wants_stop, self._own_sentences))
        facts = torch.stack([loss, *own_facts])
        self._send(facts)
        waiting = self.clock.stamp()
        self.quorum.wait()
        merged = self.clock.stamp()
        failure = self.quorum.commit()
        self._quorum_step = None
        if failure is not None:
            for buffer, before in zip(self._buffers, self._buffers_before, strict=True):
                buffer.copy_(before)
            return Outcome(applied=False, grad_norm=0.0, retry=failure)
        for packet, sent in self._rounded:
            packet.copy_(sent)
        norm = self.updater.measure_norm().double().view(1)
        loss_sum, wishes, sentences, scaled_norm = torch.cat([facts, norm]).tolist()  # waits for the device
        complete = self.silent or sentences == self._all_sentences
        assert complete, f"{sentences} of {self._all_sentences} sentences were summed"
        self._agreed = Agreed(loss_sum, wishes > 0)
        outcome = Outcome(*self.updater.apply_judged(scaled_norm, learning_rate))
        exposed = self.clock.between(waiting, merged)
        self.clock.move("update", "merge", exposed)
        under_way = stamped_seconds(self.clock, [span.wait() for span in self._spans])
        sent_bytes, size = ring_bytes(self._bytes, self.quorum.size), self.quorum.size
        return self.sums.settle(
            size, replace(outcome, bytes_sent=sent_bytes, merge_overlapped=max(0.0, under_way - exposed))
        )

    def end_step(self, outcome: Outcome, loss_sums: Sequence[Tensor], stop: bool) -> tuple[Outcome, Agreed]:
        self.clock.mark("merge")
        return outcome, self.agree(0.0, stop)

    def agree(self, loss_sum: float, stop: bool) -> Agreed:
        """Returns what was summed with the gradient, so that it holds for exactly those workers for which the step
        counts. A wish to stop travels with the next step."""
        self._wants_stop = stop
        return self._agreed

    def hear_stop(self, stop: bool) -> bool:
        """Workers of our own launcher leave a mark for each other. Other engines signal every worker."""
        folder = environment_variables.start_folder()
        if folder is None:
            return stop
        if stop:
            (folder / "stop").touch()
        return (folder / "stop").exists()

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Every worker evaluates by itself: equal weights give equal scores, although workers may come and go."""
        yield Snapshot(self.raw_module, self.team.alone())

    def close(self) -> None:
        self.quorum.close()
