"""What a step of a model computes, without data and without a clock: its tensors, its arithmetic, and how much of the
backward pass's arithmetic is done when each gradient is complete."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from lockstep.config import RunConfig
from lockstep.errors import LockstepError
from lockstep.models.packed import Layout
from lockstep.models.settings import TranslationSettings
from lockstep.tasks.translation import PairBatch, TranslationLoss
from lockstep.watch.flops import FlopCount

SENTENCES = 4
WORDS = 30
"""Of a made-up sentence, on either side. Attention makes longer sentences cost a little more a word."""


def shape(config: RunConfig) -> dict[str, Any]:
    """One real pass over a few made-up sentences, counted. Facts of a profile, apart from seconds."""
    from lockstep.models.registry import make_model

    if config.task_name != "translation" or not isinstance(config.model, TranslationSettings):
        raise LockstepError(
            "The arithmetic of this model is not known without its data.",
            "Take a profile of a real run: leave --device out, or give --profile FILE.",
            code=2,
        )
    module = TranslationLoss(make_model(config.model, config.data.vocabulary.size), 0.0)
    words = SENTENCES * WORDS
    layout = Layout.of(np.full(SENTENCES, WORDS))
    ids = torch.arange(words) % config.data.vocabulary.size
    batch = PairBatch(ids, layout, ids, ids, layout, words, words)
    done: dict[str, int] = {}
    with FlopCount() as count:
        loss = module(batch)
        forward = count.total

        def ready(name: str, _: nn.Parameter) -> None:
            done[name] = count.total - forward

        for name, parameter in module.named_parameters():
            parameter.register_post_accumulate_grad_hook(partial(ready, name))
        loss.backward()
    backward = max(done.values())
    tensors = [
        {"name": name, "shape": list(parameter.shape), "ready": done.get(name, backward) / backward}
        for name, parameter in module.named_parameters()
    ]
    return {
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "flops_per_word": count.total / words,
        "forward_share": forward / count.total,
        "tensors": tensors,
    }
