"""How the parameters are divided among servers, and one server's shard with its optimizer state."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lockstep.parallel.flat_parameters import FlatParameters
from lockstep.parallel.optimizers import MakeOptimizer


@dataclass(frozen=True)
class Packet:
    """A slice of the parameter vector that travels at once. With `table` it holds rows of an embedding table, of which
    only those travel that a step uses."""

    begin: int
    size: int
    table: str = ""  # name of the table's parameter
    first_row: int = 0
    width: int = 0  # of a row

    @property
    def span(self) -> slice:
        return slice(self.begin, self.begin + self.size)


def cut_evenly(size: int, shards: int, packet: int) -> list[list[int]]:
    """Divides `size` values into equal shards, and each shard into packets of at most `packet` values."""
    ends = [size * shard // shards for shard in range(shards + 1)]
    return [_even_sizes(end - begin, packet) for begin, end in zip(ends, ends[1:], strict=False)]


def _even_sizes(size: int, largest: int) -> list[int]:
    count = max(1, -(-size // largest))
    return [size * (i + 1) // count - size * i // count for i in range(count)]


def lay_out(flat: FlatParameters, tables: list[str], shards: int, largest: int) -> list[list[Packet]]:
    """Returns the packets of every shard: first one of each table (tables come first in the vector), then the rest."""
    packets_of: list[list[Packet]] = [[] for _ in range(shards)]
    for name in tables:
        begin = flat.spans[name][0]
        rows, width = flat.parameters[name].shape
        ends = [rows * shard // shards for shard in range(shards + 1)]
        for shard, (first, end) in enumerate(zip(ends, ends[1:], strict=False)):
            packets_of[shard].append(Packet(begin + first * width, (end - first) * width, name, first, width))
    begin = flat.spans[tables[-1]][1] if tables else 0
    for packets, sizes in zip(packets_of, cut_evenly(len(flat.values) - begin, shards, largest), strict=True):
        for size in sizes:
            packets.append(Packet(begin, size))
            begin += size
    return packets_of


class ParameterShard:
    """The parameters of one server. They are stored on one device and updated on the same or another; the optimizer's
    moments are where the update happens. `sizes` are the lengths of the packets. The first packets are embedding tables,
    as many as `widths`, which are the widths of their rows."""

    def __init__(
        self,
        sizes: list[int],
        make_optimizer: MakeOptimizer,
        device: torch.device,
        update_device: torch.device,
        widths: Sequence[int] = (),
    ) -> None:
        self.widths = widths
        self.values = torch.zeros(sum(sizes), device=device)
        self.packets = list(self.values.split(sizes))
        self.dense_values = self.values[sum(sizes[: len(widths)]) :]  # all but the tables
        self.update_device = update_device
        self.updates = 0
        self._copies_back = device != update_device
        self._optimizers = [make_optimizer({"": nn.Parameter(packet.to(update_device))}) for packet in self.packets]
        self.moments = self._optimizers[0].MOMENTS

    @torch.no_grad()
    def update(self, packet: int, gradient: Tensor, rate: float) -> None:
        """Applies a gradient to one packet."""
        optimizer = self._optimizers[packet]
        optimizer.step([gradient.to(self.update_device)], rate)
        if self._copies_back:
            self.packets[packet].copy_(optimizer.parameters[""])

    def read_rows(self, packet: int, rows: Tensor) -> Tensor:
        table = self.packets[packet].view(-1, self.widths[packet])  # [rows, width]
        return table[rows.to(table.device)].cpu()

    def read_moment(self, name: str) -> Tensor:
        return torch.cat([optimizer.moments[name][""] for optimizer in self._optimizers])

    @torch.no_grad()
    def fill(self, values: Tensor, moments: dict[str, Tensor], updates: int) -> None:
        """Replaces parameters and optimizer state, as a checkpoint has them."""
        self.values.copy_(values)
        self.updates = updates
        begin = 0
        for packet, optimizer in zip(self.packets, self._optimizers, strict=True):
            end = begin + packet.numel()
            optimizer.parameters[""].copy_(packet)
            for name in self.moments:
                optimizer.moments[name][""].copy_(moments[name][begin:end])
            optimizer.steps[0].fill_(float(updates))
            begin = end
