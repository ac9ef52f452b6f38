"""For what the host waits in a training step on a device: once, for everything that it must know of the step.

The steps are real; the device is `meta`, whose tensors have no values. What would make a GPU's host wait is counted.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import distributed as ddp
from torch.testing._internal.distributed.fake_pg import FakeStore

from device_stand_ins import META, Waits, counting_waits
from lockstep.data.corpus.batches import GlobalBatch, Position
from lockstep.models.make_model import make_model
from lockstep.models.model_settings import LstmSettings, ResNetSettings, TransformerSettings
from lockstep.models.packed import Layout
from lockstep.models.resnet import ResNet
from lockstep.parallel.allreduce import AllReduce
from lockstep.parallel.local_sgd import LocalSgd
from lockstep.parallel.optimizers import AdamW, Sgd
from lockstep.parallel.single import Single
from lockstep.parallel.strategy import Claim, Context, Strategy
from lockstep.parallel.strategy_settings import AllReduceSettings, LocalSettings
from lockstep.run.journal import StepLine
from lockstep.tasks.classification import ClassificationLoss, ImageBatch
from lockstep.tasks.task import MicroBatch
from lockstep.tasks.translation import PairBatch, TranslationLoss
from lockstep.team import Team
from lockstep.train.step import Step
from lockstep.watch.clock import PhaseClock

ADAMW = partial(AdamW, betas=(0.9, 0.98), epsilon=1e-9, weight_decay=0.01)
SGD = partial(Sgd, momentum=0.9, nesterov=True, weight_decay=0.01)


class NoProbes:
    """Measures nothing."""

    def count_flops(self) -> AbstractContextManager[object]:
        return nullcontext()

    def before_backward(self) -> None: ...


class Pinned:
    """A micro-batch in pinned memory, as prefetching makes it: its copies do not wait."""

    def __init__(self, batch: MicroBatch) -> None:
        self.batch, self.source_words, self.target_words = batch, batch.source_words, batch.target_words

    def to(self, device: torch.device) -> MicroBatch:
        return self.batch.to(device)

    def pin(self) -> "Pinned":
        return self


def make_pairs() -> PairBatch:
    lengths = np.array([7, 5, 5, 2])
    layout, words = Layout.from_lengths(lengths), int(lengths.sum())
    ids = [torch.arange(words) % 40 for _ in range(3)]
    return PairBatch(ids[0], layout, ids[1], ids[2], layout, words, words)


def make_images() -> ImageBatch:
    return ImageBatch(torch.zeros(4, 3, 16, 16, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64))


def make_transformer() -> nn.Module:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2)
    return TranslationLoss(make_model(settings, 40), 0.1)


def make_lstm() -> nn.Module:
    return TranslationLoss(make_model(LstmSettings(encoder_layers=1, decoder_layers=2, width=8), 40), 0.1)


def make_resnet() -> nn.Module:
    return ClassificationLoss(ResNet(ResNetSettings(depth=8), 3, 10), ([0.0] * 3, [1.0] * 3), 0.1)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waits]:
    with counting_waits(monkeypatch) as counted:
        yield counted


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two workers, whose exchanges do nothing."""
    monkeypatch.setattr(ddp, "_verify_param_shape_across_processes", lambda *_: None)
    monkeypatch.setattr(ddp, "_sync_module_states", lambda **_: None)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def make_step(
    strategy: Strategy,
    module: nn.Module,
    batch: Any,
    size: int,
    optimizer: Any,
    clip: float | None,
    scale: float | None,
) -> Step:
    clock = PhaseClock(torch.device("cuda"))
    facts = dist.group.WORLD if size > 1 else None
    context = Context(Team(0, size, META, facts), clip, scale)
    strategy.setup(module.to(META), optimizer, clock, context, batch.to(META))
    journal: Any = None
    probes: Any = NoProbes()
    return Step(strategy, clock, probes, journal, nullcontext, META, 1, 1)


def take_step(step: Step, batch: Any, micro_batches: int = 1) -> StepLine:
    words = batch.target_words * micro_batches
    indices = np.arange(4)
    whole = GlobalBatch(indices, words, Position(0, 1))
    claim = Claim(1, whole, indices, words, 0)
    step.clock.start()
    pinned = [Pinned(batch) for _ in range(micro_batches)]
    outcome = step.compute(claim, pinned, 1e-3)
    outcome, agreed = step.strategy.end_step(outcome, step.loss_sums, False)
    return step.finish(claim, pinned, 1e-3, outcome, agreed, warmup=False)


@pytest.mark.parametrize(
    ("make_model", "make_batch"),
    [(make_transformer, make_pairs), (make_lstm, make_pairs), (make_resnet, make_images)],
    ids=["transformer", "lstm", "resnet"],
)
@pytest.mark.parametrize(
    ("optimizer", "clip", "scale"),
    [(ADAMW, None, None), (ADAMW, 1.0, None), (ADAMW, 1.0, 2.0**16), (SGD, None, 2.0**16)],
    ids=["adamw", "adamw-clip", "adamw-clip-scale", "sgd-scale"],
)
def test_a_step_waits_once(
    make_model: Callable[[], nn.Module],
    make_batch: Callable[[], Any],
    optimizer: Any,
    clip: float | None,
    scale: float | None,
    waits: Waits,
) -> None:
    batch = make_batch()
    step = make_step(Single(), make_model(), batch, 1, optimizer, clip, scale)
    waits.waits.clear()
    line = take_step(step, batch, micro_batches=2)
    assert waits.waits == ["copy to the host"]
    assert line["grad_norm"] > 0
    assert line["applied"] is True


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(
    "strategy",
    [
        lambda: AllReduce(AllReduceSettings(bucket_mb=0.01)),
        lambda: AllReduce(AllReduceSettings(gradients="bf16")),
        lambda: LocalSgd(LocalSettings(every=1)),
    ],
    ids=["allreduce", "allreduce-bf16", "local"],
)
def test_workers_that_exchange_wait_once(strategy: Callable[[], Strategy], waits: Waits) -> None:
    batch = make_pairs()
    step = make_step(strategy(), make_transformer(), batch, 2, ADAMW, 1.0, None)
    take_step(step, batch)
    waits.waits.clear()
    take_step(step, batch)
    assert waits.waits == ["copy to the host"]
