"""Images with labels, in the files that `lockstep data get` makes. They are kept as bytes.

It knows two layouts: CIFAR's records (a byte of label, then the colour planes), of any shape that `source.json` tells, and
the idx files of the MNIST family.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from lockstep.data import catalog
from lockstep.errors import LockstepError
from lockstep.files import digest, read_json

Bytes = npt.NDArray[np.uint8]
SOURCE, CLASSES = "source.json", "classes.txt"
RECORD_SHAPE = (3, 32, 32)
IDX_HEAD, IDX_LABELS_HEAD = 16, 8
"""Bytes before the first image and the first label."""
SAMPLE = 5000
"""So many training images, evenly spread, tell the usual colour."""


@dataclass(frozen=True)
class ImageSet:
    """Images and their classes."""

    images: Bytes  # [images, channels, height, width]
    labels: Bytes  # [images]

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, begin: int, end: int) -> "ImageSet":
        return ImageSet(self.images[begin:end], self.labels[begin:end])


class ImageCorpus:
    """The sets of a folder. `validation` is what was held out of the training images, or else the test images."""

    def __init__(self, folder: Path, sets: dict[str, ImageSet], classes: list[str], facts: dict[str, Any]) -> None:
        self.folder, self.sets, self.classes, self.facts = folder, sets, classes, facts

    @classmethod
    def open(cls, folder: Path, hold_out: int = 0) -> Self:
        source = read_json(folder / SOURCE)
        if source is None or "files" not in source:
            known = catalog.load().get(folder.name)
            get = (
                f"`lockstep data get {folder.name} --to {folder}` gets them"
                if known
                else "`lockstep data list` names some"
            )
            raise LockstepError(f"There are no images in {folder}.", f"{get}, or set data.images.", code=2)
        for name, known in source["files"].items():
            if not isinstance(known, dict) or not {"bytes", "digest"} <= known.keys():
                raise LockstepError(
                    f"{folder / SOURCE} does not tell bytes and digest of {name}.",
                    'Write {"files": {NAME: {"bytes": SIZE, "digest": "sha256:..."}}}.',
                    code=2,
                )
            _check(folder / name, known)
        if (folder / "test_batch.bin").exists():
            shape = tuple(source.get("shape", RECORD_SHAPE))
            train, test = (_records(folder, name, shape) for name in ("train", "test"))
        else:
            train, test = (_idx(folder, name) for name in ("train", "test"))
        for name, one in (("training", train), ("test", test)):
            if not len(one) or len(one) != len(one.images):
                many = f"{len(one.images)} {name} images and {len(one)} labels"
                raise LockstepError(f"{folder} has {many}.", "There must be some, and a label for each.", code=2)
        if hold_out >= len(train):
            raise LockstepError(f"data.hold_out={hold_out} leaves none of {len(train)} images to train on.", code=2)
        kept = len(train) - hold_out
        validation = train.part(kept, len(train)) if hold_out else test
        sets = {"train": train.part(0, kept), "validation": validation, "test": test}
        classes = _classes(folder)
        highest = max(int(one.labels.max(initial=0)) for one in (train, test))
        if highest >= len(classes):
            raise LockstepError(
                f"An image in {folder} is of class {highest}, and {folder / CLASSES} names {len(classes)}, from 0 on.",
                "Write a name for every class into it, one a line.",
                code=2,
            )
        return cls(folder, sets, classes, _facts(source, sets, classes, hold_out))

    @cached_property
    def usual(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of every channel of the training images, from 0 to 255."""
        images = self.sets["train"].images
        sample = images[:: max(1, len(images) // SAMPLE)].astype(np.float32)
        mean, spread = sample.mean((0, 2, 3), np.float64), sample.std((0, 2, 3), dtype=np.float64)
        return mean.tolist(), np.maximum(spread, 1.0).tolist()


def _check(path: Path, known: dict[str, Any]) -> None:
    """Every byte: a run that goes on with other images than it began with must not pass for the same."""
    size = path.stat().st_size if path.exists() else 0
    if size != known["bytes"]:
        raise LockstepError(f"{path} is damaged: it has {size} bytes instead of {known['bytes']}.", "Get it again.")
    found, kind = "", str(known["digest"]).partition(":")[0]
    if kind in hashlib.algorithms_available:
        found = digest(path, kind)
    if found != known["digest"]:
        raise LockstepError(
            f"{path} is not the file that {SOURCE} tells of: its digest is another one.",
            f"Get it again, or write its digest into {SOURCE} if you changed it yourself.",
            code=2,
        )


def _facts(source: dict[str, Any], sets: dict[str, ImageSet], classes: list[str], hold_out: int) -> dict[str, Any]:
    """What becomes data.json. The digest names the content of all files and what is held out."""
    content = {"files": source["files"], "hold_out": hold_out}
    own = sets if hold_out else {name: one for name, one in sets.items() if name != "validation"}
    return {
        "digest": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
        "name": source.get("name", ""),
        "classes": classes,
        "shape": list(sets["train"].images.shape[1:]),
        "sets": {name: _count(one, len(classes)) for name, one in own.items()},
        "files": [
            {"path": name, "bytes": known["bytes"], "sha256": known["digest"].removeprefix("sha256:")}
            for name, known in source["files"].items()
        ],
    }


def _count(images: ImageSet, classes: int) -> dict[str, Any]:
    """Images, bytes, and how many of each class."""
    of_class = np.bincount(images.labels, minlength=classes).tolist()
    return {"images": len(images), "bytes": images.images.nbytes, "classes": of_class}


def _classes(folder: Path) -> list[str]:
    try:
        return (folder / CLASSES).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        remedy = "Write the name of every class into it, one a line, in the order of their numbers."
        raise LockstepError(f"There is no {folder / CLASSES}.", remedy, code=2) from None


def picture(path: Path, shape: tuple[int, ...]) -> Bytes:
    """A picture of any usual format and size, as a model trained on images of `[channels, height, width]` wants it."""
    from PIL import Image, ImageOps

    channels, height, width = shape
    try:
        with Image.open(path) as found:
            upright = ImageOps.exif_transpose(found)  # as the camera was held
            points = np.asarray(upright.convert("L" if channels == 1 else "RGB").resize((width, height)))
    except (OSError, Image.DecompressionBombError) as error:
        why = "it is too large" if not isinstance(error, OSError) else error.strerror or "it is no picture"
        raise LockstepError(f"{path} cannot be read: {why}.", "Name picture files (PNG, JPEG, ...).", code=2) from None
    return points.reshape(height, width, channels).transpose(2, 0, 1)


def _records(folder: Path, name: str, shape: tuple[int, ...]) -> ImageSet:
    paths = sorted(folder.glob("test_batch.bin" if name == "test" else "data_batch_*.bin"))
    size, found = 1 + math.prod(shape), [np.fromfile(path, np.uint8) for path in paths]
    if not found or any(len(one) % size for one in found):
        points = " x ".join(map(str, shape))
        raise LockstepError(
            f"The {name} images in {folder} are not records of {size} bytes, one of label and {points} of points.",
            f'Tell their shape in {SOURCE}: "shape": [CHANNELS, HEIGHT, WIDTH].',
            code=2,
        )
    records = np.concatenate(found).reshape(-1, size)
    return ImageSet(records[:, 1:].reshape(-1, *shape), records[:, 0].copy())


def _idx(folder: Path, name: str) -> ImageSet:
    kind = "t10k" if name == "test" else "train"
    path = folder / f"{kind}-images-idx3-ubyte"
    height, width = np.fromfile(path, ">i4", 2, offset=8).tolist()
    images = np.fromfile(path, np.uint8, offset=IDX_HEAD).reshape(-1, 1, height, width)
    return ImageSet(images, np.fromfile(folder / f"{kind}-labels-idx1-ubyte", np.uint8, offset=IDX_LABELS_HEAD))
