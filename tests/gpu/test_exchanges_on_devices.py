"""In which stream and in which group things travel from and between devices."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from device_stand_ins import META, counting_waits
from lockstep.models.batch_norm import BatchNorm
from lockstep.parallel import layer_sums
from lockstep.parallel.flat_parameters import FlatParameters
from lockstep.parallel.layer_sums import sum_over
from lockstep.parallel.powersgd import PowerSgd
from lockstep.parallel.server import client
from lockstep.parallel.server.client import ServerClient
from lockstep.parallel.server.shard import lay_out
from lockstep.parallel.strategy_settings import AllReduceSettings
from lockstep.team import Team


class Wire:
    """A channel that drops what is sent."""

    def __init__(self) -> None:
        self.sent = 0

    def send(self, tensor: Tensor, tag: int) -> None:
        assert tensor.device.type == "cpu"
        self.sent += tensor.numel()

    def expect(self, tensor: Tensor, tag: int) -> Any:
        return lambda: None


def test_gradients_leave_the_device_in_a_stream_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies in backward's stream are queued behind the rest of backward, and nothing overlaps."""
    current: list[object] = ["backward's"]
    copied_in: list[object] = []

    @contextmanager
    def enter(stream: object) -> Iterator[None]:
        current.append(stream)
        yield
        current.pop()

    copy = Tensor.copy_

    def note_copy(target: Tensor, source: Tensor, *_: object) -> Tensor:
        copied_in.append(current[-1])
        return target if source.is_meta else copy(target, source)

    monkeypatch.setattr(client, "_pin", lambda tensor: torch.empty(len(tensor)))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"copies of {device}")
    monkeypatch.setattr(torch.cuda, "stream", enter)
    flat = FlatParameters(nn.Linear(30, 4, device="meta"), gradients=True)
    monkeypatch.setattr(Tensor, "copy_", note_copy)
    wire = Wire()
    packets = lay_out(flat, [], 1, 50)[0]
    pushing = ServerClient(wire, flat, packets, {})
    for name in flat.parameters:
        pushing.gradient_ready(name, time.perf_counter)
    pushing.push_rest(time.perf_counter)
    pushing.leave()
    assert copied_in == ["copies of meta"] * len(packets)
    assert wire.sent >= len(flat.values)


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(("module", "has_own"), [(BatchNorm(3), True), (nn.Linear(2, 2), False)])
@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_sums_of_batch_norm_do_not_queue_behind_gradients(
    monkeypatch: pytest.MonkeyPatch, module: nn.Module, has_own: bool, device: str
) -> None:
    used: list[object] = []
    monkeypatch.setattr(layer_sums, "open_group", lambda name, ranks, timeout: (name, list(ranks)))
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, group: used.append(group))
    team = Team(0, 2, torch.device(device), dist.group.WORLD)
    sum_over(team, module)(torch.zeros(3))
    assert used == [("sums", [0, 1]) if has_own and device == "meta" else None]


def test_powersgd_waits_for_a_device_once_per_step() -> None:
    """torch's hook waits for the device in every bucket, so there is one."""
    assert PowerSgd(AllReduceSettings(gradients="powersgd"), Team(0, 2, META)).one_bucket


def test_the_stand_in_sees_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    with counting_waits(monkeypatch) as counted:
        x = torch.zeros(3, device="meta")
        float(x.sum())
        x.tolist()
        torch.tensor([1.0], device="meta")
        torch.zeros(3).to("meta")
        torch.zeros(3).to("meta", non_blocking=True)
    assert counted.waits == ["_local_scalar_dense", "copy to the host", *["copy to the device"] * 2]
