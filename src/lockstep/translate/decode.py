"""From packed source sentences to detokenized text and its BLEU. Evaluation and `translate` share this code."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.models.packed import Layout
from lockstep.translate.search import Decodable, search
from lockstep.translate.search_settings import SearchSettings


def search_packed(
    model: Decodable[Any, Any],
    source: Tensor,
    layout: Layout,
    settings: SearchSettings,
    vocabulary: Vocabulary,
    on_position: Callable[[int], None] = lambda done: None,
) -> list[list[int]]:
    """Returns the pieces of the translations of packed source sentences, each of which has its end mark. The types of
    memory and cache are free, because `model` may be a union of models. For `on_position` see `search`."""
    return search(model, source, layout.lengths, settings, vocabulary.bos, vocabulary.eos, on_position)


def translate_packed(
    model: Decodable[Any, Any], source: Tensor, layout: Layout, settings: SearchSettings, vocabulary: Vocabulary
) -> list[str]:
    """Returns the translations of packed source sentences, each of which has its end mark."""
    return vocabulary.decode(search_packed(model, source, layout, settings, vocabulary))


def compute_bleu(hypotheses: list[str], references: list[str]) -> tuple[float, str]:
    """Returns sacreBLEU (13a tokenization, cased) and its signature."""
    from sacrebleu.metrics import BLEU

    metric = BLEU()
    score = metric.corpus_score(hypotheses, [references])
    return float(score.score), str(metric.get_signature())


def compute_chrf(hypotheses: list[str], references: list[str]) -> tuple[float, str]:
    """Returns chrF2 (characters, 0 to 100) and its signature."""
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    score = metric.corpus_score(hypotheses, [references])
    return float(score.score), str(metric.get_signature())
