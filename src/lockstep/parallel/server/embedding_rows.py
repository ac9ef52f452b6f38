"""Embedding tables of which a step reads and changes some rows only, so that the others need not travel."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class EmbeddingTable:
    name: str  # of its parameter
    weight: nn.Parameter
    fresh: Tensor  # [rows] which are as their holders have them
    used: Tensor  # [rows] by this step


class EmbeddingRows:
    """All tables of a model whose module says `by_rows`: nothing but a lookup reads them. Before a lookup `fetch` is
    asked for the rows that have changed since they were fetched."""

    def __init__(self, module: nn.Module, fetch: Callable[[EmbeddingTable, Tensor], None]) -> None:
        self._fetch = fetch
        self.all: dict[str, EmbeddingTable] = {}
        for path, part in module.named_modules():
            if getattr(part, "by_rows", False):
                self._add(f"{path}.weight", part)

    def _add(self, name: str, module: nn.Module) -> None:
        weight = module.weight
        assert isinstance(weight, nn.Parameter)
        table = EmbeddingTable(
            name, weight, torch.ones(len(weight), dtype=torch.bool), torch.zeros(len(weight), dtype=torch.bool)
        )
        self.all[name] = table

        def before(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            rows = inputs[0].detach().flatten().cpu()
            if torch.is_grad_enabled():
                table.used[rows] = True
            self._need(table, rows)

        module.register_forward_pre_hook(before)

    def _need(self, table: EmbeddingTable, rows: Tensor) -> None:
        missing = torch.zeros_like(table.fresh)
        missing[rows] = True
        missing &= ~table.fresh
        if missing.any():
            self._fetch(table, missing.nonzero().flatten())
            table.fresh |= missing

    def need_all(self) -> None:
        for table in self.all.values():
            self._need(table, torch.arange(len(table.fresh)))

    def changed(self) -> None:
        """The holders may have updated any row: an optimizer moves also those that had no gradient."""
        for table in self.all.values():
            table.fresh.zero_()

    def end_step(self) -> None:
        for table in self.all.values():
            table.used.zero_()

    def whole(self) -> None:
        """All rows have come by another way."""
        for table in self.all.values():
            table.fresh.fill_(True)
