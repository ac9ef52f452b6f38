"""Training on images from start to end: the steps of field report 4, and a report in units of images."""

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from conftest import Tiny, lockstep, steps
from lockstep.data.images.image_set import ImageCorpus
from lockstep.run.journal import read


@pytest.fixture(scope="module")
def run(tiny_images: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten steps, and ten more in the same folder."""
    run = tmp_path_factory.mktemp("images") / "run"
    for total in (10, 20):
        shown = lockstep("train", tiny_images.config, f"train.steps={total}", "train.evaluate_every=4", "--run", run)
        assert "on the test set" in shown.stdout
        assert "best validation" not in shown.stdout
    return run


def test_more_steps_continue_from_the_last_one(run: Path) -> None:
    assert {line["step"]: line["attempt"] for line in steps(run)} == {n: 1 + (n > 10) for n in range(1, 21)}


def test_the_report_counts_images(run: Path) -> None:
    text = (run / "report.md").read_text()
    assert "60 images of 32 x 32 pixels and 3 channels, 10 classes" in text
    assert "measured on the test images" in text
    assert "images per second" in text
    assert "accuracy" in text
    assert "passes through the images" in text
    text = text.partition("- python ")[0]  # versions of libraries follow, and the config
    for other in ("target word", "BLEU", "sentence", "translat"):
        assert other not in text, f"{other}: {text[max(0, text.index(other) - 80) :][:160]}"
    assert "accuracy on the test set was" in text
    page = (run / "report.html").read_text()
    assert "nats per image" in page
    assert "target word" not in page


def test_evaluate_gives_the_saved_model_the_score_that_it_had_in_training(run: Path) -> None:
    shown = lockstep("evaluate", run, "--set", "test").stdout
    assert "20 images" in shown
    assert "chosen on these images" in shown
    scores = json.loads(lockstep("evaluate", run, "--checkpoint", "last", "--json").stdout)
    journalled = read(run / "journal").of("evaluation")[-1]["scores"]
    assert scores["accuracy"] == journalled["accuracy"]
    assert scores["loss"] == pytest.approx(journalled["loss"], rel=1e-5)
    assert not scores["chosen_on_this_set"]
    assert "--beam" in lockstep("evaluate", run, "--beam", 2, code=2).stderr
    assert "without data.hold_out" in lockstep("evaluate", run, "--set", "validation", code=2).stderr


@pytest.mark.slow
def test_a_corpus_made_from_image_files_can_be_trained_on(tmp_path: Path) -> None:
    for number in range(30):
        for kind, shade in (("dark", 30), ("light", 220)):
            (tmp_path / "shades" / kind).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (30, 20), (shade + number % 9,) * 3).save(tmp_path / "shades" / kind / f"{number}.png")
    corpus, run = tmp_path / "corpus", tmp_path / "run"
    output = lockstep("data", "pictures", tmp_path / "shades", "--to", corpus, "--size", 16).stdout
    assert "images of 2 classes" in output
    assert "dark" in lockstep("data", "describe", corpus).stdout
    smaller = ("model.depth=8", "model.channels=4", "train.steps=40", "train.precision=fp32", "train.threads=1")
    lockstep("train", corpus / "corpus.yaml", *smaller, "--workers", 2, "--run", run)
    result = json.loads(lockstep("evaluate", run, "--json").stdout)
    assert result["accuracy"] == 100.0
    scores = [line["scores"] | {"step": line["step"]} for line in read(run / "journal").of("evaluation")]
    chosen = min(scores, key=lambda one: (-one["accuracy"], one["loss"]))["step"]
    assert f"step-{chosen:08d}" in result["model"], "of equal scores, the one with the lowest loss"
    shown = lockstep("classify", run, tmp_path / "shades" / "light" / "1.png").stdout
    assert "light" in shown
    assert "images of 16 x 16 pixels, 3 channels, 2 classes" in lockstep("data", "describe", run).stdout


def test_image_files_are_classified(run: Path, tiny_images: Tiny, tmp_path: Path) -> None:
    corpus = ImageCorpus.open(tiny_images.folder / "images")
    test, names = corpus.sets["test"], [tmp_path / f"{number}.png" for number in range(20)]
    for image, name in zip(test.images, names, strict=True):
        Image.fromarray(image.transpose(1, 2, 0)).save(name)
    results = json.loads(lockstep("classify", run, *names, "--checkpoint", "last", "--top", 3, "--json").stdout)
    assert [one["picture"] for one in results] == [str(name) for name in names]
    right = sum(
        one["classes"][0]["class"] == corpus.classes[label] for one, label in zip(results, test.labels, strict=True)
    )
    assert 100 * right / 20 == read(run / "journal").of("evaluation")[-1]["scores"]["accuracy"]
    shares = [guess["probability"] for guess in results[0]["classes"]]
    assert len(shares) == 3
    assert shares == sorted(shares, reverse=True)
    Image.new("L", (100, 40)).save(tmp_path / "grey.jpg")
    assert "brightness" in lockstep("classify", run, tmp_path / "grey.jpg").stdout
    (tmp_path / "text.png").write_text("no picture")
    assert (
        "text.png cannot be read: it is damaged or not an image."
        in lockstep("classify", run, tmp_path / "text.png", code=2).stderr
    )
    assert "No such file" in lockstep("classify", run, tmp_path / "none.png", code=2).stderr
    (model,) = (run / "checkpoints").glob("step-*20/model")
    shutil.copytree(model, tmp_path / "model")
    assert "brightness" in lockstep("classify", tmp_path / "model", tmp_path / "grey.jpg").stdout
    (tmp_path / "model" / "model.safetensors").write_bytes(b"cut off")
    damaged = lockstep("classify", tmp_path / "model", tmp_path / "grey.jpg", code=1).stderr
    assert f"The model in {tmp_path / 'model'} cannot be used" in damaged
    (tmp_path / "model" / "config.json").write_text('{"vocabulary_size": 300}')
    assert "classifies nothing" in lockstep("classify", tmp_path / "model", tmp_path / "grey.jpg", code=2).stderr


def test_text_commands_say_that_there_is_no_text(run: Path, tiny_images: Tiny) -> None:
    assert "Only text is prepared" in lockstep("prepare", tiny_images.config, code=2).stderr
    missing = lockstep("train", tiny_images.config, "data.images=nowhere", "--run", run.parent / "other", code=2)
    assert "There are no images in nowhere" in missing.stderr
    assert "translates nothing" in lockstep("translate", run, code=2).stderr
