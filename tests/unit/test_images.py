"""Images from files to batches: complete, augmented alike for any number of workers, each once per epoch."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import write_images
from lockstep.data.corpus.batches import Position
from lockstep.data.data_settings import AugmentSettings, BatchSettings
from lockstep.data.images.augment import Draws, augment
from lockstep.data.images.image_set import ImageCorpus, ImageSet, read_image
from lockstep.errors import LockstepError
from lockstep.files import digest
from lockstep.models.model_settings import ResNetSettings
from lockstep.tasks.classification import Classification

FILL = np.array([7, 8, 9], np.uint8)
OFF = AugmentSettings(pad=0, flip=False, cutout=0)
MODEL = ResNetSettings(name="resnet", depth=8, channels=2)


def random_images(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, 3, 6, 6), np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_images(tmp_path, train=50, test=20)
    return tmp_path


def task(folder: Path, batch: BatchSettings | None = None, hold_out: int = 0) -> Classification:
    corpus = ImageCorpus.open(folder, hold_out)
    return Classification(corpus, batch or BatchSettings(images=8), MODEL, AugmentSettings(), 0.0, seed=1)


def test_records_become_labels_and_colour_planes(folder: Path) -> None:
    corpus = ImageCorpus.open(folder)
    raw = (folder / "data_batch_1.bin").read_bytes()
    first = corpus.sets["train"]
    assert len(first) == 50
    assert first.labels[0] == raw[0]
    assert first.images[0].tobytes() == raw[1 : 1 + 3072]
    assert len(corpus.sets["test"]) == len(corpus.sets["validation"]) == 20
    known = corpus.facts["sets"]
    assert {name: (one["images"], one["bytes"]) for name, one in known.items()} == {
        "train": (50, 50 * 3072),
        "test": (20, 20 * 3072),
    }
    assert known["train"]["classes"] == [list(raw[::3073]).count(label) for label in range(10)]


def test_a_list_of_files_without_digests_is_refused(folder: Path) -> None:
    (folder / "source.json").write_text(json.dumps({"files": {"classes.txt": {"bytes": 5}}}))
    with pytest.raises(LockstepError, match=r"has no bytes and digest of classes\.txt"):
        ImageCorpus.open(folder)


def test_an_image_is_rotated_by_its_exif_orientation(tmp_path: Path) -> None:
    image = Image.new("RGB", (40, 20))
    image.paste((250, 250, 250), (0, 0, 20, 20))  # the left half is white
    orientation = Image.Exif()
    orientation[0x0112] = 6  # rotate by 90 degrees to the right: the left half comes on top
    image.save(tmp_path / "photo.png", exif=orientation)
    read = read_image(tmp_path / "photo.png", (3, 8, 4))
    assert read.shape == (3, 8, 4)
    assert read[:, 1].min() > 200
    assert read[:, 6].max() < 50
    assert read_image(tmp_path / "photo.png", (1, 8, 4)).shape == (1, 8, 4)


def test_classes_without_a_name_are_refused(folder: Path) -> None:
    (folder / "classes.txt").write_text("".join(f"{number}\n" for number in range(5)))
    source = json.loads((folder / "source.json").read_text())
    source["files"].pop("classes.txt")
    (folder / "source.json").write_text(json.dumps(source))
    with pytest.raises(LockstepError, match=r"of class 9, and .*classes\.txt names 5"):
        ImageCorpus.open(folder)
    (folder / "classes.txt").unlink()
    with pytest.raises(LockstepError, match=r"There is no .*classes\.txt"):
        ImageCorpus.open(folder)


def test_images_too_small_for_the_short_network_are_refused(folder: Path) -> None:
    corpus = ImageCorpus.open(folder)
    small = {name: ImageSet(one.images[..., :6, :6], one.labels) for name, one in corpus.sets.items()}
    model = ResNetSettings(name="resnet", depth=9)
    with pytest.raises(LockstepError, match="Images of 6 x 6 pixels are too small"):
        Classification(
            ImageCorpus(folder, small, corpus.classes, corpus.facts),
            BatchSettings(images=8),
            model,
            AugmentSettings(),
            0.0,
            1,
        )


def test_idx_files_have_one_channel(tmp_path: Path) -> None:
    write_images(tmp_path, train=12, test=4, idx=True)
    corpus = ImageCorpus.open(tmp_path)
    assert corpus.sets["train"].images.shape == (12, 1, 28, 28)
    assert corpus.sets["test"].labels.shape == (4,)


def test_held_out_images_are_not_trained_on_and_change_the_digest(folder: Path) -> None:
    full, reduced = ImageCorpus.open(folder), ImageCorpus.open(folder, 10)
    assert np.array_equal(reduced.sets["validation"].images, full.sets["train"].images[40:])
    assert len(reduced.sets["train"]) == 40
    assert reduced.facts["digest"] != full.facts["digest"]
    with pytest.raises(LockstepError, match="leaves none"):
        ImageCorpus.open(folder, 50)


def test_missing_and_damaged_images_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(LockstepError, match="There are no images in"):
        ImageCorpus.open(tmp_path / "nowhere")
    with (folder / "test_batch.bin").open("ab") as file:
        file.write(b"x")
    with pytest.raises(LockstepError, match=r"test_batch\.bin is damaged"):
        ImageCorpus.open(folder)


def test_the_remedy_for_missing_images_depends_on_the_folder(tmp_path: Path) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    get, pictures, some = "lockstep data get fashion-mnist --to", "lockstep data pictures", "lockstep data list"
    for name, remedy in (("fashion-mnist", get), ("multi30k-en-de", some), ("photos", pictures), ("mine", some)):
        with pytest.raises(LockstepError) as caught:
            ImageCorpus.open(tmp_path / name)
        assert remedy in caught.value.remedy


def test_other_bytes_of_the_same_length_are_noticed(folder: Path) -> None:
    content = bytearray((folder / "test_batch.bin").read_bytes())
    content[100] ^= 1
    (folder / "test_batch.bin").write_bytes(content)
    with pytest.raises(LockstepError, match=r"test_batch\.bin does not match its digest in source\.json"):
        ImageCorpus.open(folder)


@pytest.mark.parametrize("labels", [12, 9, 0])
def test_every_image_needs_a_label(tmp_path: Path, labels: int) -> None:
    write_images(tmp_path, train=10, test=10, idx=True)
    path = tmp_path / "t10k-labels-idx1-ubyte"
    path.write_bytes(bytes(8 + labels))
    source = json.loads((tmp_path / "source.json").read_text())
    source["files"][path.name] = {"bytes": 8 + labels, "digest": digest(path, "sha256")}
    (tmp_path / "source.json").write_text(json.dumps(source))
    with pytest.raises(LockstepError, match=f"has 10 test images and {labels} labels"):
        ImageCorpus.open(tmp_path)


def test_without_augmentation_images_stay_as_they_are() -> None:
    images = random_images(4)
    assert np.array_equal(augment(images, Draws(np.arange(4), 1, 1), OFF, FILL), images)


def test_a_random_crop_is_part_of_the_padded_image() -> None:
    images = random_images(200)
    padded = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)))
    for channel in range(3):
        padded[:, channel, :2] = padded[:, channel, -2:] = FILL[channel]
        padded[:, channel, :, :2] = padded[:, channel, :, -2:] = FILL[channel]
    cropped = augment(images, Draws(np.arange(200), 1, 1), replace_settings(pad=2), FILL)
    offsets = set()
    for image, frame in zip(cropped, padded, strict=True):
        matches = [(y, x) for y in range(5) for x in range(5) if np.array_equal(frame[:, y : y + 6, x : x + 6], image)]
        assert matches
        offsets.add(matches[0])
    assert len(offsets) == 25, "every offset occurs"


def replace_settings(**on: int | bool) -> AugmentSettings:
    return OFF.model_copy(update=on)


def test_about_half_of_the_images_are_flipped() -> None:
    images = random_images(400)
    changed = augment(images, Draws(np.arange(400), 1, 1), replace_settings(flip=True), FILL)
    mirrored = [np.array_equal(new, old[..., ::-1]) for new, old in zip(changed, images, strict=True)]
    unchanged = [np.array_equal(new, old) for new, old in zip(changed, images, strict=True)]
    assert all(one or other for one, other in zip(mirrored, unchanged, strict=True))
    assert 150 < sum(mirrored) < 250


def test_a_cutout_has_the_mean_colour_and_at_most_its_size() -> None:
    images = np.zeros((100, 3, 6, 6), np.uint8)
    changed = augment(images, Draws(np.arange(100), 1, 1), replace_settings(cutout=4), FILL)
    covered = (changed == FILL[:, None, None]).all(1).sum((1, 2))
    assert ((changed == 0) | (changed == FILL[:, None, None])).all()
    assert covered.max() == 16
    assert covered.min() >= 4, "a quarter of the square remains at a corner"


def test_augmentation_depends_on_seed_step_and_image_only(folder: Path) -> None:
    made = task(folder)
    (batch,) = made.micro_batches(np.array([5, 3, 40, 8]), 7)
    (part,) = made.micro_batches(np.array([8, 3]), 7)
    assert torch.equal(batch.images[[3, 1]], part.images)
    assert torch.equal(batch.labels[[3, 1]], part.labels)
    (later,) = made.micro_batches(np.array([5, 3, 40, 8]), 8)
    assert not torch.equal(batch.images, later.images)
    made.seed = 2
    (other,) = made.micro_batches(np.array([5, 3, 40, 8]), 7)
    assert not torch.equal(batch.images, other.images)


def test_random_numbers_are_uniform() -> None:
    draws = Draws(np.arange(9000), seed=3, step=5)
    counts = np.bincount(draws.below(9), minlength=9)
    assert counts.min() > 850
    assert counts.max() < 1150


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_image_comes_once_per_epoch_in_a_new_order(folder: Path, workers: int) -> None:
    order = task(folder).order
    epochs: list[np.ndarray] = []
    for epoch in range(2):
        seen = []
        for batch in order.batches(Position(epoch)):
            seen += [order.share(batch, worker, workers) for worker in range(workers)]
            if batch.after.epoch > epoch:
                break
        epochs.append(np.concatenate(seen))
        assert sorted(epochs[-1]) == list(range(50))
    assert not np.array_equal(epochs[0], epochs[1])


def test_an_empty_share_is_an_empty_batch(folder: Path) -> None:
    made = task(folder)
    (batch,) = made.micro_batches(np.array([], np.int64), 1)
    assert batch.target_words == 0
    module = made.module()
    loss = module(batch)
    assert loss.item() == 0.0
    loss.backward()
    assert all(p.grad is not None and not p.grad.any() for p in module.parameters())


def test_micro_batches_are_refused(folder: Path) -> None:
    with pytest.raises(LockstepError, match="batch norm"):
        task(folder, BatchSettings(images=8, micro_words=4))
    with pytest.raises(LockstepError, match="not counted in words"):
        task(folder, BatchSettings(words=8))


def test_a_cutout_as_large_as_the_image_is_refused(folder: Path) -> None:
    with pytest.raises(LockstepError, match="can cover a whole image of 32 x 32 pixels"):
        Classification(
            ImageCorpus.open(folder), BatchSettings(images=8), MODEL, AugmentSettings(cutout=32), 0.0, seed=1
        )


def test_images_have_an_order_but_no_length(folder: Path) -> None:
    unshuffled = task(folder, BatchSettings(images=8, shuffle=False))
    assert next(unshuffled.batches(0, 0)).indices.tolist() == list(range(8))
    with pytest.raises(LockstepError, match="have no length"):
        task(folder, BatchSettings(images=8, fixed_length=20))
