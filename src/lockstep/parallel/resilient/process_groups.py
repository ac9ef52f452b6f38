"""The process groups of a quorum: torchft's, which are made anew when a worker comes or goes.

Over Gloo the gradients of a GPU pass through pinned memory, and the death of a peer is an exception in Python. Over NCCL
they pass from GPU to GPU, and a group whose peer died must be aborted.
"""

from datetime import timedelta
from typing import Literal

import torch.distributed as dist
from torchft import ProcessGroupGloo, ProcessGroupNCCL

from lockstep.challenge import check_members
from lockstep.job_secret import read_secret
from lockstep.run import environment_variables
from lockstep.signed_store import SignedStore

CONNECT_SECONDS = 20.0
"""How long the members of a new group may take to connect. They learn of it at the same time."""


class _Recorded:
    """Records for which workers a process group was made, and lets them prove that they belong to the job."""

    device = "cpu"

    participants: tuple[int, ...] = ()
    made = 0
    quorum = 0

    def __init__(self, exchange_timeout: timedelta) -> None:
        self.exchange_timeout = exchange_timeout
        super().__init__(timeout=timedelta(seconds=CONNECT_SECONDS))  # type: ignore[call-arg]

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
        self.set_timeout(timedelta(seconds=CONNECT_SECONDS))  # type: ignore[attr-defined]
        super().configure(  # type: ignore[misc]
            store_addr, replica_id, rank, world_size, quorum_id, group_rank, group_world_size, global_ranks
        )
        check_members(f"quorum {quorum_id}", self._pg, read_secret(), self.device)  # type: ignore[attr-defined]
        # Over NCCL torchft replaces the timeout of every exchange by that of its group.
        self.set_timeout(self.exchange_timeout)  # type: ignore[attr-defined]

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroup:
        self._signed_store = SignedStore(store, read_secret())  # torch needs this reference while it uses the store
        return super()._create_pg(self._signed_store, rank, world_size)  # type: ignore[misc]


class Gloo(_Recorded, ProcessGroupGloo):  # type: ignore[misc]
    pass


class Nccl(_Recorded, ProcessGroupNCCL):  # type: ignore[misc]
    device = "cuda"


def make_group(transport: Literal["gloo", "nccl"], device_type: str, exchange_seconds: float) -> Gloo | Nccl:
    """Returns a group without members."""
    timeout = timedelta(seconds=exchange_seconds)
    if transport == "gloo" or device_type == "cpu":
        return Gloo(timeout)
    environment_variables.let_nccl_peers_die()
    return Nccl(timeout)
