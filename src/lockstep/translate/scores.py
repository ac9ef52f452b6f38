"""Scores of translated text by sacreBLEU: BLEU and chrF, with signature, bootstrap interval and paired test. No torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lockstep.errors import LockstepError, missing

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

TextFormat = Literal["plain", "tokenized-lowercase"]
LEAST_RESAMPLES = 40
"""sacreBLEU leaves out one fortieth of the resamples at either end of a 95 % interval."""
BYTES_PER_DRAW = 80
"""What sacreBLEU keeps in memory for each sentence of each resample: its index and the counts of chrF."""


@dataclass(frozen=True)
class CorpusScore:
    """A score of a whole text, from 0 to 100. Its 95 % interval is `mean` ± `margin`, as sacreBLEU writes it."""

    value: float
    signature: str
    mean: float | None = None  # of the bootstrap resamples
    margin: float | None = None


@dataclass(frozen=True)
class TextMetric:
    """A metric of sacreBLEU, and how both texts are prepared for it."""

    key: str  # in JSON
    title: str
    metric: "Metric"
    prepare: Callable[[Sequence[str]], list[str]] = list
    preparation: str = ""  # what `prepare` does, added to the signature
    note: str = ""  # what the score can be compared with, unless it is the usual one


def compute_bleu(hypotheses: list[str], references: list[str]) -> tuple[float, str]:
    """Returns sacreBLEU (13a tokenization, cased) and its signature."""
    from sacrebleu.metrics import BLEU

    metric = BLEU()
    score = metric.corpus_score(hypotheses, [references])
    _clear_tokenizers()
    return float(score.score), str(metric.get_signature())


def _clear_tokenizers() -> None:
    """Empties sacreBLEU's caches of tokenized sentences. They are those of all metrics of a process and never find a
    sentence again, because a metric finds only its own: in a training they would grow by every evaluation, to 100 MB."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
    from sacrebleu.tokenizers.tokenizer_re import TokenizerRegexp

    for tokenizer in (Tokenizer13a, TokenizerRegexp):
        tokenizer.__call__.cache_clear()


def compute_chrf(hypotheses: list[str], references: list[str]) -> tuple[float, str]:
    """Returns chrF2 (characters, 0 to 100) and its signature."""
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    score = metric.corpus_score(hypotheses, [references])
    return float(score.score), str(metric.get_signature())


def list_metrics(text_format: TextFormat, language: str) -> list[TextMetric]:
    """Returns sacreBLEU and chrF. `tokenized-lowercase` adds BLEU of lower-cased Moses tokens in the target language."""
    from sacrebleu.metrics import BLEU, CHRF

    metrics = [TextMetric("sacrebleu", "sacreBLEU", BLEU()), TextMetric("chrf", "chrF", CHRF())]
    if text_format == "tokenized-lowercase":
        tokens = BLEU(tokenize="none", lowercase=True, force=True)
        tokenize, preparation = _make_moses(language)
        note = "tokenized, lower-cased BLEU: only comparable with papers that score so"
        metrics.append(TextMetric("bleu_tokenized_lowercase", "tokenized BLEU", tokens, tokenize, preparation, note))
    return metrics


def _make_moses(language: str) -> tuple[Callable[[Sequence[str]], list[str]], str]:
    """Returns a function that lower-cases, normalizes and tokenizes sentences in the order of the published Multi30k
    files, and its name."""
    try:
        import sacremoses
    except ImportError:
        raise missing("--format tokenized-lowercase", "sacremoses", "edge") from None
    code = language.lower().replace("_", "-").split("-")[0] or "en"
    normalizer, tokenizer = sacremoses.MosesPunctNormalizer(lang=code), sacremoses.MosesTokenizer(lang=code)

    def tokenize(sentences: Sequence[str]) -> list[str]:
        return [tokenizer.tokenize(normalizer.normalize(one.lower()), return_str=True) for one in sentences]

    return tokenize, f"moses:{code}-{sacremoses.__version__}"


def check_resamples(sentences: int, resamples: int) -> None:
    """Raises if there are too few resamples for an interval, or too many for the memory of this machine."""
    import psutil

    if 0 < resamples < LEAST_RESAMPLES:
        remedy = "The usual number is 1000; 0 leaves the intervals out."
        raise LockstepError(f"A 95 % interval needs {LEAST_RESAMPLES} resamples or more.", remedy, code=2)
    needed, available = sentences * resamples * BYTES_PER_DRAW, psutil.virtual_memory().available
    if needed > available:
        what = f"{resamples:,} resamples of {sentences:,} sentences need {needed / 1e9:.1f} GB of memory"
        remedy = (
            f"Lower --bootstrap to {max(LEAST_RESAMPLES, available // (sentences * BYTES_PER_DRAW) // 2):,}, or use 0."
        )
        raise LockstepError(f"{what}, and {available / 1e9:.1f} GB are free.", remedy, code=2)


def score_systems(
    metric: TextMetric, systems: Sequence[Sequence[str]], references: Sequence[str], resamples: int
) -> tuple[list[CorpusScore], float | None]:
    """Returns the score of each system's translations. With `resamples`, scores have an interval, and for two systems
    there is the p-value of sacreBLEU's paired bootstrap test, else None."""
    from sacrebleu.significance import PairedTest, Result

    prepared, wanted = [metric.prepare(system) for system in systems], [metric.prepare(references)]
    if not resamples:
        values = [float(metric.metric.corpus_score(system, wanted).score) for system in prepared]
        signature = _sign(metric, metric.metric.get_signature())
        return [CorpusScore(value, signature) for value in values], None
    named: list[tuple[str, Sequence[str]]] = [(str(i), system) for i, system in enumerate(prepared)]
    test = PairedTest(named, {metric.key: metric.metric}, wanted, test_type="bs", n_samples=resamples)
    signatures, columns = test()
    ((name, own),) = signatures.items()
    results = [result for result in columns[name] if isinstance(result, Result)]
    signature = _sign(metric, own)
    scores = [CorpusScore(float(one.score), signature, _to_float(one.mean), _to_float(one.ci)) for one in results]
    return scores, _to_float(results[-1].p_value)


def _sign(metric: TextMetric, signature: object) -> str:
    return "|".join(filter(None, [str(signature), metric.preparation]))


def _to_float(value: float | None) -> float | None:
    """Returns a plain float: sacreBLEU computes with numpy's."""
    return None if value is None else float(value)
