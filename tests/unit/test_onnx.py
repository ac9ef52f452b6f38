"""An ONNX export computes what torch computes, and says so when it is damaged."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import lockstep
from lockstep.cli.export_images import write_card
from lockstep.data.images.onnx_classifier import (
    MODEL,
    ClassifierFacts,
    ImageParity,
    OnnxClassifier,
    open_session,
    read_classifier_facts,
    run_session,
)
from lockstep.errors import LockstepError
from lockstep.export_facts import FACTS
from lockstep.files import digest
from lockstep.models.batch_norm import BatchNorm
from lockstep.models.model_settings import ResNetSettings
from lockstep.models.resnet import ResNet
from lockstep.tasks.classification import ClassificationLoss
from lockstep.tasks.export_onnx import compare_probabilities, write_onnx

SHAPE = (3, 16, 16)


def make_classifier(depth: int) -> ClassificationLoss:
    """A network with random weights and statistics, so that every part of it matters."""
    torch.manual_seed(3)
    model = ResNet(ResNetSettings(name="resnet", depth=depth, channels=4), SHAPE[0], 5)
    for module in model.modules():
        if isinstance(module, BatchNorm):
            torch.nn.init.normal_(module.running_mean, 0.0, 0.1)
            torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
    return ClassificationLoss(model, ([120.0, 110.0, 100.0], [60.0, 61.0, 62.0]), 0.0).eval()


def make_images(count: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, 256, (count, *SHAPE), np.uint8)


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx")
    write_onnx(make_classifier(8), SHAPE, folder / MODEL)
    facts = ClassifierFacts(
        model={"name": "resnet", "depth": 8},
        classes=tuple("abcde"),
        shape=SHAPE,
        parameters=7,
        run="made-up",
        step=None,
        data=None,
        accuracy=None,
        parity=ImageParity(images=1, set="random", same_class=1, largest_difference=0.0),
        bytes=(folder / MODEL).stat().st_size,
        digest=digest(folder / MODEL, "sha256"),
        versions={"torch": "2.13.0"},
    )
    (folder / FACTS).write_text(facts.model_dump_json())
    return folder


@pytest.mark.parametrize("depth", [8, 9])
def test_an_export_computes_the_probabilities_of_torch(
    depth: int, tmp_path: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    classifier = make_classifier(depth)
    write_onnx(classifier, SHAPE, tmp_path / MODEL)
    assert capfd.readouterr() == ("", ""), "nothing is printed"
    assert not list(recwarn)
    assert [path.name for path in tmp_path.iterdir()] == [MODEL], "the weights are in the same file"
    same, difference = compare_probabilities(classifier, tmp_path / MODEL, make_images(50))
    assert same == 50
    assert difference < 1e-5


@pytest.mark.parametrize("count", [1, 2, 300])
def test_an_export_takes_any_number_of_images(export: Path, count: int) -> None:
    probabilities = run_session(open_session(export / MODEL), make_images(count))
    assert probabilities.shape == (count, 5)
    assert np.allclose(probabilities.sum(1), 1.0)


def test_a_comparison_notices_another_model(export: Path) -> None:
    other = make_classifier(8)
    torch.nn.init.normal_(other.model.output.weight)
    assert compare_probabilities(other, export / MODEL, make_images(20))[1] > 0.01


def test_a_loaded_export_says_what_it_is(export: Path) -> None:
    info = lockstep.load(export).info
    assert (info.kind, info.classes, info.image_shape, info.parameters) == ("onnx", tuple("abcde"), SHAPE, 7)
    assert info.bytes == (export / MODEL).stat().st_size
    with pytest.raises(LockstepError, match="only translation models are averaged"):
        lockstep.load(export, average=2)


def test_damage_and_other_exports_give_a_sentence(export: Path, tmp_path: Path) -> None:
    facts = json.loads((export / FACTS).read_text())
    (tmp_path / FACTS).write_text(json.dumps(facts))
    with pytest.raises(LockstepError, match="model.onnx does not match its digest"):
        OnnxClassifier.load(tmp_path)
    (tmp_path / MODEL).write_bytes(b"cut off")
    with pytest.raises(LockstepError, match="model.onnx does not match its digest"):
        OnnxClassifier.load(tmp_path)
    with pytest.raises(LockstepError, match="model.onnx cannot be used"):
        open_session(tmp_path / MODEL)
    for change, message in (
        ({"kind": "ctranslate2"}, "classifies nothing: it is an export of the kind ctranslate2"),
        ({"format": 9}, "another version of Lockstep"),
        ({"classes": 5}, "is damaged: classes is wrong"),
    ):
        (tmp_path / FACTS).write_text(json.dumps(facts | change))
        with pytest.raises(LockstepError, match=message):
            read_classifier_facts(tmp_path)


def test_the_model_card_has_lines_of_python_that_work(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    card = write_card(read_classifier_facts(export), "a licence")
    assert "| licence | a licence |" in card
    assert "Image classifier with 5 classes" in card
    program = card.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    (tmp_path / MODEL).symlink_to(export / MODEL)
    Image.new("RGB", (40, 30), (90, 120, 10)).save("photo.jpg")
    exec(program, {})
    expected = lockstep.load(export).classify("photo.jpg")[0].name
    assert "abcde"[int(capsys.readouterr().out)] == expected
