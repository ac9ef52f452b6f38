"""The section about fine-tuning: where the run started, and what it gained and forgot on the test texts."""

from dataclasses import dataclass
from typing import TypedDict

from pydantic import JsonValue

from lockstep.explain.answer import Chart, Figure, make_figure
from lockstep.explain.formatting import count, number, plural
from lockstep.explain.measures.convergence import FEW_EXAMPLES
from lockstep.explain.pages.charts import draw_bars
from lockstep.explain.reading.json_access import get_dict, get_number, list_dicts
from lockstep.explain.reading.record import Record

TEXTS = {"new": "new test text", "old": "old test text"}
WORSE = 1.25
"""The vocabulary fits badly if words of the new text have this many times the pieces of the old text's."""
METRICS = {"sacrebleu": "sacreBLEU", "chrf": "chrF"}


class FineTuningFacts(TypedDict):
    """Fine-tuning in the JSON of a report."""

    start: str
    text: str
    scores: list[dict[str, JsonValue]]


@dataclass(frozen=True)
class FineTuning:
    """What is known about a run that started with the weights of another one."""

    start: str  # the place that train.start_from named
    text: str
    scores: list[dict[str, JsonValue]]
    figures: list[Figure]
    charts: list[Chart]

    def facts(self) -> FineTuningFacts:
        return {"start": self.start, "text": self.text, "scores": self.scores}


def make_fine_tuning(record: Record) -> FineTuning | None:
    """Returns None when the run started with random weights."""
    lines = [line for line in record.primary.select_events("run") if "start" in line]
    if not lines:
        return None
    start = get_dict(lines[0]["start"])
    place, step = str(start.get("from")), get_number(start.get("step"))
    tests = record.test_scores or {}
    scores = list_dicts(tests.get("scores"))
    at = f", step {count(step)}" if step is not None else ""
    is_text = record.unit == "target words"
    parts = "weights and the vocabulary" if is_text else "weights"
    sentences = [f"The run started with the {parts} of {place}{at}."]
    sentences += [sentence for text in TEXTS if (sentence := _describe_change(scores, text))]
    missing = tests.get("missing")
    sentences += [str(sentence) for sentence in missing] if isinstance(missing, list) else []
    pieces = get_dict(tests.get("pieces_per_word"))
    new, old = get_number(pieces.get("new")), get_number(pieces.get("old"))
    if new and old and new > WORSE * old:
        sentences.append(
            f"The vocabulary fits the new text badly: it cuts a word into {number(new, 2)} pieces, of the old text into "
            f"{number(old, 2)}. So a step covers fewer words, and a run with a vocabulary of its own may overtake this one."
        )
    if known := get_number(tests.get("known")):
        trained = f"{plural(known, 'sentence')} of the old test text"
        sentences.append(f"Its score is too good: {trained} occurred in the training text of this run.")
    if is_text and not tests:
        sentences.append("The test texts have not been scored yet: that is done when the run has finished.")
    chart = _draw(scores, place)
    return FineTuning(place, " ".join(sentences), scores, _list_figures(scores, place), [chart] if chart else [])


def _round(score: float) -> str:
    return f"{score:.1f}"


def _find(scores: list[dict[str, JsonValue]], text: str, model: str, metric: str = "sacrebleu") -> float | None:
    for score in scores:
        if score.get("text") == text and score.get("model") == model:
            return get_number(score.get(metric))
    return None


def _describe_change(scores: list[dict[str, JsonValue]], text: str) -> str | None:
    """`On the old test text sacreBLEU fell from 36.2 to 30.1 (chrF from 61 to 55): the model has forgotten some of it.`"""
    before, after = (_find(scores, text, model) for model in ("start", "result"))
    if after is None:
        return None
    if before is None:
        return f"On the {TEXTS[text]} sacreBLEU is {_round(after)}.{_describe_doubt(scores, text)}"
    verb = "rose" if after > before else "fell" if after < before else "stayed"
    change = f"{verb} from {_round(before)} to {_round(after)}" if verb != "stayed" else f"stayed at {_round(after)}"
    chrf = [_find(scores, text, model, "chrf") for model in ("start", "result")]
    detail = (
        f" (chrF from {_round(chrf[0])} to {_round(chrf[1])})" if chrf[0] is not None and chrf[1] is not None else ""
    )
    how_much = "most" if after < before / 2 else "some"
    forgotten = f": the model has forgotten {how_much} of what it knew" if text == "old" and after < before else ""
    return f"On the {TEXTS[text]} sacreBLEU {change}{detail}{forgotten}.{_describe_doubt(scores, text)}"


def _describe_doubt(scores: list[dict[str, JsonValue]], text: str) -> str:
    sentences = _find(scores, text, "result", "sentences")
    if sentences is None or sentences >= FEW_EXAMPLES:
        return ""
    return f" It has only {plural(sentences, 'sentence')}: a difference of a few points may be chance."


def _list_figures(scores: list[dict[str, JsonValue]], place: str) -> list[Figure]:
    figures = []
    for score in scores:
        model = "this run" if score.get("model") == "result" else place
        sentences = plural(get_number(score.get("sentences")) or 0, "sentence")
        listed = score.get("signatures")
        signatures = listed if isinstance(listed, list) else []
        for (metric, title), signature in zip(METRICS.items(), signatures, strict=False):
            value = get_number(score.get(metric))
            if value is not None:
                name = f"{title} of {model}, {TEXTS.get(str(score.get('text')), '')}"
                figures.append(make_figure(name, value, _round, f"{sentences}, beam search of the run, {signature}"))
    return figures


def _draw(scores: list[dict[str, JsonValue]], place: str) -> Chart | None:
    names = {"start": place, "result": "this run"}
    rows = [(text, model, _find(scores, text, model)) for text in TEXTS for model in names]
    known = [(f"{TEXTS[text]}: {names[model]}", value, model) for text, model, value in rows if value is not None]
    if not known:
        return None
    labels, values = [label for label, _, _ in known], [value for _, value, _ in known]
    texts = [_round(value) for value in values]
    listed = ", ".join(f"{label} {text}" for label, text in zip(labels, texts, strict=True))
    colours = ["--green" if model == "result" else "--blue" for _, _, model in known]
    return draw_bars("fine-tuning", "sacreBLEU before and after", listed, labels, values, texts, "sacreBLEU", colours)
