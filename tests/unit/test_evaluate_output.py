"""What `lockstep evaluate` prints fits a terminal, and says when sentences are longer than any in training."""

import pytest

from lockstep.cli import evaluate_command

RESULT: dict[str, object] = {
    "sacrebleu": 34.34,
    "signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
    "loss": 1.137,
    "Eval_BLEU_Score": 0.4309,
    "sentences": 2500,
    "seconds": 43.0,
    "model": "runs/demo/checkpoints/step-00000300/model",
    "beam": 4,
    "length_penalty": 0.6,
    "limit": 250,
    "limited": 0,
    "precision": "fp32",
    "trained_in": "bf16",
}


@pytest.mark.parametrize("too_long", [0, 1200])
def test_scores_fit_80_columns(
    too_long: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluate_command, "evaluate_run", lambda *_: RESULT | {"too_long": too_long})
    evaluate_command.evaluate("runs/demo")
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "  computed in fp32; evaluations in training are in bf16 and differ a little" in lines
    assert any("1,200 sentences have more than 250 pieces" in line for line in lines) == bool(too_long)
