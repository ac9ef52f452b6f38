"""What `lockstep evaluate` prints: it fits a terminal, says what to know about the scores, and JSON has the same facts."""

import json

import pytest

from lockstep.cli.evaluate_output import SystemFacts, SystemOutput, format_lines, make_json
from lockstep.translate.score_texts import (
    ParallelText,
    ScoringSettings,
    TextEvaluation,
    evaluate_texts,
    prepare_scoring,
)

FACTS: SystemFacts = {
    "sacrebleu": 34.34,
    "signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
    "loss": 1.137,
    "Eval_BLEU_Score": 0.4309,
    "sentences": 3,
    "seconds": 43.0,
    "words_per_second": 1234.5,
    "model": "/home/somebody/projects/translation/runs/demo/checkpoints/step-00000300/model",
    "beam": 4,
    "length_penalty": 0.6,
    "limit": 250,
    "limited": 0,
    "too_long": 0,
    "precision": "fp32",
    "trained_in": "bf16",
}
TEXT = ParallelText(
    "test text of /home/somebody/projects/translation/runs/a-run-with-a-very-long-name-indeed",
    ["one two three", "a sentence of several words " * 12, "the end"],
    ["eins zwei drei", "ein Satz aus mehreren Wörtern " * 12, "das Ende"],
    ("en", "de"),
)
TRANSLATIONS = (["eins zwei vier", "ein Satz aus vielen Wörtern " * 12, ""], ["eins drei", "ein Satz", "das Ende"])


def score(models: int, settings: ScoringSettings) -> TextEvaluation:
    return evaluate_texts(TEXT, TRANSLATIONS[:models], prepare_scoring(TEXT, settings), settings)


def make_systems(models: int, **facts: object) -> list[SystemOutput]:
    changed: SystemFacts = FACTS | facts  # type: ignore[assignment]
    return [SystemOutput(f"runs/{name}", own, changed) for name, own in zip("ab", TRANSLATIONS[:models], strict=False)]


@pytest.mark.parametrize("models", [1, 2])
@pytest.mark.parametrize("resamples", [0, 10000])
def test_lines_fit_80_columns(models: int, resamples: int) -> None:
    pytest.importorskip("sacremoses")
    settings = ScoringSettings("tokenized-lowercase", resamples)
    systems = make_systems(models, too_long=1200, limited=3, split=17)
    lines = list(format_lines(TEXT, systems, score(models, settings)))
    assert [line for line in lines if len(line) > 80] == []
    assert any("95 % interval" in line for line in lines) == bool(resamples)
    assert sum("only comparable with papers" in line for line in lines) == 1


def test_lines_say_what_to_know_about_the_scores() -> None:
    settings = ScoringSettings(resamples=0)
    shown = "\n".join(format_lines(TEXT, make_systems(1, too_long=1200), score(1, settings)))
    assert "  computed in fp32; evaluations in training are in bf16 and differ a little" in shown.splitlines()
    assert "1,200 sentences have more than 250 pieces" in shown
    assert "words/s" in shown
    silent = "\n".join(format_lines(TEXT, make_systems(1, trained_in="fp32"), score(1, settings)))
    assert "pieces, more than" not in silent
    assert "computed in" not in silent


def test_a_model_without_torch_has_no_loss() -> None:
    facts: SystemFacts = {"model": "edge", "beam": 4, "length_penalty": 1.0, "seconds": 1.0, "words_per_second": 2000.0}
    lines = list(format_lines(TEXT, [SystemOutput("edge", TRANSLATIONS[0], facts)], score(1, ScoringSettings())))
    assert not any(line.startswith("  loss") for line in lines)
    assert any("2,000 words/s" in line for line in lines)


def test_two_models_are_side_by_side_with_a_sentence() -> None:
    scored = score(2, ScoringSettings(resamples=100))
    shown = "\n".join(format_lines(TEXT, make_systems(2), scored))
    assert scored.differences[0].describe() in " ".join(shown.split())
    assert "Where they differ most, by chrF" in shown
    assert "    second       das Ende" in shown


def test_json_of_one_model_has_its_scores_at_the_top() -> None:
    pytest.importorskip("sacremoses")
    scored = score(1, ScoringSettings("tokenized-lowercase", 100, 2))
    facts = json.loads(json.dumps(make_json(TEXT, make_systems(1), scored)))
    assert {"sacrebleu", "chrf", "bleu_tokenized_lowercase", "loss", "Eval_BLEU_Score", "by_length"} <= facts.keys()
    assert facts["sacrebleu"] == facts["scores"]["sacrebleu"]["value"]
    assert facts["scores"]["chrf"]["margin"] > 0
    assert [row["words"] for row in facts["by_length"]] == ["1-10", "over 50"]
    assert [one["line"] for one in facts["worst"]] == [3, 1]


def test_json_of_two_models_has_both_and_their_differences() -> None:
    scored = score(2, ScoringSettings(resamples=100))
    facts = json.loads(json.dumps(make_json(TEXT, make_systems(2), scored)))
    assert [model["place"] for model in facts["models"]] == ["runs/a", "runs/b"]
    values = [model["sacrebleu"] for model in facts["models"]]
    assert facts["differences"][0]["value"] == values[1] - values[0]
    assert 0 < facts["differences"][0]["p_value"] <= 1
    assert {"is_significant", "sentence"} <= facts["differences"][0].keys()
    assert facts["most_different"][0]["translations"] == ["", "das Ende"]
