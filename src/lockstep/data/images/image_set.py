"""Reads labelled images from the files that `lockstep data get` and `lockstep data pictures` make. Pixels stay bytes.

Two layouts are supported: the records of CIFAR (one byte of label, then the colour planes) with the shape that
`source.json` names, and the idx files of the MNIST family.
"""

import hashlib
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, Self, TypedDict

import numpy as np
import numpy.typing as npt

from lockstep.data.catalog import entries
from lockstep.data.catalog.entries import CLASSES, SOURCE
from lockstep.errors import LockstepError
from lockstep.files import digest, read_json

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]
RECORD_SHAPE = (3, 32, 32)
SHAPE_REMEDY = f'Write the shape into {SOURCE}: "shape": [CHANNELS, HEIGHT, WIDTH].'
IDX_HEAD, IDX_LABELS_HEAD = 16, 8
"""Bytes before the first image and the first label."""
DAMAGE_ERRORS = (SyntaxError, ValueError, EOFError, struct.error)
"""What Pillow raises for damaged files, besides OSError."""
SAMPLE = 5000
"""Mean and standard deviation are computed from this many training images, at even distances."""


class ListedFile(TypedDict):
    """A file as `source.json` lists it."""

    bytes: int
    digest: str


class ImageSource(TypedDict):
    """The part of `source.json` that reading images needs."""

    files: dict[str, ListedFile]
    name: NotRequired[str]
    shape: NotRequired[list[int]]


class ImageCounts(TypedDict):
    """The size of a set; `classes` has the number of images of each class."""

    images: int
    bytes: int
    classes: list[int]


class ImageFile(TypedDict):
    """A file that an image corpus was read from."""

    path: str
    bytes: int
    sha256: str


class ImageFacts(TypedDict):
    """The content of data.json in a run that trains on images."""

    digest: str
    name: str
    classes: list[str]
    shape: list[int]
    sets: dict[str, ImageCounts]
    files: list[ImageFile]


@dataclass(frozen=True)
class ImageSet:
    """Images and their labels."""

    images: Pixels  # [images, channels, height, width]
    labels: Pixels  # [images]

    def __len__(self) -> int:
        return len(self.labels)

    def slice(self, begin: int, end: int) -> "ImageSet":
        return ImageSet(self.images[begin:end], self.labels[begin:end])


class ImageCorpus:
    """The sets of a folder. `validation` is the held-out part of the training images, or else the test images."""

    def __init__(self, folder: Path, sets: dict[str, ImageSet], classes: list[str], facts: ImageFacts) -> None:
        self.folder, self.sets, self.classes, self.facts = folder, sets, classes, facts

    @classmethod
    def open(cls, folder: Path, hold_out: int = 0) -> Self:
        """Reads and checks the images of a folder. The last `hold_out` training images become the validation set."""
        source = _read_source(folder)
        train, test = _read_sets(folder, source)
        if hold_out >= len(train):
            raise LockstepError(
                f"data.hold_out={hold_out} leaves none of {len(train)} images to train on.",
                "Lower data.hold_out.",
                code=2,
            )
        count = len(train) - hold_out
        validation = train.slice(count, len(train)) if hold_out else test
        sets = {"train": train.slice(0, count), "validation": validation, "test": test}
        classes = _read_classes(folder)
        highest = max(int(part.labels.max(initial=0)) for part in (train, test))
        if highest >= len(classes):
            raise LockstepError(
                f"An image in {folder} is of class {highest}, and {folder / CLASSES} names {len(classes)}, from 0 on.",
                "Write a name for every class into it, one per line.",
                code=2,
            )
        return cls(folder, sets, classes, _collect_facts(source, sets, classes, hold_out))

    @cached_property
    def channel_statistics(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of every channel of the training images, from 0 to 255."""
        images = self.sets["train"].images
        sample = images[:: max(1, len(images) // SAMPLE)].astype(np.float32)
        mean, deviation = sample.mean((0, 2, 3), np.float64), sample.std((0, 2, 3), dtype=np.float64)
        return mean.tolist(), np.maximum(deviation, 1.0).tolist()


def _read_source(folder: Path) -> ImageSource:
    """Reads `source.json` and checks every file that it lists."""
    source: ImageSource | None = read_json(folder / SOURCE)
    if source is None or "files" not in source:
        raise LockstepError(
            f"There are no images in {folder}.", f"{_suggest_source(folder)}, or set data.images.", code=2
        )
    for name, listed in source["files"].items():
        if not isinstance(listed, dict) or not {"bytes", "digest"} <= listed.keys():
            raise LockstepError(
                f"{folder / SOURCE} has no bytes and digest of {name}.",
                'Write {"files": {NAME: {"bytes": SIZE, "digest": "sha256:..."}}}.',
                code=2,
            )
        _check_file(folder / name, listed)
    return source


def _read_sets(folder: Path, source: ImageSource) -> tuple[ImageSet, ImageSet]:
    """Reads the training and the test images; there must be some, with a label for each."""
    if (folder / "test_batch.bin").exists():
        shape: Sequence[int] = source.get("shape", RECORD_SHAPE)
        if len(shape) != 3 or not all(isinstance(length, int) and length > 0 for length in shape):
            raise LockstepError(f"{folder / SOURCE} has the invalid shape {shape}.", SHAPE_REMEDY, code=2)
        train, test = (_read_records(folder, name, shape) for name in ("train", "test"))
    else:
        train, test = (_read_idx(folder, name) for name in ("train", "test"))
    for name, part in (("training", train), ("test", test)):
        if not len(part) or len(part) != len(part.images):
            counts = f"{len(part.images)} {name} images and {len(part)} labels"
            raise LockstepError(f"{folder} has {counts}.", "There must be some, and a label for each.", code=2)
    return train, test


def _suggest_source(folder: Path) -> str:
    """Suggests how to get images into a folder that has none."""
    if folder.is_dir() and any(path.is_dir() for path in folder.iterdir()):
        return f"If it holds a folder of image files for each class, run `lockstep data pictures {folder}`"
    entry = entries.load().get(folder.name)
    if entry is not None and entry.classes:
        return f"`lockstep data get {folder.name} --to {folder}` downloads them"
    return "`lockstep data list` names some, and `lockstep data pictures` makes them from image files"


_AGAIN = "Remove the folder and get it again (a copy of a remote one is fetched again)."


def _check_file(path: Path, listed: ListedFile) -> None:
    """Checks the size and the digest of a file: a resumed run must not continue with other images."""
    size = path.stat().st_size if path.exists() else 0
    if size != listed["bytes"]:
        raise LockstepError(f"{path} is damaged: it has {size} bytes instead of {listed['bytes']}.", _AGAIN)
    actual, kind = "", str(listed["digest"]).partition(":")[0]
    if kind in hashlib.algorithms_available:
        actual = digest(path, kind)
    if actual != listed["digest"]:
        raise LockstepError(
            f"{path} does not match its digest in {SOURCE}.",
            f"{_AGAIN} If you changed it yourself, write its digest into {SOURCE}.",
            code=2,
        )


def _collect_facts(source: ImageSource, sets: dict[str, ImageSet], classes: list[str], hold_out: int) -> ImageFacts:
    """Returns the content of data.json. The digest covers all files, their shape and what is held out."""
    content: dict[str, object] = {"files": source["files"], "hold_out": hold_out}
    if "shape" in source:
        content["shape"] = source["shape"]
    shown = sets if hold_out else {name: part for name, part in sets.items() if name != "validation"}
    return {
        "digest": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
        "name": source.get("name", ""),
        "classes": classes,
        "shape": list(sets["train"].images.shape[1:]),
        "sets": {name: _count(part, len(classes)) for name, part in shown.items()},
        "files": [
            {"path": name, "bytes": listed["bytes"], "sha256": listed["digest"].removeprefix("sha256:")}
            for name, listed in source["files"].items()
        ],
    }


def _count(images: ImageSet, classes: int) -> ImageCounts:
    per_class = np.bincount(images.labels, minlength=classes).tolist()
    return {"images": len(images), "bytes": images.images.nbytes, "classes": per_class}


def _read_classes(folder: Path) -> list[str]:
    try:
        return (folder / CLASSES).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        remedy = "Write the name of every class into it, one per line, in the order of their numbers."
        raise LockstepError(f"There is no {folder / CLASSES}.", remedy, code=2) from None


def read_image(path: Path, shape: Sequence[int]) -> Pixels:
    """Reads an image file of any common format and size and resizes it to `[channels, height, width]`."""
    from PIL import Image, ImageOps

    channels, height, width = shape
    try:
        with Image.open(path) as image:
            upright = _convert_to_bytes(ImageOps.exif_transpose(image), path)
            pixels = np.asarray(upright.convert("L" if channels == 1 else "RGB").resize((width, height)))
    except (OSError, Image.DecompressionBombError, *DAMAGE_ERRORS) as error:
        large = isinstance(error, Image.DecompressionBombError)
        why = "it is too large" if large else getattr(error, "strerror", None) or "it is damaged or not an image"
        raise LockstepError(f"{path} cannot be read: {why}.", "Name image files (PNG, JPEG, ...).", code=2) from None
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)


def _convert_to_bytes(image: "Image", path: Path) -> "Image":
    """Reduces 16-bit pixels to their upper 8 bits; Pillow would make almost all of them white."""
    from PIL import Image

    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        remedy = "Save it with 8 or 16 bits per pixel."
        raise LockstepError(f"{path} has 32-bit pixels, and their values of black and white are not known.", remedy, 2)
    return image


def _read_records(folder: Path, name: str, shape: Sequence[int]) -> ImageSet:
    paths = sorted(folder.glob("test_batch.bin" if name == "test" else "data_batch_*.bin"))
    size, batches = 1 + math.prod(shape), [np.fromfile(path, np.uint8) for path in paths]
    if not batches or any(len(batch) % size for batch in batches):
        pixels = " x ".join(map(str, shape))
        raise LockstepError(
            f"The {name} images in {folder} are not records of {size} bytes: 1 for the label and {pixels} for the pixels.",
            SHAPE_REMEDY,
            code=2,
        )
    records = np.concatenate(batches).reshape(-1, size)
    return ImageSet(records[:, 1:].reshape(-1, *shape), records[:, 0].copy())


def _read_idx(folder: Path, name: str) -> ImageSet:
    kind = "t10k" if name == "test" else "train"
    path = folder / f"{kind}-images-idx3-ubyte"
    height, width = np.fromfile(path, ">i4", 2, offset=8).tolist()
    images = np.fromfile(path, np.uint8, offset=IDX_HEAD).reshape(-1, 1, height, width)
    return ImageSet(images, np.fromfile(folder / f"{kind}-labels-idx1-ubyte", np.uint8, offset=IDX_LABELS_HEAD))
