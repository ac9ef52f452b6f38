"""What a step of a model computes, without data and without a clock: its tensors, its arithmetic, and how much of the
backward pass's arithmetic is done when each gradient is complete."""

from functools import partial
from typing import Any

from torch import nn

from lockstep.config import RunConfig
from lockstep.lab.plan.made_up_batch import make_batch
from lockstep.watch.flops import FlopCount

SENTENCES = 4
WORDS = 30
"""Of a made-up sentence, on either side. Attention makes longer sentences cost a little more a word."""


def measure_shape(config: RunConfig) -> dict[str, Any]:
    """One real pass over a few made-up sentences, counted. Facts of a profile, apart from seconds."""
    module, batch = make_batch(config, SENTENCES, WORDS)
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
        "flops_per_word": count.total / batch.target_words,
        "forward_share": forward / count.total,
        "tensors": tensors,
    }
