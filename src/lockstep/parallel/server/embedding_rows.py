"""Embedding tables of which a step reads and changes a few rows only, so that only those rows travel."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class EmbeddingTable:
    name: str  # of its parameter
    weight: nn.Parameter  # [rows, width]
    fresh: Tensor  # [rows] bool: equal to the server's
    used: Tensor  # [rows] bool: read by this step


class EmbeddingRows:
    """All tables of a model whose modules set `by_rows`: only lookups read them. Before a lookup, `fetch` is called with
    the rows that changed since they were fetched."""

    def __init__(self, module: nn.Module, fetch: Callable[[EmbeddingTable, Tensor], None]) -> None:
        self._fetch = fetch
        self.tables: dict[str, EmbeddingTable] = {}
        for path, layer in module.named_modules():
            if getattr(layer, "by_rows", False):
                self._add(f"{path}.weight", layer)

    def _add(self, name: str, layer: nn.Module) -> None:
        weight = layer.weight
        assert isinstance(weight, nn.Parameter)
        fresh, used = torch.ones(len(weight), dtype=torch.bool), torch.zeros(len(weight), dtype=torch.bool)
        table = EmbeddingTable(name, weight, fresh, used)
        self.tables[name] = table

        def fetch_before_lookup(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            rows = inputs[0].detach().flatten().cpu()
            if torch.is_grad_enabled():
                table.used[rows] = True
            self._fetch_stale(table, rows)

        layer.register_forward_pre_hook(fetch_before_lookup)

    def _fetch_stale(self, table: EmbeddingTable, rows: Tensor) -> None:
        missing = torch.zeros_like(table.fresh)
        missing[rows] = True
        missing &= ~table.fresh
        if missing.any():
            self._fetch(table, missing.nonzero().flatten())
            table.fresh |= missing

    def fetch_all(self) -> None:
        for table in self.tables.values():
            self._fetch_stale(table, torch.arange(len(table.fresh)))

    def mark_stale(self) -> None:
        """The servers may have updated any row: an optimizer also moves rows without a gradient."""
        for table in self.tables.values():
            table.fresh.zero_()

    def end_step(self) -> None:
        for table in self.tables.values():
            table.used.zero_()

    def mark_fresh(self) -> None:
        """All rows have arrived in another way."""
        for table in self.tables.values():
            table.fresh.fill_(True)
