"""The workers that are alive, with torchft: who takes part in a step, sums over them, and copying a peer's state.

Every worker is a torchft replica group of one process. Before every step they ask the lighthouse at TORCHFT_LIGHTHOUSE;
`lockstep train` starts one.
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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypedDict
from urllib.parse import urlsplit

import torch.distributed as dist
import torchft.manager
from torch import Tensor
from torch.distributed.distributed_c10d import AllreduceOptions
from torchft import Manager
from torchft.checkpointing import HTTPTransport, http_transport
from torchft.checkpointing._serialization import _streaming_load
from torchft.coordination import LighthouseClient, ManagerServer
from torchft.manager import REPLICA_ID_KEY

from lockstep import stderr_log
from lockstep.errors import LockstepError
from lockstep.parallel.resilient.process_groups import CONNECT_SECONDS, make_group
from lockstep.parallel.strategy import Context
from lockstep.parallel.strategy_settings import ResilientSettings
from lockstep.run import environment_variables
from lockstep.team import LOOPBACK, serve_loopback_store

MAX_FAILURES = 10
"""Quorums or exchanges that may fail in a row before a worker gives up."""
LIGHTHOUSE_SECONDS, LIGHTHOUSE_TRIES = 60.0, 20
"""How long a worker waits for the lighthouse to start, and how often it asks one that does not answer."""


class PeerState(TypedDict):
    """What a worker that is behind copies from a peer."""

    tensors: dict[str, Tensor]
    progress: dict[str, Any]  # the fields of `Progress`
    ending: str | None  # why the peer is about to stop


class _LoopbackServer(ThreadingHTTPServer):
    def __init__(self, address: object, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__((LOOPBACK, 0), handler)


def _listen_on_loopback() -> None:
    """Lets torchft listen on this machine only. It has no setting for that, and would listen on all addresses."""
    http_transport._IPv6HTTPServer = _LoopbackServer
    torchft.manager.ManagerServer = _start_loopback_manager


def _start_loopback_manager(bind: str, **arguments: object) -> ManagerServer:
    return ManagerServer(bind=f"{LOOPBACK}:0", **arguments)


class _Transport(HTTPTransport):  # type: ignore[misc]
    """Receives state from a peer: tensors and plain values only, so that unpickling runs no code."""

    def __init__(self, host: str, timeout: timedelta) -> None:
        self.host, self.source = host, -1
        super().__init__(timeout, num_chunks=0)
        self._server.RequestHandlerClass.log_message = lambda *_: None
        self._server.handle_error = lambda *_: None  # a worker that died while it was healing

    def address(self) -> str:
        return f"http://{self.host}:{self._server.socket.getsockname()[1]}/checkpoint/"

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> PeerState:
        self.source = src_rank
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{metadata}{step}/full", timeout=timeout.total_seconds()) as stream:
            return _streaming_load(stream, weights_only=True)


@dataclass(frozen=True)
class QuorumChange:
    """What changed with a new quorum."""

    regrouped: bool  # a worker came or went, or the last exchange failed
    source: int | None = None  # the worker whose state was copied
    failures: list[str] = field(default_factory=list)


class Quorum:
    """Forms quorums. `give_state` returns the state that a worker which is behind needs; `copy_state` puts it in place."""

    def __init__(
        self,
        context: Context,
        settings: ResilientSettings,
        give_state: Callable[[], PeerState],
        copy_state: Callable[[PeerState], None],
    ) -> None:
        self._context, self._patience = context, timedelta(seconds=settings.merge_seconds)
        self._group = make_group(settings.transport, context.team.device.type, settings.merge_seconds)
        self._give_state, self._copy_state = give_state, copy_state
        self._manager: Manager | None = None
        self._works: list[dist.Work] = []
        self._failures = 0  # in a row
        self.rank, self.size = 0, 1
        address = environment_variables.lighthouse()
        assert address is not None
        self._lighthouse = address
        # A lighthouse on the loopback serves this machine only: no names have to be resolved.
        local = urlsplit(self._lighthouse).hostname in ("127.0.0.1", "localhost", "::1")
        self._host = LOOPBACK if local else socket.gethostname()

    @property
    def participants(self) -> tuple[int, ...]:
        return self._group.participants

    @property
    def number(self) -> int:
        """The number of this quorum; all its workers have the same."""
        return self._group.quorum

    def _open(self) -> Manager:
        """Joins the lighthouse. From here on it waits for this worker, so everything else must be ready."""
        context = self._context
        log = logging.getLogger("torchft")
        log.addHandler(logging.StreamHandler(os.fdopen(2, "w", closefd=False)))  # its Rust part writes there too
        log.propagate = False
        warnings.filterwarnings("ignore", message="The given buffer is not writable")  # torch, about received state
        if self._host == LOOPBACK:
            _listen_on_loopback()
            self._store = serve_loopback_store(0, timedelta(seconds=context.team.timeout_seconds))
        else:
            self._store = dist.TCPStore(self._host, 0, is_master=True, wait_for_workers=False)
        self._transport = _Transport(self._host, self._patience)
        patience = timedelta(seconds=CONNECT_SECONDS)
        try:
            manager = Manager(
                pg=self._group,
                load_state_dict=self._copy_state,
                state_dict=self._give_state,
                min_replica_size=1,
                use_async_quorum=False,  # who takes part must be known before the global batch is cut
                timeout=self._patience,
                quorum_timeout=timedelta(seconds=context.team.timeout_seconds + 60),  # longer than the lighthouse takes
                connect_timeout=timedelta(seconds=LIGHTHOUSE_SECONDS),
                quorum_retries=LIGHTHOUSE_TRIES,
                rank=0,
                world_size=1,
                store_addr=self._host,
                store_port=self._store.port,
                lighthouse_addr=self._lighthouse,
                replica_id=f"worker-{context.team.rank:04d}",
                hostname=self._host,
                checkpoint_transport=self._transport,
                init_sync=False,  # the same seed or the same checkpoint
            )
            me = self._store.get(REPLICA_ID_KEY).decode()
            LighthouseClient(self._lighthouse, connect_timeout=patience).heartbeat(me)  # so that it waits for us
        except (RuntimeError, TimeoutError) as error:
            raise self._unreachable(error) from None
        self._start = StartBarrier(context.team.rank, context.team.size, context.team.timeout_seconds)
        self._start.wait()
        return manager

    def _unreachable(self, error: Exception) -> LockstepError:
        return LockstepError(
            f"Worker {self._context.team.rank} lost the lighthouse at {self._lighthouse} ({_first_line(error)}).",
            "Check that it runs and that it can be reached.",
        )

    def form(self, step: int) -> QuorumChange:
        """Settles who takes part in the step after `step`. A worker that is behind copies the state of a peer."""
        if self._manager is None:
            self._manager = self._open()
        stderr_log.truncate_if_long()
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
        peer = self._group.participants[source] if source >= 0 else None
        return QuorumChange(self._group.made != made, peer, failures)

    def start_sum(self, tensor: Tensor) -> dist.Work | None:
        """Starts to sum a tensor over all participants, in place. None: there is nobody else, or a sum has failed."""
        assert self._manager is not None
        if self.size == 1 or self._manager.errored() is not None:
            return None
        options = AllreduceOptions()
        options.timeout = self._patience
        try:
            work: dist.Work = self._group.allreduce([tensor], options)
        except Exception as error:  # torchft documents none: whatever it is, this step has no sum
            self._give_up_step(error)
            return None
        self._works.append(work)
        return work

    def _give_up_step(self, error: Exception) -> None:
        """Aborts the group, so that workers that wait for this one notice at once and not at the timeout."""
        assert self._manager is not None
        if self._manager.errored() is None:
            self._manager.report_error(error)
            self._group.abort()

    def wait(self) -> None:
        """Returns when everything is summed, or when a sum has failed."""
        for work in self._works:
            try:
                work.wait()
            except Exception as error:
                self._give_up_step(error)
        self._works.clear()

    def commit(self) -> str | None:
        """Returns None when everything was summed and the step counts, otherwise why it must be repeated."""
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
            self._start.mark_stepped()
            return None
        self._failures += 1
        reason = _first_line(manager.errored())
        if self._failures >= MAX_FAILURES:
            raise RuntimeError(f"Connection to the others is lost, in {MAX_FAILURES} attempts: {reason}")
        return reason

    def close(self) -> None:
        if self._manager is not None:
            self._group.abort()
            self._manager.shutdown(wait=False)


def _first_line(error: object) -> str:
    """Returns the first line of an error, without the place in the library's source."""
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return re.sub(r"^\[\S+\] ", "", first)[:160]


class StartBarrier:
    """Where the workers of our own launcher wait for each other once, and mark for it that a start led to a step."""

    def __init__(self, rank: int, size: int, patience_seconds: float) -> None:
        self._rank, self._size, self._patience = rank, size, patience_seconds
        self._start = environment_variables.restarts()
        self._marked = False
        self._folder = environment_variables.start_folder()

    def wait(self) -> None:
        """Without this the first worker would begin alone. A restarted worker finds the marks of all; when some workers do
        not come, the others start without them after a while."""
        if self._folder is None:
            return
        (self._folder / f"ready-{self._rank}").touch()
        marks = [self._folder / f"ready-{rank}" for rank in range(self._size)]
        deadline = time.monotonic() + self._patience
        while not all(mark.exists() for mark in marks) and time.monotonic() < deadline:
            time.sleep(0.01)

    def mark_stepped(self) -> None:
        if self._folder is not None and not self._marked:
            (self._folder / f"stepped-{self._rank}-{self._start}").touch()
            self._marked = True
