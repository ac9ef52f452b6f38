"""Which task a configuration asks for."""

from typing import Protocol

from lockstep.data.settings import BatchSettings, DataSettings
from lockstep.models.settings import TranslationSettings
from lockstep.tasks.task import Task
from lockstep.translate.settings import SearchSettings


class _Train(Protocol):
    @property
    def label_smoothing(self) -> float: ...
    @property
    def seed(self) -> int: ...


class Configuration(Protocol):
    """The part of a run's configuration that a task reads."""

    @property
    def data(self) -> DataSettings: ...
    @property
    def batch(self) -> BatchSettings: ...
    @property
    def model(self) -> TranslationSettings: ...
    @property
    def search(self) -> SearchSettings: ...
    @property
    def train(self) -> _Train: ...


def make_task(config: Configuration) -> Task:
    """Opens the data (and prepares it when it is not there yet) and gets everything ready to train on it."""
    from lockstep.data.prepare import prepare
    from lockstep.tasks.translation import Translation

    corpus = prepare(config.data)
    return Translation(
        corpus, config.batch, config.model, config.search, config.train.label_smoothing, config.train.seed
    )
