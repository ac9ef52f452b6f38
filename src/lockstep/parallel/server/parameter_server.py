"""Parameter servers: processes that own the parameters. Workers push gradients to them and pull parameters from them.

The parameters are one vector, divided into equal shards: one per dedicated server, or one per worker, which then serves it
from threads beside its own computing. In `sync` mode a step is the same as with allreduce. In `async` mode every worker
takes shares of the batches as fast as it can, and its gradient is an update by itself.
"""

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep import faults, messages
from lockstep.challenge import open_group
from lockstep.errors import LockstepError
from lockstep.parallel.exchange import busy_seconds
from lockstep.parallel.flat_parameters import FlatParameters
from lockstep.parallel.layer_sums import LayerSums, connect_layers, sum_over
from lockstep.parallel.optimizers import MakeOptimizer, describe_optimizer
from lockstep.parallel.server.channel import Channel, InProcess, Remote
from lockstep.parallel.server.client import Interval, ServerClient
from lockstep.parallel.server.embedding_rows import EmbeddingRows, EmbeddingTable
from lockstep.parallel.server.shard import Packet, ParameterShard, lay_out
from lockstep.parallel.server.shard_server import AsyncUpdates, ShardServer, SyncUpdates
from lockstep.parallel.server.work_queue import WorkQueue
from lockstep.parallel.strategy import (
    Agreed,
    B,
    BatchSplitter,
    Claim,
    FindTensor,
    Outcome,
    Pause,
    Snapshot,
    Stamp,
    Strategy,
)
from lockstep.parallel.strategy_settings import ServerSettings
from lockstep.parallel.update import Guard, State
from lockstep.team import Team

PATIENCE = timedelta(days=7)
"""How long a server waits for a request: workers may evaluate for hours. It notices their death without this."""


@dataclass(frozen=True)
class ShardLayout:
    """What all workers and servers must know alike."""

    packets: list[list[Packet]]  # of each shard
    bound: int | None
    sync: bool

    def make_shard(
        self, number: int, make_optimizer: MakeOptimizer, device: torch.device, update_device: torch.device
    ) -> ParameterShard:
        packets = self.packets[number]
        widths = [packet.width for packet in packets if packet.table]
        return ParameterShard([packet.size for packet in packets], make_optimizer, device, update_device, widths)

    def make_rule(self, shard: ParameterShard, workers: int) -> SyncUpdates | AsyncUpdates:
        return SyncUpdates(shard, workers) if self.sync else AsyncUpdates(shard, workers, self.bound)


def share_layout(layout: ShardLayout | None, make_optimizer: MakeOptimizer) -> tuple[dist.ProcessGroup, ShardLayout]:
    """Called by all workers and servers: returns their common process group and worker 0's layout. All must have the same
    optimizer."""
    group = open_group("servers", None, PATIENCE, "gloo")
    assert group is not None
    optimizers = messages.gather(describe_optimizer(make_optimizer), group)
    for rank, optimizer in enumerate(optimizers):
        if optimizer != optimizers[0]:
            raise LockstepError(
                f"Processes 0 and {rank} have different optimizers: {optimizers[0]} and {optimizer}.",
                "Start all of them with the same config.",
                code=2,
            )
    facts = messages.gather(None if layout is None else asdict(layout), group)[0]
    packets = [[Packet(**packet) for packet in shard] for shard in facts["packets"]]
    return group, ShardLayout(packets, facts["bound"], facts["sync"])


def serve(team: Team, make_optimizer: MakeOptimizer, on_start: Callable[[], None]) -> None:
    """Runs a dedicated server until all workers have left. It ignores signals: the workers obey them. `on_start` is called
    when the workers have settled the run."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    group, layout = share_layout(None, make_optimizer)
    on_start()
    cpu = torch.device("cpu")
    shard = layout.make_shard(team.rank - team.size, make_optimizer, cpu, cpu)
    dead: dict[int, BaseException] = {}
    queue = WorkQueue(team)

    def note_death(worker: int, error: BaseException) -> None:
        dead[worker] = error
        with suppress(RuntimeError):  # the store is gone with worker 0
            queue.mark_dead(worker)

    channels: dict[int, Channel] = {worker: Remote(worker, group) for worker in range(team.size)}
    ShardServer(shard, layout.make_rule(shard, team.size), channels, None, note_death).wait()
    if dead and (layout.sync or 0 in dead):
        raise RuntimeError(f"Connection to worker {min(dead)} is lost: {dead[min(dead)]}")


class ParameterServers(Strategy):
    name = "server"

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.sync = settings.mode == "sync"
        self.takes_every_step = self.makes_one_update = self.exact_resume = self.sync
        self.prefetch_depth = 4 if self.sync else 1  # a share that is claimed early is not available to other workers

    def connect(self, make_optimizer: MakeOptimizer, example: object) -> None:
        self._check_staleness()
        self.guard = Guard(self.context.clip, self.context.loss_scale)
        by_rows = self.settings.embeddings == "rows"
        self.rows = EmbeddingRows(self.raw_module if by_rows else nn.Module(), self._fetch_rows)
        if by_rows and not self.rows.tables:
            raise LockstepError(
                "strategy.embeddings=rows: this model has no embedding that is only looked up, so all rows are needed.",
                "Leave the setting out, or use model.name=lstm.",
                code=2,
            )
        self.flat = FlatParameters(self.raw_module, gradients=True, first=self.rows.tables)
        self.moments = {name: torch.zeros(0) for name in make_optimizer({}).MOMENTS}
        self.updates = 0
        self._row_waits: list[tuple[Stamp, Stamp]] = []
        self._row_bytes_sent = 0
        self.queue = WorkQueue(self.team)
        self.clients = self._connect_servers(make_optimizer)
        for name, parameter in self.flat.parameters.items():
            parameter.register_post_accumulate_grad_hook(lambda _, name=name: self._gradient_ready(name))
        self._sending = self._in_snapshot = False
        self.sums = LayerSums(self.clock, sum_over(self.team))
        if self.sync and not self.silent and self.team.size > 1:
            connect_layers(self.raw_module, self.sums)
        if self.team.primary:
            self._write()
        self.team.gather(None)  # nobody pulls before the parameters are there

    def _check_staleness(self) -> None:
        bound, size = self.settings.staleness, self.team.size
        if bound is not None and self.sync:
            raise LockstepError("strategy.staleness is for strategy.mode=async.", "Leave one of them out.", code=2)
        if bound is not None and bound < size - 1:
            raise LockstepError(
                f"strategy.staleness={bound} is impossible for {size} workers that compute at the same time.",
                f"Set it to at least {size - 1}, or use strategy.mode=sync.",
                code=2,
            )

    def _connect_servers(self, make_optimizer: MakeOptimizer) -> list[ServerClient]:
        """Returns a client for every server. Without dedicated servers this worker serves a shard itself."""
        shards, tables = self.team.servers or self.team.size, self.rows.tables
        packet = max(1, int(self.settings.bucket_mb * 2**20) // self.flat.values.element_size())
        packets = lay_out(self.flat, list(tables), shards, packet)
        group, layout = share_layout(ShardLayout(packets, self.settings.staleness, self.sync), make_optimizer)
        timeout = timedelta(seconds=self.team.timeout_seconds)
        first_server = self.team.size if self.team.servers else 0
        channels: list[Channel] = [Remote(first_server + shard, group, timeout) for shard in range(shards)]
        self.own_server: ShardServer | None = None
        if not self.team.servers:
            local = InProcess()
            channels[self.team.rank] = local.worker_end
            self.own_server = self._serve_own_shard(layout, make_optimizer, local, group)
        return [
            ServerClient(channel, self.flat, packets, tables)
            for channel, packets in zip(channels, layout.packets, strict=True)
        ]

    def _serve_own_shard(
        self, layout: ShardLayout, make_optimizer: MakeOptimizer, local: InProcess, group: dist.ProcessGroup
    ) -> ShardServer:
        devices = {"cpu": torch.device("cpu"), "device": self.team.device}
        parameters, update = devices[self.settings.parameters], devices[self.settings.update]
        shard = layout.make_shard(self.team.rank, make_optimizer, parameters, update)
        channels: dict[int, Channel] = {worker: Remote(worker, group) for worker in range(self.team.size)}
        channels[self.team.rank] = local.server_end

        def note_death(worker: int, error: BaseException) -> None:
            local.failure = RuntimeError(f"Connection to worker {worker} is lost: {error}")

        return ShardServer(shard, layout.make_rule(shard, self.team.size), channels, self.team.rank, note_death)

    def claims(
        self, splitter: BatchSplitter[B], batches: Iterator[B], first: int, due: Callable[[int], bool]
    ) -> Iterator[Claim[B] | Pause[B]]:
        if self.sync:
            return super().claims(splitter, batches, first, due)
        return self.queue.claims(splitter, batches, first, due)

    def begin(self, claim: Claim[B], splitter: BatchSplitter[B]) -> Claim[B]:
        self.claim = claim
        if not self.sync and not self.silent:
            for wait in [client.pull(ask=True) for client in self.clients]:
                wait()
            self.rows.mark_stale()
        return claim

    @torch.no_grad()
    def _fetch_rows(self, table: EmbeddingTable, rows: Tensor) -> None:
        """Called when the forward pass is about to look up rows that are stale."""
        if self.silent:
            return
        begin = self.clock.stamp()
        for wait in [client.pull_rows(table.name, rows) for client in self.clients]:
            wait()
        self._row_waits.append((begin, self.clock.stamp()))

    @contextmanager
    def micro(self, last: bool) -> Iterator[None]:
        self._sending = last and not self.silent
        try:
            yield
        finally:
            self._sending = False

    def _gradient_ready(self, name: str) -> None:
        if self._sending:
            faults.at("merge")
            for client in self.clients:
                client.gradient_ready(name, self.clock.stamp)

    def backward(self, loss_sum: Tensor, target_words: int) -> None:
        self.sums.phase = "backward"
        self.guard.scale_loss(loss_sum / target_words).backward()

    def commit(self, learning_rate: float) -> Outcome:
        assert self.flat.gradient is not None
        returned = self.clock.stamp()
        self.clock.since(returned)  # waits for the device: backward has hidden what was sent until now
        computed = time.perf_counter()
        if self.silent:
            self.flat.gradient.zero_()
            if not self.sync:
                self.queue.mark_done(self.claim)
            return Outcome(True, 0.0)
        outcome, intervals = self._commit_sync(learning_rate) if self.sync else self._commit_async(learning_rate)
        self.flat.gradient.zero_()
        for client in self.clients:
            client.begin_step()
        self.rows.end_step()
        self.rows.mark_stale()
        self.clock.move("update", "merge", self.clock.since(returned))
        for begin, end in self._row_waits:
            self.clock.move("forward", "merge", self.clock.between(begin, end))
        self._row_waits.clear()
        overlapped = busy_seconds(intervals, until=computed)
        outcome = replace(outcome, bytes_sent=self._count_bytes(), merge_overlapped=overlapped)
        return self.sums.settle(self.team.size, outcome)

    def _commit_sync(self, learning_rate: float) -> tuple[Outcome, list[Interval]]:
        """The servers send the norm of the summed gradient, all workers judge it alike, and the servers update."""
        squared_norms = [client.expect_number() for client in self.clients]
        intervals = [interval for client in self.clients for interval in client.push_rest(self.clock.stamp)]
        judgement = self.guard.judge(math.sqrt(sum(wait() for wait in squared_norms)))
        factor = judgement.factor if judgement.finite else math.nan
        if judgement.finite:
            faults.at("update")
        parameters = [client.pull(ask=False) for client in self.clients]
        for client in self.clients:
            client.apply(self.claim.step, factor, learning_rate, answered=False)
        for wait_for_values in parameters:
            wait_for_values()
        return Outcome(judgement.finite, judgement.norm), intervals

    def _commit_async(self, learning_rate: float) -> tuple[Outcome, list[Interval]]:
        assert self.flat.gradient is not None
        judgement = self.guard.judge(float(torch.linalg.vector_norm(self.flat.gradient)))
        factor = judgement.factor if judgement.finite else math.nan
        intervals = [interval for client in self.clients for interval in client.push_rest(self.clock.stamp)]
        faults.at("update")
        rate = learning_rate / self.team.size  # so that all updates of a batch together move as far as one would
        answers = [client.apply(self.claim.step, factor, rate, answered=True) for client in self.clients]
        staleness = int(max(wait() for wait in answers))
        self.queue.mark_done(self.claim)
        return Outcome(judgement.finite, judgement.norm, staleness=staleness), intervals

    def _count_bytes(self) -> int:
        """Returns the bytes of gradients sent, of parameters sent to other workers as a server, and of rows since the
        last step."""
        size = self.flat.values.element_size()
        pushed = sum(client.dense_size for client in self.clients if not client.is_local)
        served = sum(client.dense_size for client in self.clients if client.is_local)
        rows = sum(client.row_bytes_sent for client in self.clients)
        if self.own_server is not None:
            rows += sum(sent for worker, sent in self.own_server.row_bytes_sent.items() if worker != self.team.rank)
        before, self._row_bytes_sent = self._row_bytes_sent, rows
        return size * (pushed + served * (self.team.size - 1)) + rows - before

    def agree(self, loss_sum: float, stop: bool) -> Agreed:
        if self.sync:
            return super().agree(loss_sum, stop)
        if stop:
            self.queue.close()
        return Agreed(loss_sum, False)

    def hear_stop(self, stop: bool) -> bool:
        return stop or (not self.sync and self.queue.is_closing())

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """In async mode worker 0 copies the model, and the others continue while it evaluates and saves."""
        if self.sync:
            self.rows.fetch_all()
            self._row_waits.clear()
            yield Snapshot(self.raw_module, self.team)
            return
        if self.team.primary:
            self._read()
            self._in_snapshot = True
            self.queue.release()
        yield Snapshot(self.raw_module, self.team.alone() if self.team.primary else None)
        self._in_snapshot = False

    def state(self) -> State:
        """Worker 0 adds the optimizer's moments for all."""
        tensors = dict(self.raw_module.state_dict())
        if self.team.primary:
            if not self._in_snapshot:
                self._read()
            for moment, vector in self.moments.items():
                tensors |= {f"optimizer.{moment}.{name}": tensor for name, tensor in self.flat.split(vector).items()}
        return State(tensors, {"optimizer.step": float(self.updates)} | self.guard.scalars())

    def load(self, scalars: dict[str, float], private: FindTensor) -> list[str]:
        self.updates = int(scalars["optimizer.step"])
        if self.team.primary:
            self._write()
        self.team.gather(None)
        return self.guard.load(scalars)

    def _vectors(self) -> list[Tensor]:
        """Returns parameters and moments; the moments get their memory when they are first needed."""
        size = len(self.flat.values)
        self.moments = {name: one if len(one) else torch.zeros(size) for name, one in self.moments.items()}
        return [self.flat.values, *self.moments.values()]

    def _read(self) -> None:
        self.updates = [client.read(self._vectors()) for client in self.clients][0]
        self.rows.mark_fresh()

    def _write(self) -> None:
        for client in self.clients:
            client.write(self._vectors(), self.updates)

    def finish(self) -> None:
        self.queue.end()
        for client in self.clients:
            client.leave()
        if self.own_server is not None:
            self.own_server.wait()
