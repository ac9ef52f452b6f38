"""Builds the translation model that the settings name. A new model needs a line here and a class in `model_settings.py`."""

from lockstep.models.lstm import Lstm
from lockstep.models.model_settings import LstmSettings, TranslationSettings
from lockstep.models.transformer import Transformer

TranslationModel = Transformer | Lstm
"""A module that maps packed source and target words to a vector for each target word; `logits` turns vectors into scores
of the vocabulary. `translate.search.Decodable` lists what decoding needs."""


def make_model(settings: TranslationSettings, vocabulary_size: int) -> TranslationModel:
    if isinstance(settings, LstmSettings):
        return Lstm(settings, vocabulary_size)
    return Transformer(settings, vocabulary_size)
