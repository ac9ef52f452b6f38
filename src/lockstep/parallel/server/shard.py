"""A part of the parameters with its optimizer state, held by one process for all workers."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lockstep.parallel.strategy import MakeOptimizer


class ParameterShard:
    """Values lie on one device and are updated on one, the same or another; the optimizer's averages lie where the update
    happens. `sizes` are the lengths of the packets in which gradients come and parameters go; where the first of them
    are tables, `widths` are those of their rows."""

    def __init__(
        self,
        sizes: list[int],
        make: MakeOptimizer,
        place: torch.device,
        update: torch.device,
        widths: Sequence[int] = (),
    ) -> None:
        self.widths = widths
        self.values = torch.zeros(sum(sizes), device=place)
        self.packets = list(self.values.split(sizes))
        self.others = self.values[sum(sizes[: len(widths)]) :]  # all but the tables
        self.update_place = update
        self.updates = 0
        self._moves = place != update
        self._optimizers = [make({"": nn.Parameter(packet.to(update))}) for packet in self.packets]
        self.moments = self._optimizers[0].MOMENTS

    @torch.no_grad()
    def update(self, packet: int, gradient: Tensor, rate: float) -> None:
        optimizer = self._optimizers[packet]
        optimizer.step([gradient.to(self.update_place)], rate)
        if self._moves:
            self.packets[packet].copy_(optimizer.parameters[""])

    def rows(self, packet: int, chosen: Tensor) -> Tensor:
        table = self.packets[packet].view(-1, self.widths[packet])
        return table[chosen.to(table.device)].cpu()

    def moment(self, name: str) -> Tensor:
        return torch.cat([optimizer.moments[name][""] for optimizer in self._optimizers])

    @torch.no_grad()
    def fill(self, values: Tensor, moments: dict[str, Tensor], updates: int) -> None:
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
