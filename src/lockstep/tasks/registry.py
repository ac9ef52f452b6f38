"""Which task a configuration asks for."""

from typing import Protocol

from lockstep.data.corpus import Corpus
from lockstep.data.settings import BatchSettings
from lockstep.models.settings import TransformerSettings
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
    def batch(self) -> BatchSettings: ...
    @property
    def model(self) -> TransformerSettings: ...
    @property
    def search(self) -> SearchSettings: ...
    @property
    def train(self) -> _Train: ...


def make_task(config: Configuration, corpus: Corpus) -> Task:
    from lockstep.tasks.translation import Translation

    return Translation(
        corpus, config.batch, config.model, config.search, config.train.label_smoothing, config.train.seed
    )
