"""The workers that are there right now, by torchft: who takes part in a step, sums over them, and a heal from one.

Every worker is a torchft replica group of one process. The lighthouse that they ask before every step is named by
TORCHFT_LIGHTHOUSE; `lockstep train` starts one.
"""

import logging
import os
import re
import socket
import time
import urllib.request
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import AllreduceOptions
from torchft import Manager, ProcessGroupGloo, ProcessGroupNCCL
from torchft.checkpointing import HTTPTransport
from torchft.checkpointing._serialization import _streaming_load
from torchft.coordination import LighthouseClient
from torchft.manager import REPLICA_ID_KEY

from lockstep import chatter
from lockstep.errors import LockstepError
from lockstep.parallel.strategy import Context

TRIES = 10
"""Meetings or merges that may fail one after the other before a worker gives up."""
MEET_SECONDS = 20.0
"""How long the members of a new group may take to connect. They all come from the same meeting, so they come at once."""

LIGHTHOUSE_SECONDS, LIGHTHOUSE_TRIES = 60.0, 20
"""How long a worker waits for the lighthouse to come up, and how often it asks one that went away."""


class _Recorded:
    """Remembers for whom a process group was made."""

    participants: tuple[int, ...] = ()
    made = 0
    quorum = 0

    def configure(
        self,
        store_addr: str,
        replica_id: str,
        rank: int,
        world_size: int,
        quorum_id: int | None = None,
        group_rank: int | None = None,
        group_world_size: int | None = None,
        global_ranks: list[int] | None = None,
    ) -> None:
        self.participants, self.made, self.quorum = tuple(global_ranks or ()), self.made + 1, quorum_id or 0
        super().configure(  # type: ignore[misc]
            store_addr, replica_id, rank, world_size, quorum_id, group_rank, group_world_size, global_ranks
        )


class _Gloo(_Recorded, ProcessGroupGloo):  # type: ignore[misc]
    pass


class _Nccl(_Recorded, ProcessGroupNCCL):  # type: ignore[misc]
    pass


class _Transport(HTTPTransport):  # type: ignore[misc]
    """State from a peer: tensors and plain values only, nothing that unpickling could run."""

    def __init__(self, host: str, timeout: timedelta) -> None:
        self.host, self.source = host, -1
        super().__init__(timeout, num_chunks=0)
        self._server.RequestHandlerClass.log_message = lambda *_: None
        self._server.handle_error = lambda *_: None  # a worker that died while it was healing

    def address(self) -> str:
        return f"http://{self.host}:{self._server.socket.getsockname()[1]}/checkpoint/"

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> Any:
        self.source = src_rank
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{metadata}{step}/full", timeout=timeout.total_seconds()) as stream:
            return _streaming_load(stream, weights_only=True)


@dataclass(frozen=True)
class QuorumChange:
    """What a meeting brought."""

    regrouped: bool  # somebody came or went, or the last merge failed
    source: int | None = None  # the worker whose state was taken over
    failures: list[str] = field(default_factory=list)


class Quorum:
    """`give` returns the state that a worker which is behind needs; `take` puts it in place."""

    def __init__(
        self,
        context: Context,
        merge_seconds: float,
        give: Callable[[], dict[str, Any]],
        take: Callable[[dict[str, Any]], None],
    ) -> None:
        self._context, self._patience = context, timedelta(seconds=merge_seconds)
        self._give, self._take = give, take
        self._manager: Manager | None = None
        self._works: list[dist.Work] = []
        self._failures = 0  # in a row
        self.rank, self.size = 0, 1
        self._lighthouse = os.environ["TORCHFT_LIGHTHOUSE"]
        # A lighthouse on the loopback serves this machine only: then names need not be resolved.
        local = urlsplit(self._lighthouse).hostname in ("127.0.0.1", "localhost", "::1")
        self._host = "127.0.0.1" if local else socket.gethostname()

    @property
    def participants(self) -> tuple[int, ...]:
        return self._group.participants

    @property
    def quorum(self) -> int:
        """The number of this group; all of its members know the same."""
        return self._group.quorum

    def _open(self) -> Manager:
        """From now on the lighthouse waits for this worker, so everything else must be ready."""
        context = self._context
        log = logging.getLogger("torchft")
        log.addHandler(logging.StreamHandler(os.fdopen(2, "w", closefd=False)))  # beside what its Rust part says
        log.propagate = False
        warnings.filterwarnings("ignore", message="The given buffer is not writable")  # torch, of what it received
        self._store = dist.TCPStore(self._host, 0, is_master=True, wait_for_workers=False)
        self._transport = _Transport(self._host, self._patience)
        patience = timedelta(seconds=MEET_SECONDS)
        self._group = (_Nccl if context.device.type == "cuda" else _Gloo)(timeout=patience)
        try:
            manager = Manager(
                pg=self._group,
                load_state_dict=self._take,
                state_dict=self._give,
                min_replica_size=1,
                use_async_quorum=False,  # who takes part must be known before the global batch is cut
                timeout=self._patience,
                quorum_timeout=timedelta(seconds=context.team.timeout_seconds + 60),  # the lighthouse decides before
                connect_timeout=timedelta(seconds=LIGHTHOUSE_SECONDS),
                quorum_retries=LIGHTHOUSE_TRIES,
                rank=0,
                world_size=1,
                store_addr=self._host,
                store_port=self._store.port,
                lighthouse_addr=self._lighthouse,
                replica_id=f"worker-{context.rank:04d}",
                hostname=self._host,
                checkpoint_transport=self._transport,
                init_sync=False,  # the same seed or the same checkpoint
            )
            me = self._store.get(REPLICA_ID_KEY).decode()
            LighthouseClient(self._lighthouse, connect_timeout=patience).heartbeat(me)  # so that it waits for us
        except (RuntimeError, TimeoutError) as error:
            raise self._unreachable(error) from None
        self._line = StartLine(context.rank, context.size, context.team.timeout_seconds)
        self._line.ready()
        return manager

    def _unreachable(self, error: Exception) -> LockstepError:
        return LockstepError(
            f"Worker {self._context.rank} lost the lighthouse at {self._lighthouse} ({_first_line(error)}).",
            "Check that it runs and that it can be reached.",
        )

    def meet(self, step: int) -> QuorumChange:
        """Finds out who takes part in the step after `step`. Whoever is behind the others takes their state over."""
        if self._manager is None:
            self._manager = self._open()
        chatter.trim()
        manager, made = self._manager, self._group.made
        failures: list[str] = []
        while True:
            manager.load_state_dict({"step": step, "batches_committed": 0})
            self._transport.source = -1
            try:
                manager.start_quorum()
            except (RuntimeError, TimeoutError) as error:
                raise self._unreachable(error) from None
            failure = manager.errored()
            if failure is None:
                break
            failures.append(_first_line(failure))
            self.commit()
        self.rank, self.size = int(manager.participating_rank() or 0), manager.num_participants()
        source = self._transport.source
        found = self._group.participants[source] if source >= 0 else None
        return QuorumChange(self._group.made != made, found, failures)

    def send(self, tensor: Tensor) -> dist.Work | None:
        """Begins to sum a tensor over all participants, in place."""
        assert self._manager is not None
        if self.size == 1 or self._manager.errored() is not None:
            return None
        options = AllreduceOptions()
        options.timeout = self._patience
        try:
            work: dist.Work = self._group.allreduce([tensor], options)
        except Exception as error:  # torchft names none: whatever it is, this step has no sum
            self._lost(error)
            return None
        self._works.append(work)
        return work

    def _lost(self, error: Exception) -> None:
        """Breaks the group up, so that those who wait for this worker notice at once and not by a timeout."""
        assert self._manager is not None
        if self._manager.errored() is None:
            self._manager.report_error(error)
            self._group.abort()

    def wait(self) -> None:
        """Until everything is summed, or it is clear that it will not be."""
        for work in self._works:
            try:
                work.wait()
            except Exception as error:
                self._lost(error)
        self._works.clear()

    def commit(self) -> str | None:
        """None: everything was summed and the step counts. Otherwise why it has to be taken again."""
        assert self._manager is not None
        manager = self._manager
        failure = manager.errored()
        if failure is not None:
            self._group.abort()
        try:
            counts = manager.should_commit()
        except (RuntimeError, TimeoutError) as error:
            raise self._unreachable(error) from None
        if counts:
            self._failures = 0
            self._line.stepped()
            return None
        self._failures += 1
        reason = _first_line(manager.errored())
        if self._failures >= TRIES:
            raise RuntimeError(f"Connection to the others is lost, in {TRIES} attempts: {reason}")
        return reason

    def close(self) -> None:
        if self._manager is not None:
            self._group.abort()
            self._manager.shutdown(wait=False)


def _first_line(error: object) -> str:
    """What happened, without the place in the library's source."""
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return re.sub(r"^\[\S+\] ", "", first)[:160]


class StartLine:
    """Where the workers of our own launcher wait for each other once, and tell it that a start bore fruit."""

    def __init__(self, rank: int, size: int, patience_seconds: float) -> None:
        self._rank, self._size, self._patience = rank, size, patience_seconds
        self._start = os.environ.get("LOCKSTEP_RESTARTS", "0")
        self._told = False
        folder = os.environ.get("LOCKSTEP_START")
        self._folder = Path(folder) if folder else None

    def ready(self) -> None:
        """Without this the first worker would begin alone. One that is started again finds everybody's mark; when some
        do not come, the others go on without them."""
        if self._folder is None:
            return
        (self._folder / f"ready-{self._rank}").touch()
        marks = [self._folder / f"ready-{rank}" for rank in range(self._size)]
        deadline = time.monotonic() + self._patience
        while not all(mark.exists() for mark in marks) and time.monotonic() < deadline:
            time.sleep(0.01)

    def stepped(self) -> None:
        if self._folder is not None and not self._told:
            (self._folder / f"stepped-{self._rank}-{self._start}").touch()
            self._told = True
