"""Makes a corpus of labelled images from image files, with one folder for each class.

The files are `train/cat/1.jpg` and `test/cat/2.jpg`, or `cat/1.jpg` alone. In the second case about a tenth of them, chosen
by a hash of the path, becomes the test set; adding files later does not change that choice.
"""

import hashlib
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
import yaml

from lockstep.data.images.image_set import CLASSES, SOURCE, Pixels, read_image
from lockstep.errors import LockstepError
from lockstep.files import (
    create_folder_atomically,
    describe_files,
    disk_error,
    locked,
    sync,
    write_atomically,
    write_json,
)

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".ppm", ".tif", ".tiff")
TRAIN_NAMES, TEST_NAMES = ("train", "training"), ("test", "testing", "val", "valid", "validation", "dev")
"""Names of folders that hold a set and not a class, in upper or lower case."""
FILES = {"train": "data_batch_1.bin", "test": "test_batch.bin"}
MAX_CLASSES = 256
"""A label is one byte."""
TEST_SHARE = 10
"""One of this many images becomes a test image."""
AT_ONCE = 512
"""Number of images in memory."""
SHOWN_ERRORS = 5

Progress = Callable[[str, int, int], None]
"""Receives the name of a set, the number of images done, and their total."""

LabelledPath = tuple[Path, int]


class MadeImages(TypedDict):
    """The classes of a new corpus and the number of images in each set."""

    classes: list[str]
    counts: dict[str, int]


@dataclass(frozen=True)
class ImageFiles:
    """The image files of each set with their labels. Classes are mixed, so that the last images can be held out."""

    classes: list[str]
    sets: dict[str, list[LabelledPath]]


def find_images(folder: Path) -> ImageFiles:
    """Finds the image files in a folder. Files without the suffix of an image format are skipped."""
    if not folder.is_dir():
        raise LockstepError(f"There is no folder {folder}.", "Name the folder that holds a folder for each class.", 2)
    roots = _find_roots(folder)
    classes = sorted({path.name for root in roots.values() for path in root.iterdir() if path.is_dir()})
    sets: dict[str, list[LabelledPath]] = {"train": [], "test": []}
    for name, root in roots.items():
        labelled = [(path, label) for label, kind in enumerate(classes) for path in _list_images(root / kind)]
        for key, image in sorted((_hash_path(path.relative_to(root)), (path, label)) for path, label in labelled):
            sets[("test" if key[0] % TEST_SHARE == 0 else "train") if name == "all" else name].append(image)
    _check(folder, classes, sets)
    return ImageFiles(classes, sets)


def _find_roots(folder: Path) -> dict[str, Path]:
    """Returns the folders of the training and the test images, or one folder for all of them."""
    inner = {path.name.lower(): path for path in sorted(folder.iterdir()) if path.is_dir()}
    train, test = ([inner[name] for name in names if name in inner] for names in (TRAIN_NAMES, TEST_NAMES))
    if not train:
        return {"all": folder}
    if len(train) > 1 or len(test) != 1:
        names = " and ".join(path.name for path in [*train, *test])
        raise LockstepError(
            f"{folder} holds {names}: it is not clear which images are for training and which for the test.",
            f"Leave one folder for training and one for the test ({', '.join(TEST_NAMES)}). For validation during "
            "training, data.hold_out holds some of the training images out.",
            code=2,
        )
    return {"train": train[0], "test": test[0]}


def _list_images(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS] if folder.is_dir() else []


def _hash_path(path: Path) -> bytes:
    """Returns a hash that orders the files at random, always in the same way."""
    return hashlib.sha256(os.fsencode(path.as_posix())).digest()


def _check(folder: Path, classes: list[str], sets: dict[str, list[LabelledPath]]) -> None:
    """Raises unless there are 2 to 256 classes, training images of each, and test images."""
    remedy = "Make a folder of images for each class: FOLDER/CLASS/*.jpg, or the same under train/ and test/."
    if not 2 <= len(classes) <= MAX_CLASSES:
        raise LockstepError(f"{folder} holds {len(classes)} classes; 2 to {MAX_CLASSES} are possible.", remedy, 2)
    if empty := sorted(set(classes) - {classes[label] for _, label in sets["train"]}):
        raise LockstepError(f"There is no training image of the class {empty[0]} in {folder}.", remedy, 2)
    if not sets["test"]:
        raise LockstepError(f"There is no test image in {folder}.", remedy, 2)


def make_images(
    folder: Path, to: Path, size: int, grey: bool = False, progress: Progress = lambda *_: None
) -> MadeImages:
    """Writes the images of a folder to `to`, each resized to `size` x `size` pixels, with a config to train on them."""
    files, to = find_images(folder), to.expanduser().resolve()
    shape = (1 if grey else 3, size, size)
    try:
        with locked(to.with_name(f".{to.name}.lock")):
            if to.exists() and (not to.is_dir() or any(to.iterdir())):
                raise LockstepError(f"{to} already exists.", "Name another folder with --to.", code=2)
            with create_folder_atomically(to) as partial:
                errors: list[LockstepError] = []
                for name, images in files.sets.items():
                    with (partial / FILES[name]).open("wb") as file:
                        for done, records in _read_records(images, shape, errors):
                            file.write(records)
                            progress(name, done, len(images))
                if errors:
                    raise _unreadable_error(errors)
                write_atomically(partial / CLASSES, "".join(f"{name}\n" for name in files.classes))
                counts = {name: len(images) for name, images in files.sets.items()}
                facts = {"name": to.name, "counts": counts, "shape": shape, "files": describe_files(partial)}
                for path in partial.iterdir():
                    sync(path)
                write_json(partial / SOURCE, facts)
                # After source.json, because users may edit it.
                write_atomically(partial / f"{to.name}.yaml", _write_config(to, counts["train"], size))
    except OSError as error:
        raise disk_error(to, error, "name another folder with --to") from None
    return {"classes": files.classes, "counts": counts}


def _write_config(to: Path, images: int, size: int) -> str:
    """Returns a config for a residual network: 30 epochs, with a tenth of the training images held out for validation."""
    batch = max(8, min(128, images // 20))
    steps = max(1, 30 * images // batch)
    interval = max(1, steps // 15)
    tree = {
        "data": {"images": str(to), "hold_out": images // 10, "augment": {"pad": size // 8, "flip": True}},
        "batch": {"images": batch},
        "model": {"name": "resnet", "depth": 20},
        "train": {"steps": steps, "evaluate_every": interval, "checkpoint_every": interval, "label_smoothing": 0.0},
        "optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
        "schedule": {"name": "cosine", "peak": 0.1 * batch / 128, "warmup": interval},
    }
    comment = "# Written by `lockstep data pictures`. Turn `flip` off if left and right matter in your images.\n"
    return comment + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def _unreadable_error(errors: list[LockstepError]) -> LockstepError:
    messages = [error.message for error in errors[:SHOWN_ERRORS]]
    if len(errors) > SHOWN_ERRORS:
        messages.append(f"{len(errors) - SHOWN_ERRORS} more cannot be read.")
    return LockstepError(" ".join(messages), "Repair or remove these files.", code=2)


def _read_records(
    images: list[LabelledPath], shape: tuple[int, int, int], errors: list[LockstepError]
) -> Iterator[tuple[int, bytes]]:
    """Yields the number of images done and the next records of label and pixels. Adds files that cannot be read to
    `errors`. Threads suffice, because Pillow releases the interpreter lock."""

    def read_or_error(path: Path) -> Pixels | LockstepError:
        try:
            return read_image(path, shape)
        except LockstepError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for begin in range(0, len(images), AT_ONCE):
            batch = images[begin : begin + AT_ONCE]
            records = np.empty((len(batch), 1 + math.prod(shape)), np.uint8)
            records[:, 0] = [label for _, label in batch]
            for record, pixels in zip(records, threads.map(read_or_error, [path for path, _ in batch]), strict=True):
                if isinstance(pixels, LockstepError):
                    errors.append(pixels)
                else:
                    record[1:] = pixels.ravel()
            yield begin + len(batch), records.tobytes()
