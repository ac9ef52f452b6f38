"""One worker of a sharded training of a small model, without the command around it; prints what it saw as JSON.

python sharded_worker.py MODEL PRECISION [keep]     (RANK, WORLD_SIZE and the rendezvous come from the environment)
"""

import json
import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.dtypes import DTYPES
from lockstep.notices import print_error
from lockstep.parallel.optimizers import AdamW, local_part
from lockstep.parallel.sharded.fsdp import Sharded
from lockstep.parallel.sharded.full_copy import FullCopy
from lockstep.parallel.single import Single
from lockstep.parallel.strategy import Context, Strategy
from lockstep.parallel.strategy_settings import ShardedSettings
from lockstep.process import run_then_exit
from lockstep.team import join
from lockstep.watch.clock import PhaseClock

STEPS = 3
WORDS = 19


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(8), nn.Linear(8, 5), nn.Linear(5, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(F.relu(self.inner(self.norm(x))))


class Tied(nn.Module):
    """One matrix reads the words and scores them, as in a translation model."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.layers = nn.ModuleList(Residual() for _ in range(3))
        self.norm = nn.LayerNorm(8)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy((self.norm(x) @ self.embedding.weight.T).float(), ids.roll(1), reduction="sum")


class Convolutions(nn.Module):
    """Stages in a list, blocks in a list of a stage, as in a residual network."""

    def __init__(self) -> None:
        super().__init__()
        block = [nn.Sequential(nn.Conv1d(4, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU()) for _ in range(4)]
        self.embedding = nn.Embedding(WORDS, 4)
        self.stages = nn.Sequential(nn.Sequential(*block[:2]), nn.Sequential(*block[2:]))
        self.head = nn.Linear(4, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.stages(self.embedding(ids).T[None])  # [1, channels, words]
        return F.cross_entropy(self.head(x[0].T).float(), ids, reduction="sum")


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 6)
        self.layers = nn.ModuleList(nn.LSTM(6, 6) for _ in range(2))
        self.head = nn.Linear(6, WORDS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x, _ = layer(x)
        return F.cross_entropy(self.head(x).float(), ids.roll(1), reduction="sum")


def adamw(parameters: dict[str, nn.Parameter]) -> AdamW:
    return AdamW(parameters, betas=(0.9, 0.98), epsilon=1e-6, weight_decay=0.01)


def sentences(step: int, rank: int) -> Tensor:
    """Longer ones for higher ranks."""
    return torch.randint(WORDS, (3 + 2 * rank,), generator=torch.Generator().manual_seed(100 * step + rank))


def take_steps(strategy: Strategy, ranks: list[list[int]], precision: str) -> list[Any]:
    """A micro-batch for each of `ranks`' lists: its sentences one after the other."""
    outcomes = []
    for step in range(STEPS):
        for number, together in enumerate(ranks):
            with strategy.micro(last=number + 1 == len(ranks)):
                ids = torch.cat([sentences(step, rank) for rank in together])
                with torch.autocast("cpu", DTYPES[precision], enabled=precision != "fp32"):
                    loss = strategy.module(ids)
                strategy.backward(loss, 10)
        outcomes.append(strategy.settle(strategy.commit(0.01)))
    return outcomes


def count_bytes(copy: FullCopy) -> int:
    return sum(parameter.untyped_storage().size() for parameter in copy._copy.parameters())


def main() -> None:
    model, precision = {"tied": Tied, "convolutions": Convolutions, "recurrent": Recurrent}[sys.argv[1]], sys.argv[2]
    team = join("cpu")
    context = Context(team, 0.5, None, DTYPES[precision])
    seen: dict[str, Any] = {}
    sharded, single = Sharded(ShardedSettings(keep_gathered="keep" in sys.argv)), Single()
    strategies: list[Strategy] = [sharded, single]
    for strategy in strategies:
        torch.manual_seed(1)
        module = model()
        seen["parameters"] = sum(p.numel() for p in module.parameters())
        strategy.setup(module, adamw, PhaseClock(team.device), context, sentences(0, 0))
    seen["held"] = {name: local_part(tensor).numel() for name, tensor in sharded.state().tensors.items()}
    outcomes = take_steps(sharded, [[team.rank]], precision)
    seen["compiler"] = "torch._dynamo" in sys.modules
    seen["sent"] = [outcome.bytes_sent for outcome in outcomes]
    seen["norms"] = [outcome.grad_norm for outcome in outcomes]
    with torch.autocast("cpu", DTYPES[precision], enabled=precision != "fp32"):
        sharded.module(sentences(0, 0))
    seen["whole after forward"] = [
        name for name, p in sharded.module.named_parameters() if p.ndim > 1 and not hasattr(p, "to_local")
    ]
    seen["single norms"] = [o.grad_norm for o in take_steps(single, [[rank] for rank in range(team.size)], precision)]
    with sharded.snapshot() as ours, single.snapshot() as whole:
        seen["exported"] = [parameter.untyped_storage().size() for parameter in ours.prepare_export().parameters()]
        seen["gathered to export"] = count_bytes(sharded.full_copy)
        exported = {name: p.detach().clone() for name, p in ours.prepare_export().named_parameters() if team.primary}
        pairs = list(zip(ours.module.named_parameters(), whole.module.named_parameters(), strict=True))
        assert all(mine == other for (mine, _), (other, _) in pairs)
        assert all(torch.equal(exported[name], p) for name, p in ours.module.named_parameters() if team.primary)
        assert ours.prepare_export() is ours.module  # gathered for an evaluation
        seen["apart"] = {name: float((p - q).detach().abs().max()) for (name, p), (_, q) in pairs}
    print(json.dumps(seen), flush=True)
    team.close()


if __name__ == "__main__":
    run_then_exit(main, print_error)
