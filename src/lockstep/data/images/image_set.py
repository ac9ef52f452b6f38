"""Images with labels, in the files that `lockstep data get` makes. They are kept as bytes.

It knows two layouts: CIFAR's records (a byte of label, then the colour planes), of any shape that `source.json` tells, and
the idx files of the MNIST family.
"""

import hashlib
import json
import math
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from lockstep.data.catalog import entries
from lockstep.errors import LockstepError
from lockstep.files import digest, read_json

if TYPE_CHECKING:
    from PIL.Image import Image

Bytes = npt.NDArray[np.uint8]
SOURCE, CLASSES = "source.json", "classes.txt"
RECORD_SHAPE = (3, 32, 32)
SHAPE_REMEDY = f'Tell their shape in {SOURCE}: "shape": [CHANNELS, HEIGHT, WIDTH].'
IDX_HEAD, IDX_LABELS_HEAD = 16, 8
"""Bytes before the first image and the first label."""
DAMAGES = (SyntaxError, ValueError, EOFError, struct.error)
"""What Pillow raises for files that are damaged inside, beside OSError."""
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
            raise LockstepError(
                f"There are no images in {folder}.", f"{_where_from(folder)}, or set data.images.", code=2
            )
        for name, known in source["files"].items():
            if not isinstance(known, dict) or not {"bytes", "digest"} <= known.keys():
                raise LockstepError(
                    f"{folder / SOURCE} does not tell bytes and digest of {name}.",
                    'Write {"files": {NAME: {"bytes": SIZE, "digest": "sha256:..."}}}.',
                    code=2,
                )
            _check(folder / name, known)
        if (folder / "test_batch.bin").exists():
            shape = source.get("shape", RECORD_SHAPE)
            if len(shape) != 3 or not all(isinstance(length, int) and length > 0 for length in shape):
                raise LockstepError(f"{folder / SOURCE} tells a shape of {shape}.", SHAPE_REMEDY, code=2)
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


def _where_from(folder: Path) -> str:
    """How images could come into a folder that has none."""
    if folder.is_dir() and any(path.is_dir() for path in folder.iterdir()):
        return f"If it holds pictures, a folder for each class, `lockstep data pictures {folder}` makes images of them"
    known = entries.load().get(folder.name)
    if known is not None and known.classes:
        return f"`lockstep data get {folder.name} --to {folder}` gets them"
    return "`lockstep data list` names some, and `lockstep data pictures` makes them of picture files"


_AGAIN = "Remove the folder and get it again (a copy of a remote one is fetched anew)."


def _check(path: Path, known: dict[str, Any]) -> None:
    """Every byte: a run that goes on with other images than it began with must not pass for the same."""
    size = path.stat().st_size if path.exists() else 0
    if size != known["bytes"]:
        raise LockstepError(f"{path} is damaged: it has {size} bytes instead of {known['bytes']}.", _AGAIN)
    found, kind = "", str(known["digest"]).partition(":")[0]
    if kind in hashlib.algorithms_available:
        found = digest(path, kind)
    if found != known["digest"]:
        raise LockstepError(
            f"{path} is not the file that {SOURCE} tells of: its digest is another one.",
            f"{_AGAIN} If you changed it yourself, write its digest into {SOURCE}.",
            code=2,
        )


def _facts(source: dict[str, Any], sets: dict[str, ImageSet], classes: list[str], hold_out: int) -> dict[str, Any]:
    """What becomes data.json. The digest names the content of all files and what is held out."""
    content = {"files": source["files"], "hold_out": hold_out}
    content |= {"shape": source["shape"]} if "shape" in source else {}
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
            upright = _in_bytes(ImageOps.exif_transpose(found), path)  # as the camera was held
            points = np.asarray(upright.convert("L" if channels == 1 else "RGB").resize((width, height)))
    except (OSError, Image.DecompressionBombError, *DAMAGES) as error:
        large = isinstance(error, Image.DecompressionBombError)
        why = "it is too large" if large else getattr(error, "strerror", None) or "it is no picture, or damaged"
        raise LockstepError(f"{path} cannot be read: {why}.", "Name picture files (PNG, JPEG, ...).", code=2) from None
    return points.reshape(height, width, channels).transpose(2, 0, 1)


def _in_bytes(found: "Image", path: Path) -> "Image":
    """Points of 16 bits lose their lower half; Pillow would take almost all of them for white."""
    from PIL import Image

    if found.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(found).astype(np.uint16) >> 8).astype(np.uint8))
    if found.mode in ("I", "F"):
        remedy = "Save it with 8 or 16 bits a point."
        raise LockstepError(f"{path} has points of 32 bits, and what is black and white in it is not told.", remedy, 2)
    return found


def _records(folder: Path, name: str, shape: tuple[int, ...]) -> ImageSet:
    paths = sorted(folder.glob("test_batch.bin" if name == "test" else "data_batch_*.bin"))
    size, found = 1 + math.prod(shape), [np.fromfile(path, np.uint8) for path in paths]
    if not found or any(len(one) % size for one in found):
        points = " x ".join(map(str, shape))
        raise LockstepError(
            f"The {name} images in {folder} are not records of {size} bytes, one of label and {points} of points.",
            SHAPE_REMEDY,
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
