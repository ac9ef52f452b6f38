"""Counts what a step of a model computes, without data and without a clock."""

from functools import partial

from torch import nn

from lockstep.config import RunConfig
from lockstep.lab.plan.made_up_batch import make_batch
from lockstep.lab.plan.overlap import ProfiledTensor
from lockstep.lab.plan.profile import ModelShape
from lockstep.watch.flops import FlopCount

SENTENCES = 4
WORDS = 30
"""Words of a made-up sentence on each side. Attention makes longer sentences slightly more expensive per word."""


def measure_shape(config: RunConfig) -> ModelShape:
    """Runs one forward and backward pass over made-up sentences and counts its arithmetic."""
    module, batch = make_batch(config, SENTENCES, WORDS)
    flops_when_ready: dict[str, int] = {}
    with FlopCount() as count:
        loss = module(batch)
        forward = count.total

        def note_ready(name: str, _: nn.Parameter) -> None:
            flops_when_ready[name] = count.total - forward

        for name, parameter in module.named_parameters():
            parameter.register_post_accumulate_grad_hook(partial(note_ready, name))
        loss.backward()
    backward = max(flops_when_ready.values())
    tensors = tuple(
        ProfiledTensor(name, tuple(parameter.shape), flops_when_ready.get(name, backward) / backward)
        for name, parameter in module.named_parameters()
    )
    return ModelShape(
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        flops_per_word=count.total / batch.target_words,
        forward_share=forward / count.total,
        tensors=tensors,
    )
