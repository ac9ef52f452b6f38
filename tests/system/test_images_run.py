"""A whole training on images: field report 4's steps, and a report that speaks of images."""

from pathlib import Path

import pytest

from conftest import Tiny, lockstep, steps


@pytest.fixture(scope="module")
def run(tiny_images: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten steps, and ten more in the same folder."""
    run = tmp_path_factory.mktemp("images") / "run"
    for total in (10, 20):
        lockstep("train", tiny_images.config, f"train.steps={total}", "train.evaluate_every=4", "--run", run)
    return run


def test_more_steps_go_on_from_the_last_one(run: Path) -> None:
    assert {line["step"]: line["attempt"] for line in steps(run)} == {n: 1 + (n > 10) for n in range(1, 21)}


def test_the_report_counts_images(run: Path) -> None:
    text = (run / "report.md").read_text()
    assert "60 images of 32 x 32 points and 3 channels, 10 classes" in text
    assert "those of the test images" in text
    assert "images a second" in text
    assert "accuracy" in text
    assert "passes through the images" in text
    text = text.partition("- python ")[0]  # versions of libraries follow, and the config
    for other in ("target word", "BLEU", "sentence", "translat"):
        assert other not in text, f"{other}: {text[max(0, text.index(other) - 80) :][:160]}"


def test_evaluate_scores_the_saved_model(run: Path) -> None:
    shown = lockstep("evaluate", run, "--set", "test").stdout
    assert "20 images" in shown
    assert "accuracy" in shown


def test_text_commands_say_that_there_is_no_text(run: Path, tiny_images: Tiny) -> None:
    assert "Only text is prepared" in lockstep("prepare", tiny_images.config, code=2).stderr
    missing = lockstep("train", tiny_images.config, "data.images=nowhere", "--run", run.parent / "other", code=2)
    assert "There are no images in nowhere" in missing.stderr
    assert "translates nothing" in lockstep("translate", run, code=2).stderr
