"""The pieces that parameter servers are made of, without processes."""

import threading
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lockstep.parallel.flat_parameters import FlatParameters
from lockstep.parallel.optimizers import AdamW, MakeOptimizer, Sgd
from lockstep.parallel.server.channel import InProcess, Wait
from lockstep.parallel.server.embedding_rows import EmbeddingRows, EmbeddingTable
from lockstep.parallel.server.shard import ParameterShard, cut_evenly, lay_out
from lockstep.parallel.server.shard_server import AsyncUpdates

ADAMW: MakeOptimizer = partial(AdamW, betas=(0.9, 0.98), epsilon=1e-9, weight_decay=0.01)
SGD: MakeOptimizer = partial(Sgd, momentum=0.9, nesterov=True, weight_decay=0.01)
CPU = torch.device("cpu")


@settings(deadline=None)
@given(st.integers(1, 5000), st.integers(1, 9), st.integers(1, 700))
def test_parts_are_equal_and_no_packet_is_too_large(size: int, parts: int, packet: int) -> None:
    packets = cut_evenly(size, parts, packet)
    sums = [sum(part) for part in packets]
    assert sum(sums) == size
    assert len(sums) == parts
    assert max(sums) - min(sums) <= 1
    assert all(length <= packet for part in packets for length in part)


def test_parameters_and_gradients_become_slices_of_one_vector() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2, bias=False))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    flat = FlatParameters(module, gradients=True)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    flat.values.mul_(2)
    assert all(torch.equal(value, 2 * before[name]) for name, value in module.state_dict().items())
    module(torch.ones(5, 3)).sum().backward()
    module(torch.ones(5, 3)).sum().backward()
    assert flat.gradient is not None
    gradients = flat.split(flat.gradient)
    once = torch.autograd.grad(module(torch.ones(5, 3)).sum(), list(module.parameters()))
    for (name, _), gradient in zip(module.named_parameters(), once, strict=True):
        assert torch.allclose(gradients[name], 2 * gradient)


@pytest.mark.parametrize("make", [ADAMW, SGD], ids=["adamw", "sgd"])
def test_a_part_updates_as_the_whole_model_would(make: MakeOptimizer) -> None:
    torch.manual_seed(1)
    start, gradients = torch.randn(10), [torch.randn(10) for _ in range(3)]
    whole = make({"": nn.Parameter(start.clone())})
    part = ParameterShard([4, 6], make, CPU, CPU)
    part.fill(start, {name: torch.zeros(10) for name in whole.MOMENTS}, 0)
    for gradient in gradients:
        whole.step([gradient], 0.1)
        for packet, piece in enumerate(gradient.split([4, 6])):
            part.update(packet, piece, 0.1)
    assert torch.allclose(part.values, whole.parameters[""], rtol=1e-6)
    for name in whole.MOMENTS:
        assert torch.allclose(part.read_moment(name), whole.moments[name][""], rtol=1e-6)


@pytest.mark.parametrize(("place", "update"), [("cpu", "cpu"), ("cpu", "meta"), ("meta", "meta")])
def test_parameters_and_update_lie_where_they_are_told_to(place: str, update: str) -> None:
    """Meta tensors stand for a GPU's here: they know their device and shape and hold nothing."""
    part = ParameterShard([4, 6], ADAMW, torch.device(place), torch.device(update))
    assert part.values.device.type == place
    assert {packet.device.type for packet in part.packets} == {place}
    assert {part.read_moment(name).device.type for name in AdamW.MOMENTS} == {update}
    if (place, update) == ("cpu", "meta"):  # the result must come back, and there is none
        with pytest.raises(NotImplementedError, match="meta"):
            part.update(0, torch.zeros(4), 0.1)
    else:
        part.update(0, torch.zeros(4), 0.1)


class Ears:
    """A channel that only remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[float] = []

    def send(self, tensor: Tensor, tag: int) -> None:
        self.heard.append(float(tensor[0]))

    def expect(self, tensor: Tensor, tag: int) -> Wait:
        raise NotImplementedError


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 5), st.integers(0, 3), st.lists(st.integers(0, 4), min_size=5, max_size=60))
def test_no_gradient_is_staler_than_the_bound_and_nobody_waits_for_ever(
    workers: int, slack: int, turns: list[int]
) -> None:
    """Workers take parameters and apply gradients in any order; one that must wait does so in its own thread."""
    bound = workers - 1 + slack
    part = ParameterShard([1], ADAMW, CPU, CPU)
    rule = AsyncUpdates(part, workers, bound)
    ears = [Ears() for _ in range(workers)]
    waiting: dict[int, threading.Thread] = {}
    computing: set[int] = set()
    for turn in turns:
        worker = turn % workers
        if worker in waiting and not waiting[worker].is_alive():
            del waiting[worker]
        if worker in waiting:
            continue
        if worker not in computing:
            rule.join(worker)
            computing.add(worker)
            continue
        computing.remove(worker)
        waiting[worker] = threading.Thread(target=rule.apply, args=(worker, ears[worker], True, 1.0, 0.1), daemon=True)
        waiting[worker].start()
    for worker in computing:  # all come to their end, in whatever order
        waiting[worker] = threading.Thread(target=rule.apply, args=(worker, ears[worker], True, 1.0, 0.1), daemon=True)
        waiting[worker].start()
    for thread in waiting.values():
        thread.join(30)
        assert not thread.is_alive(), "a worker waits for ever"
    assert all(staleness <= bound for one in ears for staleness in one.heard)


def test_a_worker_that_dies_is_not_waited_for() -> None:
    rule = AsyncUpdates(ParameterShard([1], ADAMW, CPU, CPU), 2, bound=1)
    for worker in (0, 1):
        rule.join(worker)
    rule.apply(0, Ears(), True, 1.0, 0.1)
    rule.join(0)
    waits = threading.Thread(target=rule.apply, args=(0, Ears(), True, 1.0, 0.1), daemon=True)
    waits.start()
    waits.join(0.2)
    assert waits.is_alive(), "worker 1 would come two updates late"
    rule.leave(1, died=True)
    waits.join(30)
    assert not waits.is_alive()


def test_a_failure_reaches_the_end_that_waits() -> None:
    local = InProcess()
    arrived = local.worker_end.expect(torch.empty(1), 0)
    local.server_end.send(torch.ones(1), 0)
    arrived()
    local.failure = RuntimeError("worker 3 is gone")
    with pytest.raises(RuntimeError, match="worker 3"):
        local.worker_end.expect(torch.empty(1), 0)()


class Words(nn.Module):
    """A table that is only looked up, and something else."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.table = nn.Embedding(7, 3)
        self.table.by_rows = True  # type: ignore[assignment]

    def forward(self, ids: Tensor) -> Tensor:
        return self.first(self.table(ids)).sum()


@pytest.mark.parametrize("parts", [1, 2, 3, 9])
def test_tables_are_cut_by_rows_and_everything_is_in_one_packet(parts: int) -> None:
    flat = FlatParameters(Words(), first=["table.weight"])
    packets = [packet for part in lay_out(flat, ["table.weight"], parts, 6) for packet in part]
    assert sorted(i for packet in packets for i in range(packet.begin, packet.begin + packet.size)) == list(range(41))
    for packet in packets:
        if packet.table:
            assert packet.begin == 3 * packet.first_row
            assert packet.size % 3 == 0
        else:
            assert packet.size <= 6


def test_only_rows_that_are_needed_and_have_changed_are_fetched() -> None:
    asked: list[list[int]] = []

    def fetch(table: EmbeddingTable, rows: Tensor) -> None:
        asked.append(rows.tolist())

    module = Words()
    tables = EmbeddingRows(module, fetch)
    module(torch.tensor([4, 1, 4]))
    assert asked == []
    tables.mark_stale()
    module(torch.tensor([4, 1, 4]))
    module(torch.tensor([1, 2]))
    with torch.no_grad():
        module(torch.tensor([5]))
    assert asked == [[1, 4], [2], [5]]
    assert tables.tables["table.weight"].used.nonzero().flatten().tolist() == [1, 2, 4]
    tables.fetch_all()
    assert asked[3:] == [[0, 3, 6]]
    tables.end_step()
    assert not tables.tables["table.weight"].used.any()
