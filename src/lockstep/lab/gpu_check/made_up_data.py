"""A small corpus and a few images, always the same, with configs that train on them."""

import random
from pathlib import Path

import numpy as np
import yaml

from lockstep.files import digest, write_json

WORDS = [consonant + vowel for consonant in "bdgklmn" for vowel in "aeiou"]
STEPS = 30


def write_data(folder: Path) -> dict[str, Path]:
    """Writes data and configs; returns the config of each model."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, pairs) in enumerate({"train": 600, "valid": 12}.items()):
        _write_pairs(folder, name, pairs, seed)
    _write_images(folder / "images")
    text = {
        "folder": str(folder),
        "train": ["train"],
        "validation": ["valid"],
        "corpus": str(folder / "corpus"),
        "vocabulary": {"size": 330},
    }
    train: dict[str, object] = {
        "steps": STEPS,
        "evaluate_every": STEPS,
        "checkpoint_every": 10**9,
        "threads": 1,
        "clip": 1.0,
    }
    train |= {"kernels": "torch", "restarts": 0, "label_smoothing": 0.1, "seed": 1}
    schedule: dict[str, object] = {"name": "constant", "peak": 0.002, "warmup": 4}
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "width": 64, "feed_forward": 128, "heads": 4, "dropout": 0.0}
    lstm = {"name": "lstm", "encoder_layers": 1, "decoder_layers": 2, "width": 32, "dropout": 0.0}
    search = {"beam": 2, "max_ratio": 1.0}
    translation = {"data": text, "batch": {"words": 400}, "train": train, "schedule": schedule, "search": search}
    images = {
        "data": {"images": str(folder / "images"), "augment": {"pad": 2, "cutout": 6}},
        "batch": {"images": 24},
        "model": {"name": "resnet", "depth": 8, "channels": 8},
        "train": train,
        "optimizer": {"name": "sgd", "nesterov": True, "weight_decay": 5e-4},
        "schedule": schedule | {"peak": 0.02},
    }
    configs = {
        "transformer": translation | {"model": sizes},
        "lstm": translation | {"model": lstm},
        "resnet": images,
    }
    paths = {name: folder / f"{name}.yaml" for name in configs}
    for name, path in paths.items():
        path.write_text(yaml.safe_dump(configs[name]), encoding="utf-8")
    return paths


def _write_pairs(folder: Path, name: str, count: int, seed: int) -> None:
    """A translation is the reversed, capitalised sentence."""
    draw = random.Random(seed)
    sentences = [[draw.choice(WORDS) for _ in range(draw.randint(2, 9))] for _ in range(count)]
    (folder / f"{name}.en").write_text("".join(" ".join(words) + "\n" for words in sentences), encoding="utf-8")
    reversed_ones = "".join(" ".join(reversed(words)).title() + "\n" for words in sentences)
    (folder / f"{name}.de").write_text(reversed_ones, encoding="utf-8")


def _write_images(folder: Path) -> None:
    """A class is a brightness."""
    folder.mkdir(exist_ok=True)
    draw, counts = np.random.default_rng(5), {"train": 240, "test": 40}
    for name, count in counts.items():
        labels = draw.integers(0, 10, count).astype(np.uint8)
        images = (draw.integers(0, 100, (count, 3072)) + 15 * labels[:, None]).astype(np.uint8)
        records = np.concatenate([labels[:, None], images], axis=1)
        records.tofile(folder / ("test_batch.bin" if name == "test" else "data_batch_1.bin"))
    (folder / "classes.txt").write_text("".join(f"brightness {number}\n" for number in range(10)), encoding="utf-8")
    made = {path.name: {"bytes": path.stat().st_size, "digest": digest(path, "sha256")} for path in folder.iterdir()}
    write_json(folder / "source.json", {"name": "made-up", "counts": counts, "files": made})
