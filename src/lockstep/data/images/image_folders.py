"""Folders of picture files, one for each class, made into images that can be trained on.

`train/cat/1.jpg` and `test/cat/2.jpg`, or `cat/1.jpg` alone: then about a tenth, chosen by the digest of its path, is
kept for the test, the same however many pictures are added later.
"""

import hashlib
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lockstep.data.images.image_set import CLASSES, SOURCE, Bytes, picture
from lockstep.errors import LockstepError
from lockstep.files import disk_error, facts_of_files, locked, sync, whole_folder, write_json, write_whole

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".ppm", ".tif", ".tiff")
TRAIN_NAMES, TEST_NAMES = ("train", "training"), ("test", "testing", "val", "valid", "validation", "dev")
"""Of folders that hold a set and not a class, in any spelling."""
FILES = {"train": "data_batch_1.bin", "test": "test_batch.bin"}
MOST_CLASSES = 256
"""A label is a byte."""
TEST_SHARE = 10
AT_ONCE = 512
"""Pictures in memory; they are read with all cores."""
SHOWN = 5
"""Of those that cannot be read."""

Progress = Callable[[str, int, int], None]
"""Name of the set, pictures done, all of them."""


@dataclass(frozen=True)
class ImageFiles:
    """Pictures and the number of their class. Classes are mixed: the last pictures may be held out of the training."""

    classes: list[str]
    sets: dict[str, list[tuple[Path, int]]]


def find(folder: Path) -> ImageFiles:
    """What a folder holds. Files that are no pictures by their ending are passed over."""
    if not folder.is_dir():
        raise LockstepError(f"There is no folder {folder}.", "Name the folder that holds a folder for each class.", 2)
    roots = _roots(folder)
    classes = sorted({path.name for root in roots.values() for path in root.iterdir() if path.is_dir()})
    sets: dict[str, list[tuple[Path, int]]] = {"train": [], "test": []}
    for name, root in roots.items():
        labelled = [(path, label) for label, kind in enumerate(classes) for path in _pictures(root / kind)]
        for drawn, one in sorted((_draw(path.relative_to(root)), (path, label)) for path, label in labelled):
            sets[("test" if drawn[0] % TEST_SHARE == 0 else "train") if name == "all" else name].append(one)
    _check(folder, classes, sets)
    return ImageFiles(classes, sets)


def _roots(folder: Path) -> dict[str, Path]:
    """Where training and test pictures lie, or where all of them do."""
    inner = {path.name.lower(): path for path in sorted(folder.iterdir()) if path.is_dir()}
    train, test = ([inner[name] for name in names if name in inner] for names in (TRAIN_NAMES, TEST_NAMES))
    if not train:
        return {"all": folder}
    if len(train) > 1 or len(test) != 1:
        there = " and ".join(path.name for path in [*train, *test])
        raise LockstepError(
            f"{folder} holds {there}: which pictures are for training and which for the test is not clear.",
            f"Leave one folder for training and one for the test ({', '.join(TEST_NAMES)}). For evaluations while it "
            "trains, data.hold_out keeps some of the training images back.",
            code=2,
        )
    return {"train": train[0], "test": test[0]}


def _pictures(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS] if folder.is_dir() else []


def _draw(path: Path) -> bytes:
    """As good as random, and always the same."""
    return hashlib.sha256(os.fsencode(path.as_posix())).digest()


def _check(folder: Path, classes: list[str], sets: dict[str, list[tuple[Path, int]]]) -> None:
    remedy = (
        "Give every class a folder of its own with pictures in it: FOLDER/CLASS/*.jpg, or train/ and test/ with such."
    )
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise LockstepError(f"{folder} holds {len(classes)} classes; 2 to {MOST_CLASSES} can be told apart.", remedy, 2)
    for name, pictures in sets.items():
        without = sorted(set(classes) - {classes[label] for _, label in pictures}) if name == "train" else []
        if without:
            raise LockstepError(
                f"There is no picture of the class {without[0]} to learn from in {folder}.", remedy, code=2
            )
        if not pictures:
            raise LockstepError(f"There is no picture for the test in {folder}.", remedy, code=2)


def make(folder: Path, to: Path, size: int, grey: bool = False, progress: Progress = lambda *_: None) -> dict[str, Any]:
    """Writes the images of a folder to `to`, each squeezed to `size` x `size` points, and a config; returns classes and
    how many images each set has."""
    found, to = find(folder), to.expanduser().resolve()
    shape = (1 if grey else 3, size, size)
    try:
        with locked(to.with_name(f".{to.name}.lock")):
            if to.exists() and (not to.is_dir() or any(to.iterdir())):
                raise LockstepError(f"{to} is there already.", "Name another folder with --to.", code=2)
            with whole_folder(to) as partial:
                bad = list[LockstepError]()
                for name, pictures in found.sets.items():
                    with (partial / FILES[name]).open("wb") as file:
                        for done, records in _records(pictures, shape, bad):
                            file.write(records)
                            progress(name, done, len(pictures))
                if bad:
                    raise _unreadable(bad)
                write_whole(partial / CLASSES, "".join(f"{name}\n" for name in found.classes))
                counts = {name: len(pictures) for name, pictures in found.sets.items()}
                facts = {"name": to.name, "counts": counts, "shape": shape, "files": facts_of_files(partial)}
                for path in partial.iterdir():
                    sync(path)
                write_json(partial / SOURCE, facts)
                write_whole(partial / f"{to.name}.yaml", _config(to, counts["train"], size))  # to be edited
    except OSError as error:
        raise disk_error(to, error, "name another folder with --to") from None
    return {"classes": found.classes, "counts": counts}


def _config(to: Path, images: int, size: int) -> str:
    """A residual network for this many images: thirty times through them, and evaluations without the test images."""
    batch = max(8, min(128, images // 20))
    steps = max(1, 30 * images // batch)
    often = max(1, steps // 15)
    tree = {
        "data": {"images": str(to), "hold_out": images // 10, "augment": {"pad": size // 8, "flip": True}},
        "batch": {"images": batch},
        "model": {"name": "resnet", "depth": 20},
        "train": {"steps": steps, "evaluate_every": often, "checkpoint_every": often, "label_smoothing": 0.0},
        "optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
        "schedule": {"name": "cosine", "peak": 0.1 * batch / 128, "warmup": often},
    }
    told = "# Written by `lockstep data pictures`. Mirrored images (flip) are wrong where left and right matter.\n"
    return told + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def _unreadable(bad: list[LockstepError]) -> LockstepError:
    more = f" So it is with {len(bad) - SHOWN} more." if len(bad) > SHOWN else ""
    told = " ".join(error.message for error in bad[:SHOWN])
    return LockstepError(f"{told}{more}", "Repair or remove them.", code=2)


def _records(
    pictures: list[tuple[Path, int]], shape: tuple[int, int, int], bad: list[LockstepError]
) -> Iterator[tuple[int, bytes]]:
    """Labels and points, some pictures at a time, and how many are done; what cannot be read is added to `bad`. Pillow
    lets other threads run meanwhile."""

    def points_of(path: Path) -> Bytes | LockstepError:
        try:
            return picture(path, shape)
        except LockstepError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for begin in range(0, len(pictures), AT_ONCE):
            some = pictures[begin : begin + AT_ONCE]
            records = np.empty((len(some), 1 + math.prod(shape)), np.uint8)
            records[:, 0] = [label for _, label in some]
            for record, points in zip(records, threads.map(points_of, [path for path, _ in some]), strict=True):
                if isinstance(points, LockstepError):
                    bad.append(points)
                else:
                    record[1:] = points.ravel()
            yield begin + len(some), records.tobytes()
