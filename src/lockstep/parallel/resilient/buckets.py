"""Gradients in flat buckets, each sent as soon as the backward pass has filled it."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn


class Buckets:
    """The gradients of a model as views of a few flat tensors. `send` is called with them in the same order on every
    worker, the last layers first, because those are ready first."""

    def __init__(self, parameters: list[nn.Parameter], megabytes: float, send: Callable[[Tensor], None]) -> None:
        self._send = send
        self.armed = False  # whether the last micro-batch is running, whose gradients complete the sums
        self._members: list[list[nn.Parameter]] = []
        room = 0.0
        for parameter in reversed(parameters):
            size = parameter.numel() * parameter.element_size()
            if not self._members or size > room or parameter.dtype != self._members[-1][0].dtype:
                self._members.append([])
                room = megabytes * 2**20
            self._members[-1].append(parameter)
            room -= size
        self._flat = [
            torch.zeros(sum(p.numel() for p in members), dtype=members[0].dtype, device=members[0].device)
            for members in self._members
        ]
        for number, members in enumerate(self._members):
            for parameter in members:
                parameter.register_post_accumulate_grad_hook(partial(self._gradient_ready, number))
        self.clear()

    def clear(self) -> None:
        """Sets every gradient to zero, as a view of its bucket: backward then adds in place."""
        self._missing = [len(members) for members in self._members]
        self._next = 0
        for flat, members in zip(self._flat, self._members, strict=True):
            flat.zero_()
            for parameter, part in zip(members, flat.split([p.numel() for p in members]), strict=True):
                parameter.grad = part.view_as(parameter)

    def _gradient_ready(self, number: int, parameter: Tensor) -> None:
        if self.armed:
            self._missing[number] -= 1
            while self._next < len(self._flat) and self._missing[self._next] == 0:
                self._send_next()

    def _send_next(self) -> None:
        self._next += 1
        self._send(self._flat[self._next - 1])

    def send_rest(self) -> None:
        """Sends what is left: parameters that this worker's sentences did not use have a gradient of zero."""
        while self._next < len(self._flat):
            self._send_next()
