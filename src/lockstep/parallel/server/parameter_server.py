"""Server: processes that hold the parameters. Workers push gradients to them and pull parameters from them.

The parameters are one vector, cut into equal parts: one for each dedicated server, or one for each worker, which then holds
it in threads beside its own computing. In `sync` mode a step is the same as with allreduce; in `async` mode every worker
takes shares as fast as it can, and its gradient is an update of its own.
"""

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep import faults
from lockstep.ablation import disabled
from lockstep.errors import LockstepError
from lockstep.parallel.agreement import agree_now
from lockstep.parallel.claims import shares_of_all
from lockstep.parallel.flat_parameters import FlatParameters
from lockstep.parallel.layer_sums import LayerSums, among, connect
from lockstep.parallel.server.channel import Channel, InProcess, Remote
from lockstep.parallel.server.client import ServerClient
from lockstep.parallel.server.embedding_rows import EmbeddingRows, EmbeddingTable
from lockstep.parallel.server.packets import Packet, lay_out
from lockstep.parallel.server.shard import ParameterShard
from lockstep.parallel.server.shard_server import AsyncUpdates, ShardServer, SyncUpdates
from lockstep.parallel.server.work_queue import WorkQueue
from lockstep.parallel.spans import union_seconds
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
    Pause,
    Snapshot,
    State,
)
from lockstep.parallel.strategy_settings import ServerSettings
from lockstep.parallel.update import Guard
from lockstep.team import Team

PATIENCE = timedelta(days=7)
"""How long a holder waits for a request: workers may evaluate for hours. It notices their death without this."""


@dataclass(frozen=True)
class ShardLayout:
    """What all processes must know alike."""

    packets: list[list[Packet]]  # of each part
    optimizer: MakeOptimizer
    bound: int | None
    together: bool

    def part(self, number: int, place: torch.device, update: torch.device) -> ParameterShard:
        packets = self.packets[number]
        widths = [packet.width for packet in packets if packet.table]
        return ParameterShard([packet.size for packet in packets], self.optimizer, place, update, widths)


def make_rule(layout: ShardLayout, part: ParameterShard, workers: int) -> SyncUpdates | AsyncUpdates:
    return SyncUpdates(part, workers) if layout.together else AsyncUpdates(part, workers, layout.bound)


def meet(layout: ShardLayout | None) -> tuple[dist.ProcessGroup, ShardLayout]:
    """Called by all workers and servers: their common line, and worker 0's layout."""
    group = dist.new_group(backend="gloo", timeout=PATIENCE)
    told = [layout]
    dist.broadcast_object_list(told, 0, group=group)
    assert told[0] is not None
    assert group is not None
    return group, told[0]


def serve(team: Team) -> None:
    """The life of a dedicated server. It ends when all workers have left; a signal is for the workers to obey."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    group, layout = meet(None)
    cpu = torch.device("cpu")
    part = layout.part(team.rank - team.size, cpu, cpu)
    lost: dict[int, BaseException] = {}
    ledger = WorkQueue(team)

    def lose(worker: int, error: BaseException) -> None:
        lost[worker] = error
        with suppress(RuntimeError):  # the store is gone with worker 0
            ledger.died(worker)

    channels: dict[int, Channel] = {worker: Remote(worker, group) for worker in range(team.size)}
    ShardServer(part, make_rule(layout, part, team.size), channels, None, lose).wait()
    if lost and (layout.together or 0 in lost):
        raise RuntimeError(f"Connection to worker {min(lost)} is lost: {lost[min(lost)]}")


class Server:
    name = "server"
    members = None

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.together = self.lockstep = self.exact = settings.mode == "sync"
        self.ahead = 4 if self.together else 1  # what is claimed early keeps another worker from it
        self.silent = "communication" in disabled()

    def setup(
        self,
        module: nn.Module,
        make_optimizer: MakeOptimizer,
        clock: Clock,
        context: Context,
        example: Any,
    ) -> None:
        self.clock, self.context, self.team, self._module = clock, context, context.team, module
        self._check()
        self.guard = Guard(context.clip, context.loss_scale)
        self.tables = EmbeddingRows(module if self.settings.embeddings == "rows" else nn.Module(), self._fetch)
        self._check_tables()
        self.flat = FlatParameters(module, gradients=True, first=self.tables.all)
        self.moments = {name: torch.zeros(0) for name in make_optimizer({}).MOMENTS}
        self.updates = 0
        self._fetches: list[tuple[Any, Any]] = []  # stamps of the waits for rows of tables
        self._rows_sent = 0  # bytes
        self.ledger = WorkQueue(self.team)
        self.links = self._connect(make_optimizer)
        for name, parameter in self.flat.parameters.items():
            parameter.register_post_accumulate_grad_hook(lambda _, name=name: self._ready(name))
        self._sending = self._calm = False
        self.sums = LayerSums(clock, among(self.team))
        if self.together and not self.silent and self.team.size > 1:
            connect(module, self.sums)
        if self.team.primary:
            self._write()
        self.team.gather(None)  # nobody pulls before the parameters are there

    def _check(self) -> None:
        bound, size = self.settings.staleness, self.team.size
        if bound is not None and self.together:
            raise LockstepError("strategy.staleness is for strategy.mode=async.", "Leave one of them out.", code=2)
        if bound is not None and bound < size - 1:
            raise LockstepError(
                f"strategy.staleness={bound} cannot be kept by {size} workers that compute at the same time.",
                f"Set it to at least {size - 1}, or use strategy.mode=sync.",
                code=2,
            )

    def _check_tables(self) -> None:
        if self.settings.embeddings == "rows" and not self.tables.all:
            raise LockstepError(
                "strategy.embeddings=rows: this model has no embedding that is only looked up, so all of it is needed.",
                "Leave it out, or use model.name=lstm.",
                code=2,
            )

    def _connect(self, make_optimizer: MakeOptimizer) -> list[ServerClient]:
        """Lines to all holders; this worker may be one itself."""
        parts, tables = self.team.servers or self.team.size, self.tables.all
        packet = max(1, int(self.settings.bucket_mb * 2**20) // self.flat.values.element_size())
        packets = lay_out(self.flat, list(tables), parts, packet)
        mine = ShardLayout(packets, make_optimizer, self.settings.staleness, self.together)
        group, layout = meet(mine)
        patience = timedelta(seconds=self.team.timeout_seconds)
        nearest = self.team.size if self.team.servers else 0
        channels: list[Channel] = [Remote(nearest + part, group, patience) for part in range(parts)]
        self.holder: ShardServer | None = None
        if not self.team.servers:
            desk = InProcess()
            channels[self.team.rank] = desk.worker
            self.holder = self._hold(layout, desk, group)
        return [
            ServerClient(channel, self.flat, packets, tables)
            for channel, packets in zip(channels, layout.packets, strict=True)
        ]

    def _hold(self, layout: ShardLayout, desk: InProcess, group: dist.ProcessGroup) -> ShardServer:
        """This worker's own part, served to all of them."""
        places = {"cpu": torch.device("cpu"), "device": self.team.device}
        part = layout.part(self.team.rank, places[self.settings.parameters], places[self.settings.update])
        channels: dict[int, Channel] = {worker: Remote(worker, group) for worker in range(self.team.size)}
        channels[self.team.rank] = desk.holder

        def lost(worker: int, error: BaseException) -> None:
            desk.failure = RuntimeError(f"Connection to worker {worker} is lost: {error}")

        return ShardServer(part, make_rule(layout, part, self.team.size), channels, self.team.rank, lost)

    @property
    def module(self) -> nn.Module:
        return self._module

    def claims(
        self, order: BatchSplitter[B], batches: Iterator[B], first: int, due: Callable[[int], bool]
    ) -> Iterator[Claim[B] | Pause[B]]:
        if self.together:
            return shares_of_all(order, batches, first, self.team)
        return self.ledger.claims(order, batches, first, due)

    def begin(self, claim: Claim[B]) -> None:
        self.claim = claim
        if not self.together and not self.silent:
            for arrived in [link.pull(ask=True) for link in self.links]:
                arrived()
            self.tables.changed()

    @torch.no_grad()
    def _fetch(self, table: EmbeddingTable, rows: Tensor) -> None:
        """Called where the forward pass is about to look something up."""
        if self.silent:
            return
        begin = self.clock.stamp()
        for arrived in [link.pull_rows(table.name, rows) for link in self.links]:
            arrived()
        self._fetches.append((begin, self.clock.stamp()))

    @contextmanager
    def micro(self, last: bool) -> Iterator[None]:
        self._sending = last and not self.silent
        yield
        self._sending = False

    def _ready(self, name: str) -> None:
        if self._sending:
            faults.at("merge")
            for link in self.links:
                link.ready(name, self.clock.stamp)

    def backward(self, loss_sum: Tensor, target_words: int) -> None:
        self.sums.phase = "backward"
        self.guard.scaled(loss_sum / target_words).backward()

    def commit(self, learning_rate: float) -> Outcome:
        assert self.flat.gradient is not None
        returned = self.clock.stamp()
        self.clock.since(returned)  # waits for the device: what is sent until now, the backward pass has hidden
        computed = time.perf_counter()
        if self.silent:
            self.flat.gradient.zero_()
            if not self.together:
                self.ledger.done(self.claim)
            return Outcome(True, 0.0)
        commit = self._commit_together if self.together else self._commit_alone
        outcome, spans = commit(learning_rate)
        self.flat.gradient.zero_()
        for link in self.links:
            link.begin()
        self.tables.end_step()
        self.tables.changed()
        self.clock.move("update", "merge", self.clock.since(returned))
        for begin, end in self._fetches:
            self.clock.move("forward", "merge", self.clock.between(begin, end))
        self._fetches.clear()
        outcome = replace(outcome, bytes_sent=self._bytes(), merge_overlapped=union_seconds(spans, computed))
        return self.sums.settle(self.team.size, outcome)

    def _commit_together(self, learning_rate: float) -> tuple[Outcome, list[tuple[float, float]]]:
        """The holders tell the norm of the summed gradient, all workers judge it alike, and the holders update."""
        squares = [link.square() for link in self.links]
        spans = [span for link in self.links for span in link.push_rest(self.clock.stamp)]
        judgement = self.guard.judge(math.sqrt(sum(square() for square in squares)))
        factor = judgement.factor if judgement.finite else math.nan
        if judgement.finite:
            faults.at("update")
        arrivals = [link.pull(ask=False) for link in self.links]
        for link in self.links:
            link.apply(self.claim.step, factor, learning_rate, answered=False)
        for arrived in arrivals:
            arrived()
        return Outcome(judgement.finite, judgement.norm), spans

    def _commit_alone(self, learning_rate: float) -> tuple[Outcome, list[tuple[float, float]]]:
        assert self.flat.gradient is not None
        judgement = self.guard.judge(float(torch.linalg.vector_norm(self.flat.gradient)))
        factor = judgement.factor if judgement.finite else math.nan
        spans = [span for link in self.links for span in link.push_rest(self.clock.stamp)]
        faults.at("update")
        rate = learning_rate / self.team.size  # so that all updates of a batch together move as far as one would
        answers = [link.apply(self.claim.step, factor, rate, answered=True) for link in self.links]
        staleness = int(max(answered() for answered in answers))
        self.ledger.done(self.claim)
        return Outcome(judgement.finite, judgement.norm, staleness=staleness), spans

    def _bytes(self) -> int:
        """Gradients sent, and parameters that this worker sent to the others as a holder; of tables since the last step."""
        size = self.flat.values.element_size()
        pushed = sum(link.sent_in_full for link in self.links if not link.own)
        held = sum(link.sent_in_full for link in self.links if link.own)
        rows = sum(link.rows_sent for link in self.links)
        if self.holder is not None:
            rows += sum(sent for worker, sent in self.holder.rows_sent.items() if worker != self.team.rank)
        before, self._rows_sent = self._rows_sent, rows
        return size * (pushed + held * (self.team.size - 1)) + rows - before

    def agree(self, loss_sum: float, stop: bool) -> Agreed:
        if self.together:
            return agree_now(loss_sum, stop, self.team)
        if stop:
            self.ledger.close()
        return Agreed(loss_sum, False)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """In async mode worker 0 takes what it needs, and the others go on while it evaluates and saves."""
        if self.together:
            self.tables.need_all()
            self._fetches.clear()
            yield Snapshot(self._module, self.team)
            return
        if self.team.primary:
            self._read()
            self._calm = True
            self.ledger.release()
        yield Snapshot(self._module, self.team.alone() if self.team.primary else None)
        self._calm = False

    def state(self) -> State:
        """Worker 0 gives the optimizer's averages for all."""
        tensors = dict(self._module.state_dict())
        if self.team.primary:
            if not self._calm:
                self._read()
            for moment, vector in self.moments.items():
                named = self.flat.named(vector)
                tensors |= {f"optimizer.{moment}.{name}": tensor for name, tensor in named.items()}
        return State(tensors, {"optimizer.step": float(self.updates)} | self.guard.scalars())

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        self.updates = int(scalars["optimizer.step"])
        if self.team.primary:
            self._write()
        self.team.gather(None)
        return self.guard.load(scalars)

    def _vectors(self) -> list[Tensor]:
        size = len(self.flat.values)
        self.moments = {name: one if len(one) else torch.zeros(size) for name, one in self.moments.items()}
        return [self.flat.values, *self.moments.values()]

    def _read(self) -> None:
        self.updates = [link.read(self._vectors()) for link in self.links][0]
        self.tables.whole()

    def _write(self) -> None:
        for link in self.links:
            link.write(self._vectors(), self.updates)

    def finish(self) -> None:
        self.ledger.end()
        for link in self.links:
            link.leave()
        if self.holder is not None:
            self.holder.wait()
