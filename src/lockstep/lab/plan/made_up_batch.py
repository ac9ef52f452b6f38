"""A model and sentences for it that need no corpus: to count what a step computes."""

import numpy as np
import torch

from lockstep.errors import LockstepError
from lockstep.models.make_model import make_model
from lockstep.models.model_settings import TranslationSettings
from lockstep.models.packed import Layout
from lockstep.tasks.make_task import Configuration
from lockstep.tasks.translation import PairBatch, TranslationLoss


def make_batch(config: Configuration, sentences: int, words: int) -> tuple[TranslationLoss, PairBatch]:
    """All sentences have so many words, on either side."""
    if config.task_name != "translation" or not isinstance(config.model, TranslationSettings):
        raise LockstepError(
            "The arithmetic of this model is not known without its data.",
            "Take a profile of a real run: leave --device out, or give --profile FILE.",
            code=2,
        )
    size = config.data.vocabulary.size
    layout, ids = Layout.from_lengths(np.full(sentences, words)), torch.arange(sentences * words) % size
    batch = PairBatch(ids, layout, ids, ids, layout, len(ids), len(ids))
    return TranslationLoss(make_model(config.model, size), 0.0), batch
