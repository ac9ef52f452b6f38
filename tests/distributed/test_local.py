"""What workers of `local` do when they meet."""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from conftest import Tiny, lockstep, saved_parts
from lockstep.parallel.local_sgd import LocalSgd
from lockstep.parallel.optimizers import AdamW
from lockstep.parallel.strategy import Context
from lockstep.parallel.strategy_settings import LocalSettings
from lockstep.team import Team
from lockstep.watch.clock import PhaseClock

PACKETS = 0.0001  # megabytes: 26 values


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def ready(settings: LocalSettings, loss_scale: float | None = None) -> LocalSgd:
    device, strategy = torch.device("cpu"), LocalSgd(settings)
    make_optimizer = partial(AdamW, betas=(0.9, 0.98), epsilon=1e-9, weight_decay=0.0)
    context = Context(Team(0, 1, device), clip=None, loss_scale=loss_scale)
    strategy.setup(nn.Linear(9, 11), make_optimizer, PhaseClock(device), context, None)
    return strategy


def test_what_a_worker_judged_for_itself_is_its_own_after_a_resume(group: None) -> None:
    """Of fp16 gradients each worker leaves out those that are not finite, so scales and counts of steps differ."""
    settings = LocalSettings(every=4)
    saved, loaded = ready(settings, loss_scale=1024.0), ready(settings, loss_scale=1024.0)
    for step in saved.updater.optimizer.steps:
        step.fill_(7.0)
    saved.updater.guard.judge(math.inf)
    with saved.snapshot():
        state = saved.state()
    others = state.scalars | {"loss_scale.value": 64.0, "optimizer.step": 9.0}
    assert loaded.load(others, state.private.get) == []
    assert loaded.state().scalars == state.scalars


@pytest.mark.parametrize(("format", "tolerance"), [("fp32", 1e-6), ("bf16", 1e-2)])
def test_two_synchronizations_move_the_common_model_with_nesterov_momentum(
    group: None, format: Literal["fp32", "bf16"], tolerance: float
) -> None:
    settings = LocalSettings(every=1, outer_rate=0.7, outer_momentum=0.5, gradients=format, bucket_mb=PACKETS)
    strategy = ready(settings)
    values, common = strategy.flat.values, strategy.flat.values.clone()
    speed = torch.zeros_like(common)
    for _ in range(2):
        values += torch.randn_like(values)
        gradient = common - values
        speed = 0.5 * speed + gradient
        common = common - 0.7 * (gradient + 0.5 * speed)
        strategy._synchronize()
        torch.testing.assert_close(values, common, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(strategy.outer_momentum, speed, rtol=tolerance, atol=tolerance)
        common, speed = (
            strategy.common.clone(),
            strategy.outer_momentum.clone(),
        )  # compare one rounding


def test_local_sgd_continues_from_the_mean_of_workers_that_trained_alone(tiny: Tiny, tmp_path: Path) -> None:
    own = {
        "local": (
            "strategy.every=4",
            "strategy.outer_rate=1",
            "strategy.outer_momentum=0",
            f"strategy.bucket_mb={PACKETS}",
        ),
        "replicas": (),
    }
    for name, settings in own.items():
        settings = (f"strategy.name={name}", *settings, "train.steps=4", "batch.sentences=8", "batch.words=null")
        lockstep("train", tiny.config, *settings, "--workers", 2, "--run", tmp_path / name)
    met, alone = ({name: part for name, [(_, part)] in saved_parts(tmp_path / name, 4).items()} for name in own)
    models = [name for name in met if name.startswith("model.")]
    assert models
    for name in models:
        workers = [alone[f"private.replicas.worker-{rank}.{name}"] for rank in (0, 1)]
        assert not np.array_equal(workers[0], workers[1])
        np.testing.assert_allclose(met[name], np.mean(workers, axis=0), rtol=1e-5, atol=1e-6)
