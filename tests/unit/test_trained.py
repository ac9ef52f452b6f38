"""Verdicts on training and overfitting, on runs made for each."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lockstep.explain.answers import trained
from lockstep.explain.evidence import Evidence
from lockstep.explain.measures.convergence import judge_convergence
from lockstep.explain.measures.loss_gap import judge_overfitting, measure_training_loss
from lockstep.explain.reading.record import Record
from lockstep.explain.report import make
from madeup import MadeUp


def write_run(
    folder: Path,
    last: int,
    every: int,
    validation: Callable[[float], float],
    training: Callable[[float], float] | None = None,
    bleu: Callable[[float], float] = lambda step: 30.0 - 200.0 * step**-0.7,
    scatter: float = 0.0,
    seed: int = 0,
) -> Record:
    random = np.random.default_rng(seed)
    run = MadeUp(folder)
    run.config(train={"steps": last, "label_smoothing": 0.0}, model={"dropout": 0.0})
    scores = {}
    for step in range(every, last + 1, every):
        off = scatter * random.standard_normal(2)
        scores[step] = {"loss": validation(step) + off[0], "sacrebleu": max(0.0, bleu(step) + 20 * off[1])}
    run.launch(range(1, last + 1), workers=1, loss=lambda step: (training or validation)(step), scores=scores)
    return Record.open(folder)


def plateau(step: float) -> float:
    return 1.5 + 4.0 * float(np.exp(-step / 60.0))


def flat_bleu(step: float) -> float:
    return 30.0 * (1.0 - float(np.exp(-step / 60.0)))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("every", [100, 50, 20])
def test_a_plateau_is_trained(tmp_path: Path, seed: int, every: int) -> None:
    convergence = judge_convergence(write_run(tmp_path, 600, every, plateau, bleu=flat_bleu, scatter=0.004, seed=seed))
    assert convergence.verdict == "trained"
    assert convergence.loss.gain is not None
    assert convergence.loss.gain.value < 0.02


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("every", [100, 50, 20])
def test_a_run_that_is_too_short_is_still_learning(tmp_path: Path, seed: int, every: int) -> None:
    convergence = judge_convergence(
        write_run(tmp_path, 400, every, lambda s: 1.0 + 30 * s**-0.5, scatter=0.01, seed=seed)
    )
    assert convergence.verdict == "still learning"
    assert convergence.loss.gain is not None
    truth = 30 * (400**-0.5 - 800**-0.5)
    assert convergence.loss.gain.value == pytest.approx(truth, rel=0.35)


def test_few_evaluations_are_too_early_to_say(tmp_path: Path) -> None:
    record = write_run(tmp_path, 300, 100, lambda s: 1.0 + 30 * s**-0.5)
    convergence = judge_convergence(record)
    assert convergence.verdict == "too early to say"
    assert "3 evaluations" in convergence.reason
    answer = trained.answer(Evidence(record))
    assert any(figure.text == "not measured" for figure in answer.figures)


def test_a_run_without_evaluations_is_too_early_to_say(tmp_path: Path) -> None:
    record = write_run(tmp_path, 50, 100, plateau)
    assert judge_convergence(record).verdict == "too early to say"
    assert judge_overfitting(record).verdict == "too early to say"
    assert trained.answer(Evidence(record)).charts == []


def test_a_flat_loss_of_guessing_is_not_trained(tmp_path: Path) -> None:
    """ln(1000) is 6.9: nothing was learned, however flat the curve is."""
    convergence = judge_convergence(write_run(tmp_path, 400, 50, lambda s: 6.85, bleu=lambda s: 0.0))
    assert convergence.verdict == "too early to say"
    assert "random guess" in convergence.reason


def test_inside_the_warmup_it_is_too_early_to_say(tmp_path: Path) -> None:
    write_run(tmp_path, 400, 50, plateau)
    MadeUp(tmp_path).config(schedule={"name": "constant", "peak": 0.001, "factor": 2.0, "warmup": 400, "floor": 0.0})
    convergence = judge_convergence(Record.open(tmp_path))
    assert convergence.verdict == "too early to say"
    assert "warm-up" in convergence.reason


def test_a_score_that_still_rises_beats_a_flat_loss(tmp_path: Path) -> None:
    convergence = judge_convergence(write_run(tmp_path, 600, 50, plateau, bleu=lambda s: 4.0 * float(np.log2(s))))
    assert convergence.verdict == "still learning"
    assert "sacreBLEU" in convergence.reason


@pytest.mark.parametrize("seed", range(5))
def test_a_validation_loss_that_rises_while_the_training_loss_falls_is_overfitting(tmp_path: Path, seed: int) -> None:
    def validation(step: float) -> float:
        return 2.0 + 30.0 / step + 0.002 * max(0.0, step - 200)

    record = write_run(tmp_path, 600, 50, validation, lambda s: 0.1 + 40.0 / s, flat_bleu, 0.01, seed)
    gap = judge_overfitting(record)
    assert gap.verdict == "overfitting"
    assert gap.best is not None
    assert 150 <= gap.steps[gap.best] <= 300
    assert gap.rise == pytest.approx(validation(600) / validation(200) - 1, rel=0.25)
    assert judge_convergence(record).verdict != "still learning"


@pytest.mark.parametrize("seed", range(10))
def test_a_plateau_that_scatters_is_not_overfitting(tmp_path: Path, seed: int) -> None:
    record = write_run(tmp_path, 600, 20, plateau, plateau, scatter=0.02, seed=seed)
    assert judge_overfitting(record).verdict == "no overfitting"


def test_a_training_loss_that_leaves_a_flat_validation_loss_behind_widens_the_gap(tmp_path: Path) -> None:
    record = write_run(tmp_path, 600, 50, plateau, lambda s: 1.6 - 0.002 * s)
    assert judge_overfitting(record).verdict == "the gap widens"


def test_the_gap_is_validation_minus_the_training_loss_before_it(tmp_path: Path) -> None:
    gap = judge_overfitting(write_run(tmp_path, 100, 50, lambda s: 3.0, lambda s: 1.0 if s > 75 else 2.0))
    assert gap.gap.tolist() == pytest.approx([1.0, 2.0])


def test_losses_of_single_workers_are_averaged(tmp_path: Path) -> None:
    run = MadeUp(tmp_path, scope="worker")
    run.launch(range(1, 21), workers=2, scores={10: {"loss": 2.0}, 20: {"loss": 1.9}})
    path = tmp_path / "journal" / "worker-0001.jsonl"
    lines = path.read_text().replace('"loss": 7.5,', '"loss": 9.5,')
    path.write_text(lines)
    steps, losses = measure_training_loss(Record.open(tmp_path))
    assert steps[0] == 1
    assert losses[0] == pytest.approx(8.5)


def test_a_learning_rate_that_has_decayed_to_zero_is_mentioned(tmp_path: Path) -> None:
    write_run(tmp_path, 400, 50, lambda s: 1.0 + 30 * s**-0.5)
    path = tmp_path / "journal" / "worker-0000.jsonl"
    lines = path.read_text().splitlines()
    last = max(i for i, line in enumerate(lines) if '"kind": "step"' in line)
    lines[last] = lines[last].replace('"lr": 0.001', '"lr": 0.0')
    path.write_text("\n".join(lines) + "\n")
    record = Record.open(tmp_path)
    convergence = judge_convergence(record)
    assert convergence.rate_spent
    assert "new run" in trained.answer(Evidence(record)).text


def test_evaluations_without_a_loss_are_mentioned(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 101), workers=1, scores={step: {"hits": step} for step in range(10, 101, 10)}, metric="hits")
    report = make(tmp_path)
    for number in (2, 3):
        answer = report.answers[number - 1]
        assert "the evaluations report no loss" in answer.text
        assert "there are" not in answer.text


def test_advice_for_images_names_augmentation_and_not_dropout(tmp_path: Path) -> None:
    write_run(tmp_path, 600, 50, lambda s: 2.0 + 0.002 * abs(s - 200), lambda s: 0.1 + 40.0 / s, flat_bleu)
    augment = {"pad": 4, "flip": False, "cutout": 0}
    smooth = {"steps": 600, "label_smoothing": 0.0}
    MadeUp(tmp_path).config(data={"images": "here", "augment": augment}, train=smooth, model={"dropout": None})
    report = make(tmp_path)
    overfitting = report.answers[2]
    assert overfitting.short == "overfitting"
    assert "The training loss is measured with augmented images, the validation loss without" in overfitting.text
    (stop,) = [one.what for one in report.advice if "stop near step 200" in one.what]
    assert "data.augment.cutout" in stop
    assert "dropout" not in stop


def test_the_answer_says_what_the_scores_leave_out(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.config(train={"steps": 20})
    run.launch(range(1, 21), workers=1, stop=None)
    facts = {"scores": {"loss": 2.0, "sacrebleu": 20.0}, "seconds": 1.0, "best": True, "attempt": 1, "examples": []}
    run.write(0, "evaluation", step=20, **facts, scored=200, available=1014, limited=3)
    text = trained.answer(Evidence(Record.open(tmp_path))).text
    assert "The scores are those of 200 of the 1,014 validation examples." in text
    assert "search.max_words cut the translation or reference of 3 of them" in text


def test_a_verdict_from_few_sentences_is_called_unsure(tmp_path: Path) -> None:
    write_run(tmp_path, 600, 50, plateau, bleu=flat_bleu, scatter=0.004)
    report = make(tmp_path)
    learning = next(sentence for sentence in report.verdict if "trained" in sentence)
    assert learning.endswith("This is not sure: it is judged by only 50 sentences.")
    assert "Each evaluation scores 50 sentences. That is few: the verdict is not sure" in report.answers[1].text
    assert "only 50 sentences: the verdict is not sure" in report.answers[2].text
    assert {report.answers[1].tone, report.answers[2].tone} == {"plain"}


def test_a_verdict_from_many_sentences_says_how_many(tmp_path: Path) -> None:
    write_run(tmp_path, 600, 50, plateau, bleu=flat_bleu, scatter=0.004)
    MadeUp(tmp_path).data(sets={"validation": {"lines": 2000}})
    report = make(tmp_path)
    assert "Each evaluation scores 2,000 sentences." in report.answers[1].text
    assert "not sure" not in " ".join([*report.verdict, report.answers[1].text, report.answers[2].text])


def test_a_trained_model_whose_rate_is_spent_is_promised_no_gain(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.config(train={"steps": 600}, schedule={"name": "linear", "warmup": 0})
    scores = {step: {"loss": plateau(step), "sacrebleu": flat_bleu(step)} for step in range(50, 601, 50)}
    run.launch(range(1, 601), workers=1, loss=plateau, scores=scores, rate=lambda step: 0.001 * (1 - step / 600))
    text = make(tmp_path).answers[1].text
    assert "continuing this run would change little" in text
    assert "such a gain" not in text


def test_evaluations_that_are_left_out_are_counted(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.config(train={"steps": 400}, schedule={"warmup": 50})
    scores = {step: {"loss": plateau(step), "sacrebleu": flat_bleu(step)} for step in range(50, 401, 50)}
    run.launch(range(1, 401), workers=1, scores=scores)
    run.write(0, "evaluation_stopped", step=400, attempt=1, seconds=3.0)
    report = make(tmp_path)
    figures = {figure.name: figure for answer in report.answers[:2] for figure in answer.figures}
    assert figures["best loss"].measured.endswith("of 7 evaluations after the warm-up (1 during it left out)")
    assert figures["evaluation"].measured == "sum of 8 evaluations, and of 1 more, interrupted before the end"


def test_a_curve_with_a_limit_far_beyond_the_scores_is_not_printed(tmp_path: Path) -> None:
    write_run(tmp_path, 600, 50, plateau, bleu=lambda step: 2.8 * step / 600)
    measured = {figure.name: figure.measured for figure in make(tmp_path).answers[1].figures}
    assert "too early to say to which limit" in measured["gain of twice the steps, sacrebleu"]
    assert measured["gain of twice the steps, loss"].startswith("curve ")
