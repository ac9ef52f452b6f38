"""Which model its settings ask for: a new one is an entry here and one in `settings.py`."""

from lockstep.models.lstm import Lstm
from lockstep.models.model_settings import LstmSettings, TranslationSettings
from lockstep.models.transformer import Transformer

TranslationModel = Transformer | Lstm
"""Called with source and target words it returns a vector for each target word, which `output_weight` and `logits` turn
into scores; `translate.search.Decodable` says what decoding needs."""


def make_model(settings: TranslationSettings, vocabulary_size: int) -> TranslationModel:
    if isinstance(settings, LstmSettings):
        return Lstm(settings, vocabulary_size)
    return Transformer(settings, vocabulary_size)
