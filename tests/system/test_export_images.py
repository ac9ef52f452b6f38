"""`lockstep export` of image classifiers, and `lockstep classify` with the export, without torch."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from conftest import Tiny, lockstep
from lockstep.data.images.image_set import ImageCorpus

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from lockstep.cli.main import main; main()"


@pytest.fixture(scope="module")
def run(tiny_images: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("images") / "run"
    lockstep("train", tiny_images.config, "train.steps=12", "train.evaluate_every=6", "--workers", 1, "--run", run)
    return run


@pytest.fixture(scope="module")
def export(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports") / "made" / "images"
    shown = lockstep("export", run, "--to", folder, "--format", "onnx")
    assert shown.stderr == ""
    assert "Compared with torch on 20 test images: 20 get the same class" in shown.stdout
    assert "The checkpoint was chosen on these images" in shown.stdout
    return folder


@pytest.fixture(scope="module")
def pictures(tiny_images: Tiny, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    paths = [folder / f"{number}.png" for number in range(12)]
    for image, path in zip(ImageCorpus.open(tiny_images.folder / "images").sets["test"].images, paths, strict=False):
        Image.fromarray(image.transpose(1, 2, 0)).save(path)
    Image.new("L", (100, 40), 90).save(folder / "grey.jpg")
    return [*paths, folder / "grey.jpg"]


def test_an_export_without_torch_gives_the_classes_of_the_run(run: Path, export: Path, pictures: list[Path]) -> None:
    ours = json.loads(lockstep("classify", run, *pictures, "--top", 3, "--json").stdout)
    words = [sys.executable, "-c", WITHOUT_TORCH, "classify", str(export), *map(str, pictures), "--top", "3", "--json"]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    theirs = json.loads(result.stdout)
    for one, other in zip(ours, theirs, strict=True):
        assert one["picture"] == other["picture"]
        assert [guess["class"] for guess in one["classes"]] == [guess["class"] for guess in other["classes"]]
        for guess, same in zip(one["classes"], other["classes"], strict=True):
            assert guess["probability"] == pytest.approx(same["probability"], abs=1e-5)
    failed = subprocess.run([*words[:4], str(run), str(pictures[0])], capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert "torch, which is not installed" in failed.stderr


def test_an_export_records_where_it_comes_from(run: Path, export: Path, tiny_images: Tiny) -> None:
    facts = json.loads((export / "lockstep.json").read_text())
    data = json.loads((run / "data.json").read_text())
    assert sorted(path.name for path in export.iterdir()) == ["README.md", "lockstep.json", "model.onnx"]
    assert sorted(path.name for path in export.parent.iterdir()) == ["images"], "nothing is left beside it"
    assert (facts["kind"], facts["run"], facts["shape"]) == ("onnx", "run", [3, 32, 32])
    assert facts["classes"] == data["classes"]
    assert facts["data"]["digest"] == data["digest"]
    assert facts["parity"]["images"] == facts["parity"]["same_class"] == 20
    assert facts["parity"]["largest_difference"] < 1e-5
    scores = json.loads(lockstep("evaluate", run, "--json").stdout)
    assert facts["accuracy"]["percent"] == pytest.approx(scores["accuracy"])
    assert facts["accuracy"]["set"] == "test"
    card = (export / "README.md").read_text()
    assert data["digest"] in card
    assert f"step {facts['step']}" in card
    assert "0. brightness 0" in card


@pytest.mark.slow
def test_an_export_replaces_an_earlier_one_and_nothing_else(run: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "photo.png").touch()
    refused = lockstep("export", run, "--to", tmp_path / "own", code=2)
    assert "has files that are not an export" in refused.stderr
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["photo.png"]
    lockstep("export", run, "--to", tmp_path / "images")
    (tmp_path / "images" / "README.md").write_text("old")
    lockstep("export", run, "--to", tmp_path / "images", "--checkpoint", "last")
    assert json.loads((tmp_path / "images" / "lockstep.json").read_text())["step"] == 12
    assert "old" not in (tmp_path / "images" / "README.md").read_text().splitlines()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "own"]


@pytest.mark.slow
def test_a_model_folder_alone_is_exported_and_compared_on_random_images(run: Path, tmp_path: Path) -> None:
    (model,) = (run / "checkpoints").glob("step-*12/model")
    shutil.copytree(model, tmp_path / "model")
    shown = lockstep("export", tmp_path / "model", "--to", tmp_path / "export").stdout
    assert "Compared with torch on 100 random images: 100 get the same class" in shown
    facts = json.loads((tmp_path / "export" / "lockstep.json").read_text())
    assert (facts["run"], facts["step"], facts["data"], facts["accuracy"]) == ("model", None, None, None)


def test_missing_packages_are_named(run: Path, tmp_path: Path) -> None:
    program = WITHOUT_TORCH.replace("torch", "onnxscript")
    words = [sys.executable, "-c", program, "export", str(run), "--to", str(tmp_path / "export")]
    result = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ)
    assert result.returncode == 2
    assert "needs onnxscript, which is not installed" in result.stderr
    assert "lockstep-train[onnx]" in result.stderr
    assert not (tmp_path / "export").exists()


def test_an_export_of_images_translates_nothing(export: Path) -> None:
    assert "translates nothing" in lockstep("translate", export, "ba", code=2).stderr
