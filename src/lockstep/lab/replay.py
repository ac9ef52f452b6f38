"""Opens the data of a run again and replays the order of its global batches. Nothing is trained."""

from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import JsonValue

from lockstep.config import RunConfig, load
from lockstep.errors import LockstepError
from lockstep.files import damaged, read_json
from lockstep.run.directory import RunDirectory
from lockstep.tasks.classification import Classification
from lockstep.tasks.make_task import make_task
from lockstep.tasks.task import GlobalBatch, Task
from lockstep.tasks.translation import Translation


def open_task(folder: Path) -> tuple[Task, RunConfig]:
    """Returns the task of a run, with the batch size of its first start and the corpus that it was trained on, and the
    run's config."""
    run = RunDirectory(folder)
    config = load(run.config, [])
    choices, data = read_json(run.choices), read_json(run.data)
    if choices is None or data is None:
        missing = run.data.name if data is None else run.choices.name
        raise LockstepError(f"{folder} is not a run: it has no {missing}.", "Name a folder of `lockstep train`.", 2)
    try:
        batch = type(config.batch).model_validate(config.batch.model_dump() | choices["batch"])
    except (KeyError, TypeError, ValueError):
        raise damaged(run.choices, "batch is missing or wrong") from None
    if not isinstance(data.get("digest"), str):
        raise damaged(run.data, "digest is missing or wrong")
    task = make_task(config.model_copy(update={"batch": batch}))
    expected, actual = data["digest"], str(task.data_facts["digest"])
    if actual != expected:
        raise LockstepError(
            f"The corpus is not the one that {folder} was trained on (digest {expected[:12]}, now {actual[:12]}).",
            f"Restore the corpus {task.data_folder}.",
            code=2,
        )
    return task, config


def find_batch(task: Task, step: int) -> GlobalBatch:
    """Returns the global batch of a step, from 1. Each step of a run takes the next batch of the order."""
    return next(islice(task.batches(0, 0), step - 1, None))


def describe_samples(task: Task, indices: np.ndarray) -> list[dict[str, JsonValue]]:
    """Returns each sample in words: a pair as text, an image as its class. Of your own tasks only the indices are known."""
    if isinstance(task, Translation):
        texts = zip(_decode(task, "source", indices), _decode(task, "target", indices), strict=True)
        return [
            {"index": int(index), "source": source, "target": target}
            for index, (source, target) in zip(indices, texts, strict=True)
        ]
    if isinstance(task, Classification):
        classes, labels = task.corpus.classes, task.train.labels[indices]
        return [
            {"index": int(index), "class": classes[label]}
            for index, label in zip(indices, labels.tolist(), strict=True)
        ]
    return [{"index": int(index)} for index in indices]


def _decode(task: Translation, side: Literal["source", "target"], indices: np.ndarray) -> list[str]:
    """Returns sentences as their pieces spell them; cleaning and normalization are not undone."""
    ids, lengths = (task.pairs.source if side == "source" else task.pairs.target).gather(indices)
    sentences = np.split(ids, np.cumsum(lengths)[:-1])
    return task.corpus.vocabulary.decode([sentence.tolist() for sentence in sentences]) if len(indices) else []
