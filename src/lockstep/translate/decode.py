"""From source sentences to detokenised text and its score: the one decoder behind evaluation and `translate`."""

from typing import Any

from torch import Tensor

from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.models.packed import Layout
from lockstep.translate.search import Decodable, search
from lockstep.translate.search_settings import SearchSettings


def translate_packed(
    model: Decodable[Any, Any], source: Tensor, layout: Layout, settings: SearchSettings, vocabulary: Vocabulary
) -> list[str]:
    """Translations of packed source sentences (each with its end mark)."""
    return vocabulary.decode(search(model, source, layout.lengths, settings, vocabulary.bos, vocabulary.eos))


def bleu(hypotheses: list[str], references: list[str]) -> tuple[float, str]:
    """sacreBLEU (13a tokenisation, cased) and its signature."""
    from sacrebleu.metrics import BLEU

    metric = BLEU()
    score = metric.corpus_score(hypotheses, [references])
    return float(score.score), str(metric.get_signature())
