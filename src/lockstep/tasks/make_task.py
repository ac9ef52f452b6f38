"""Builds the task that a configuration names."""

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Protocol

from lockstep.data.data_settings import BatchSettings, DataSettings
from lockstep.errors import LockstepError
from lockstep.models.model_settings import ResNetSettings, TranslationSettings
from lockstep.tasks.task import Task
from lockstep.translate.search_settings import SearchSettings


class _TrainSettings(Protocol):
    @property
    def label_smoothing(self) -> float: ...
    @property
    def seed(self) -> int: ...


class Configuration(Protocol):
    """The part of a run's configuration that a task reads."""

    @property
    def task_name(self) -> str: ...
    @property
    def data(self) -> DataSettings: ...
    @property
    def batch(self) -> BatchSettings: ...
    @property
    def model(self) -> TranslationSettings | ResNetSettings: ...
    @property
    def search(self) -> SearchSettings: ...
    @property
    def train(self) -> _TrainSettings: ...


def make_task(config: Configuration, on_device: bool = False) -> Task:
    """Returns the task with its data opened. Text that has not been prepared yet is prepared first. `on_device`: the model
    trains on a GPU, which may do a part of the input's work."""
    classification = partial(_make_classification, on_device=on_device)
    makers: dict[str, Callable[[Configuration], Task]] = {
        "translation": _make_translation,
        "classification": classification,
    }
    return (makers.get(config.task_name) or _import_maker(config.task_name))(config)


def _make_translation(config: Configuration) -> Task:
    from lockstep.data.corpus.prepare import prepare
    from lockstep.tasks.translation import Translation

    if not isinstance(config.model, TranslationSettings):
        raise _unfit_model(config, "cannot translate text", "transformer")
    corpus = prepare(config.data)
    return Translation(
        corpus, config.batch, config.model, config.search, config.train.label_smoothing, config.train.seed
    )


def _make_classification(config: Configuration, on_device: bool) -> Task:
    from lockstep.data.corpus.remote_copies import fetch_images
    from lockstep.data.images.image_set import ImageCorpus
    from lockstep.tasks.classification import Classification

    if config.data.images is None:
        raise LockstepError("task=classification needs images.", "Set data.images.", code=2)
    if not isinstance(config.model, ResNetSettings):
        raise _unfit_model(config, "cannot classify images", "resnet")
    corpus = ImageCorpus.open(fetch_images(config.data.images), config.data.hold_out)
    augmentation, smoothing = config.data.augment, config.train.label_smoothing
    return Classification(corpus, config.batch, config.model, augmentation, smoothing, config.train.seed, on_device)


def _unfit_model(config: Configuration, reason: str, alternative: str) -> LockstepError:
    return LockstepError(f"model.name={config.model.name} {reason}.", f"Use model.name={alternative}.", code=2)


def _import_maker(name: str) -> Callable[[Configuration], Task]:
    """Imports a function that the user names as `module:function`. The module may be in the current folder."""
    module, _, function = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        make: Callable[[Configuration], Task] = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise LockstepError(
            f"task={name} cannot be found ({error}).",
            "Use translation, classification, or your own module:function; docs/develop/extend.md has an example.",
            code=2,
        ) from None
    return make
