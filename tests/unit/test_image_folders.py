"""Folders of image files become a corpus: every image once, classes mixed, always the same test images."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from lockstep.config import build
from lockstep.data.catalog import entries
from lockstep.data.catalog.get import get
from lockstep.data.images.image_folders import find_images, make_images
from lockstep.data.images.image_set import ImageCorpus, read_image
from lockstep.errors import LockstepError

SHADES = {"dark": 20, "light": 220}


def draw(folder: Path, name: str, shade: int, size: tuple[int, int] = (20, 12)) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade, shade, 255 - shade)).save(folder / name)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    for number in range(40):
        for kind, shade in SHADES.items():
            draw(tmp_path / "mixed" / kind, f"{number}.{'png' if number % 2 else 'JPG'}", shade)
    (tmp_path / "mixed" / "dark" / "notes.txt").write_text("not an image")
    return tmp_path / "mixed"


def test_every_image_file_becomes_an_image_of_its_class(mixed: Path, tmp_path: Path) -> None:
    seen = list[tuple[str, int, int]]()
    made = make_images(mixed, tmp_path / "to", 16, progress=lambda *report: seen.append(report))
    assert made["classes"] == ["dark", "light"]
    assert sum(made["counts"].values()) == 80
    assert {(name, done) for name, done, total in seen if done == total} == set(made["counts"].items())
    corpus = ImageCorpus.open(tmp_path / "to")
    for name, images in corpus.sets.items():
        assert images.images.shape[1:] == (3, 16, 16)
        for image, label in zip(images.images, images.labels, strict=True):
            assert image[0].mean() == pytest.approx(list(SHADES.values())[label], abs=3), name
            assert image[2].mean() == pytest.approx(255 - list(SHADES.values())[label], abs=3), name
    assert [sum(facts["classes"]) for facts in corpus.facts["sets"].values()] == list(made["counts"].values())


def test_test_images_stay_the_same_when_files_are_added(mixed: Path) -> None:
    before = {path for path, _ in find_images(mixed).sets["test"]}
    assert 2 <= len(before) <= 20
    draw(mixed / "dark", "one-more.png", 20)
    assert before <= {path for path, _ in find_images(mixed).sets["test"]}
    assert not before & {path for path, _ in find_images(mixed).sets["train"]}


def test_classes_are_mixed_so_that_the_last_images_can_be_held_out(mixed: Path, tmp_path: Path) -> None:
    make_images(mixed, tmp_path / "to", 8)
    labels = ImageCorpus.open(tmp_path / "to", hold_out=15).sets["validation"].labels
    assert 3 <= labels.sum() <= 12


@pytest.mark.parametrize("name", ["test", "Valid"])
def test_a_folder_of_test_images_becomes_the_test_set(tmp_path: Path, name: str) -> None:
    for number in range(10):
        for kind, shade in SHADES.items():
            draw(tmp_path / "own" / "train" / kind, f"{number}.png", shade)
    draw(tmp_path / "own" / name / "dark" / "deeper", "1.png", 20)
    made = make_images(tmp_path / "own", tmp_path / "to", 8, grey=True)
    assert made["counts"] == {"train": 20, "test": 1}
    corpus = ImageCorpus.open(tmp_path / "to")
    assert corpus.sets["test"].images.shape == (1, 1, 8, 8)
    assert corpus.sets["test"].labels.tolist() == [0]


def test_the_config_is_valid_and_may_be_edited(mixed: Path, tmp_path: Path) -> None:
    make_images(mixed, tmp_path / "to", 8)
    path = tmp_path / "to" / "to.yaml"
    config = build(yaml.safe_load(path.read_text()), "to.yaml")
    assert config.task_name == "classification"
    assert ImageCorpus.open(Path(str(config.data.images)), config.data.hold_out)
    path.write_text("# edited")
    ImageCorpus.open(tmp_path / "to")
    assert set(json.loads((tmp_path / "to" / "source.json").read_text())["files"]) == {
        "classes.txt",
        "data_batch_1.bin",
        "test_batch.bin",
    }


def test_folders_without_usable_images_are_refused(mixed: Path, tmp_path: Path) -> None:
    def refused(folder: Path, to: str = "to") -> str:
        with pytest.raises(LockstepError) as caught:
            make_images(folder, tmp_path / to, 8)
        assert not (tmp_path / "to").exists()
        assert not list(tmp_path.glob(".to.partial*"))
        return caught.value.message

    assert "There is no folder" in refused(tmp_path / "nowhere")
    assert "holds 0 classes" in refused(mixed / "dark")
    assert "already exists" in refused(mixed, "mixed")
    (mixed / "empty").mkdir()
    assert "no training image of the class empty" in refused(mixed)
    (mixed / "empty").rmdir()
    (mixed / "dark" / "3.png").write_bytes(b"nonsense")
    assert "3.png cannot be read: it is damaged or not an image" in refused(mixed)
    for number in range(4, 11):
        (mixed / "light" / f"{number}.png").write_bytes(b"nonsense")
    message = refused(mixed)
    assert message.count("cannot be read:") == 5
    assert message.endswith("3 more cannot be read.")


@pytest.mark.parametrize("names", [("train",), ("Train", "holdout"), ("train", "val", "test"), ("train", "training")])
def test_ambiguous_folders_of_sets_are_refused(mixed: Path, tmp_path: Path, names: tuple[str, ...]) -> None:
    (tmp_path / "sets").mkdir()
    for name in names:
        shutil.copytree(mixed, tmp_path / "sets" / name)
    with pytest.raises(LockstepError, match="not clear which images are for training and which for the test"):
        find_images(tmp_path / "sets")


def test_names_in_any_encoding_are_read(mixed: Path, tmp_path: Path) -> None:
    (mixed / "dark" / "1.png").rename(os.fsdecode(os.fsencode(mixed / "dark") + b"/\xe9t\xe9.png"))
    assert sum(make_images(mixed, tmp_path / "to", 8)["counts"].values()) == 80


@pytest.mark.parametrize("kind", ["P6 nonsense", "P6\n4 4\n255\n"])
def test_damaged_image_files_are_named(mixed: Path, tmp_path: Path, kind: str) -> None:
    (mixed / "dark" / "damaged.ppm").write_text(kind)
    with pytest.raises(LockstepError, match=r"damaged\.ppm cannot be read"):
        make_images(mixed, tmp_path / "to", 8)


def test_an_image_with_a_damaged_chunk_is_named(mixed: Path, tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (200, 200, 3), np.uint8)
    path = mixed / "dark" / "cut.png"
    Image.fromarray(noise).save(path)
    content = path.read_bytes()
    second = content.index(b"IDAT", content.index(b"IDAT") + 4)
    path.write_bytes(content[:second] + b"\0\0\0\0" + content[second + 4 :])
    with pytest.raises(LockstepError, match=r"cut\.png cannot be read"):
        make_images(mixed, tmp_path / "to", 8)


@pytest.mark.parametrize("channels", [1, 3])
def test_16_bit_pixels_keep_their_range(tmp_path: Path, channels: int) -> None:
    ramp = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    Image.fromarray(ramp).save(tmp_path / "ramp.png")
    assert np.array_equal(read_image(tmp_path / "ramp.png", (channels, 8, 8))[0], (ramp >> 8).astype(np.uint8))
    Image.fromarray(ramp.astype(np.float32)).save(tmp_path / "float.tiff")
    with pytest.raises(LockstepError, match="32-bit pixels"):
        read_image(tmp_path / "float.tiff", (channels, 8, 8))


def test_records_of_another_shape_are_refused(mixed: Path, tmp_path: Path) -> None:
    make_images(mixed, tmp_path / "to", 8)
    source = json.loads((tmp_path / "to" / "source.json").read_text())
    known = ImageCorpus.open(tmp_path / "to").facts["digest"]
    for shape, message in (
        ([3, 9, 9], "are not records of"),
        (None, "are not records of"),
        ([24, 8], "invalid shape"),
    ):
        changed = {key: value for key, value in (source | {"shape": shape}).items() if value is not None}
        (tmp_path / "to" / "source.json").write_text(json.dumps(changed))
        with pytest.raises(LockstepError, match=message):
            ImageCorpus.open(tmp_path / "to")
    (tmp_path / "to" / "source.json").write_text(json.dumps(source | {"shape": [3, 16, 4]}))
    assert ImageCorpus.open(tmp_path / "to").facts["digest"] != known, "the same bytes, and other images"


class SilentLog:
    def say(self, line: str) -> None:
        pass

    def progress(self, name: str, done: int, total: int | None) -> None:
        pass


def test_own_images_are_not_taken_for_a_known_corpus_of_that_name(mixed: Path, tmp_path: Path) -> None:
    make_images(mixed, tmp_path / "cifar10", 8)
    with pytest.raises(LockstepError, match="already exists and is not cifar10"):
        get("cifar10", entries.load()["cifar10"], SilentLog(), to=tmp_path / "cifar10", cache=tmp_path / "cache")
