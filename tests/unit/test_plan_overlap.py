"""What travels while backward computes: packets as torch and the parameter servers make them, and the recursion."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.lab.plan.overlap import PlannedPacket, ProfiledTensor, find_last_arrival, make_buckets, make_shards
from lockstep.parallel.server.shard import cut_evenly


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("megabytes", [0.01, 0.05, 1.0])
def test_buckets_are_those_that_torch_makes(group: None, megabytes: float) -> None:
    module = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 32), nn.Linear(32, 64), nn.Linear(64, 64))
    ready: list[str] = []
    for name, parameter in module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: ready.append(name))
    sizes: list[int] = []

    def note_bucket(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        sizes.append(bucket.buffer().numel())
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    ddp = DistributedDataParallel(module, bucket_cap_mb=megabytes, gradient_as_bucket_view=True)
    ddp.register_comm_hook(None, note_bucket)
    ddp(torch.ones(2, 64)).sum().backward()  # after which it sorts its buckets
    ready.clear()
    sizes.clear()
    ddp(torch.ones(2, 64)).sum().backward()
    tensors = [
        ProfiledTensor(name, tuple(parameter.shape), ready.index(name) / len(ready))
        for name, parameter in module.named_parameters()
    ]
    assert [packet.values for packet in make_buckets(tensors, megabytes)] == sizes


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_shards_are_those_of_the_parameter_servers(servers: int) -> None:
    tensors = [ProfiledTensor(str(place), (size,), place / 10) for place, size in enumerate((700, 50, 1300, 9))]
    packet = 400
    shards = make_shards(tensors, servers, packet * 4 / 2**20)
    assert [[packet.values for packet in shard] for shard in shards] == cut_evenly(2059, servers, packet)


def test_a_packet_is_ready_with_the_last_of_its_tensors() -> None:
    tensors = [ProfiledTensor("a", (10,), 1.0), ProfiledTensor("b", (10,), 0.5), ProfiledTensor("c", (10,), 0.2)]
    assert make_buckets(tensors, 80 / 2**20) == [PlannedPacket(20, 0.5), PlannedPacket(10, 1.0)]
    assert make_shards(tensors, 2, 1.0) == [[PlannedPacket(15, 1.0)], [PlannedPacket(15, 0.5)]]


def test_a_packet_leaves_when_it_is_ready_and_the_one_before_has_arrived() -> None:
    ready = [np.array([0.1]), np.array([0.2]), np.array([1.0])]
    assert find_last_arrival(ready, [np.array([0.3])] * 3)[0] == pytest.approx(1.3)  # 0.4, 0.7, then waits until 1.0
    assert find_last_arrival(ready, [np.array([0.5])] * 3)[0] == pytest.approx(1.6)  # one after the other from 0.1 on
