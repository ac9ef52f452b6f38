"""How `resilient` exchanges the gradients of GPUs, with groups that need none."""

import os
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist

pytest.importorskip("torchft")

from torch.distributed.distributed_c10d import AllreduceOptions
from torchft import ProcessGroupGloo, ProcessGroupNCCL

from device_stand_ins import META, counting_waits
from lockstep.parallel.optimizers import AdamW
from lockstep.parallel.resilient import process_groups
from lockstep.parallel.resilient.process_groups import CONNECT_SECONDS, Gloo, Nccl, make_group
from lockstep.parallel.resilient.resilient_allreduce import Resilient
from lockstep.parallel.strategy_settings import ResilientSettings
from lockstep.parallel.update import Updater
from lockstep.run.checkpoint import Progress

EXCHANGE_SECONDS = 71.0
WATCHDOG = "TORCH_NCCL_ASYNC_ERROR_HANDLING"


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nccl]:
    """A group of NCCL whose collectives are Gloo's: torchft's Python around them is the real one."""
    for name in (WATCHDOG, "TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_NONBLOCKING_TIMEOUT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 0))
    monkeypatch.setattr(process_groups, "check_members", lambda *_: None)
    group = make_group("nccl", "cuda", EXCHANGE_SECONDS)
    assert isinstance(group, Nccl)

    def create(self: Any, store: dist.Store, rank: int, size: int) -> Any:
        created.append(self._timeout.total_seconds())
        return ProcessGroupGloo._create_pg(self, store, rank, size)

    created: list[float] = []
    monkeypatch.setattr(ProcessGroupNCCL, "_create_pg", create)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group.configure(f"127.0.0.1:{store.port}/quorum", "worker-0000", 0, 1, 1, 0, 1, [0])
    assert created == [CONNECT_SECONDS]
    yield group
    group.abort(errored=False)


def test_an_exchange_over_nccl_may_take_as_long_as_the_setting_says(nccl: Nccl) -> None:
    """torchft replaced the 71 seconds by the 20 in which a group must connect."""
    options = AllreduceOptions()
    options.timeout = timedelta(seconds=EXCHANGE_SECONDS)
    work: Any = nccl.allreduce([torch.ones(3)], options)
    assert work._timeout.total_seconds() == EXCHANGE_SECONDS


def test_the_watchdog_of_nccl_does_not_end_the_survivors(nccl: Nccl) -> None:
    assert os.environ[WATCHDOG] == "0"
    assert os.environ["TORCH_NCCL_ENABLE_MONITORING"] == "0"


def test_what_the_user_has_set_for_the_watchdog_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WATCHDOG, "3")
    monkeypatch.setenv("TORCH_NCCL_NONBLOCKING_TIMEOUT", "20")
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 0))
    make_group("nccl", "cuda", EXCHANGE_SECONDS)
    assert os.environ[WATCHDOG] == "3"


@pytest.mark.parametrize(("transport", "device"), [("gloo", "cuda"), ("gloo", "cpu"), ("nccl", "cpu")])
def test_gradients_travel_over_gloo_unless_nccl_is_asked_for(transport: Any, device: str) -> None:
    assert isinstance(make_group(transport, device, EXCHANGE_SECONDS), Gloo)


def test_a_peer_gets_state_that_lies_on_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of cuda:0 would be made on cuda:0 by a worker of another GPU, too."""
    giver = Resilient(ResilientSettings())
    make = partial(AdamW, betas=(0.9, 0.98), epsilon=1e-9, weight_decay=0.0)
    with counting_waits(monkeypatch):
        giver.updater = Updater(torch.nn.Linear(3, 2, device=META), make, None, None)
        giver.updater.optimizer.steps = [torch.zeros(())]
        giver._offered = Progress(), None
        state = giver._give_state()
    assert {tensor.device.type for tensor in state["tensors"].values()} == {"cpu"}
    assert "optimizer.exp_avg.weight" in state["tensors"]
