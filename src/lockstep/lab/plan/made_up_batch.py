"""A model and a batch of made-up sentences, to count the arithmetic of a step without a corpus."""

import numpy as np
import torch

from lockstep.errors import LockstepError
from lockstep.models.make_model import make_model
from lockstep.models.model_settings import TranslationSettings
from lockstep.models.packed import Layout
from lockstep.tasks.make_task import Configuration
from lockstep.tasks.translation import PairBatch, TranslationLoss


def make_batch(config: Configuration, sentences: int, words: int) -> tuple[TranslationLoss, PairBatch]:
    """Returns the model and a batch of `sentences` pairs with `words` words on each side."""
    if config.task_name != "translation" or not isinstance(config.model, TranslationSettings):
        raise LockstepError(
            "The arithmetic of this model cannot be counted without its data.",
            "Measure a profile instead: leave --device out, or use --profile FILE.",
            code=2,
        )
    size = config.data.vocabulary.size
    layout, ids = Layout.from_lengths(np.full(sentences, words)), torch.arange(sentences * words) % size
    batch = PairBatch(ids, layout, ids, ids, layout, len(ids), len(ids))
    return TranslationLoss(make_model(config.model, size), 0.0), batch
