"""The tree of all settings of a run."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Self, get_args

import yaml
from pydantic import BaseModel, JsonValue, ValidationError, model_validator
from pydantic.fields import FieldInfo

from lockstep.data.data_settings import BATCH_IMAGES, BATCH_WORDS, BatchSettings, DataSettings
from lockstep.models.model_settings import ModelSettings, TransformerSettings
from lockstep.parallel.strategy_settings import AllReduceSettings, StrategySettings
from lockstep.settings import FIXED, Settings, flat, is_fixed
from lockstep.train.train_settings import OptimizerSettings, ScheduleSettings, TrainSettings
from lockstep.translate.search_settings import SearchSettings
from lockstep.watch.watch_settings import WatchSettings


class RunConfig(Settings):
    """All settings of a run."""

    task: Annotated[str, FIXED] = "auto"
    """What is learned: `translation`, `classification`, or `module:function` for a task that you wrote yourself
    (docs/develop/extend.md). `auto` is `classification` if data.images is set, else `translation`."""
    data: DataSettings = DataSettings()
    """The text or images to train on."""
    batch: BatchSettings = BatchSettings(words=BATCH_WORDS)
    """How many sentences or images make up a step, and in which order."""
    model: ModelSettings = TransformerSettings()
    """The model to train. model.name chooses it (default: transformer), and each model has its own settings."""
    train: TrainSettings = TrainSettings()
    """How long to train, how often to evaluate and save, and in which precision."""
    optimizer: OptimizerSettings = OptimizerSettings()
    """The optimizer, which turns gradients into updates of the weights."""
    schedule: ScheduleSettings = ScheduleSettings()
    """The learning rate as a function of the step."""
    strategy: StrategySettings = AllReduceSettings()
    """How the workers exchange gradients. strategy.name chooses the strategy, and each strategy has its own settings."""
    search: SearchSettings = SearchSettings()
    """Beam search, in evaluations during training and in `lockstep evaluate` and `lockstep translate`."""
    watch: WatchSettings = WatchSettings()
    """What is measured during training, besides loss and scores."""
    own: Annotated[dict[str, Any], FIXED] = {}
    """Settings that your own task reads (see `task`). You choose their names; the built-in tasks accept none."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_by_the_data(cls, tree: object) -> object:
        """Defaults that depend on the data: the size of a batch, and the model for images."""
        if not isinstance(tree, dict):
            return tree
        data = tree.get("data")
        has_images = isinstance(data, dict) and data.get("images") is not None
        batch = {} if tree.get("batch") is None else tree["batch"]
        if isinstance(batch, dict) and batch.keys().isdisjoint(("words", "sentences", "images")):
            size = {"images": BATCH_IMAGES} if has_images else {"words": BATCH_WORDS}
            tree = tree | {"batch": size | batch}
        if has_images and tree.get("model") is None:
            tree = tree | {"model": {"name": "resnet"}}
        return tree

    @model_validator(mode="after")
    def _fits_the_task(self) -> Self:
        if ":" in self.task:
            return self  # a task of the user checks its settings itself
        if self.own:
            raise ValueError(f"own.{next(iter(self.own))} is only for your own task, and task is {self.task}")
        self.data.check_input()
        return self

    @model_validator(mode="after")
    def _workers_save_together(self) -> Self:
        is_async = self.strategy.name == "server" and self.strategy.mode == "async"
        if is_async and self.train.checkpoint_every == "auto":
            raise ValueError(
                "train.checkpoint_every=auto needs workers that save together, and with strategy.mode=async they pause for "
                "worker 0 at steps that must be known before: set a number"
            )
        return self

    @property
    def task_name(self) -> str:
        """The name of the task; `auto` is resolved by the data."""
        if self.task != "auto":
            return self.task
        return "translation" if self.data.images is None else "classification"

    @property
    def warmup_notice(self) -> str | None:
        """What to say about a warm-up that does not end within the run. It is no error: the run may be extended."""
        warmup, steps = self.schedule.warmup, self.train.steps
        if warmup <= steps:
            return None
        return (
            f"The warm-up (schedule.warmup={warmup}) does not end within train.steps={steps}: the learning rate rises to "
            "the last step and never reaches its peak."
        )

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _find_variants(group: str) -> dict[str, type[BaseModel]]:
    """The settings classes of a group, by the names that choose them."""
    classes = get_args(RunConfig.model_fields[group].annotation)
    return {name: one for one in classes for name in get_args(one.model_fields["name"].annotation)}


VARIANTS = {group: _find_variants(group) for group in ("model", "strategy")}
"""The groups whose `name` decides which settings they have."""


def accepts(settings: type[BaseModel], key: str, value: JsonValue) -> bool:
    """Does this settings class have this setting, and is the value valid for it?"""
    try:
        settings.model_validate({key: value})
    except ValidationError as error:
        return not any(problem["loc"][:1] == (key,) for problem in error.errors())
    return True


def list_owners(group: str, has_it: Callable[[type[BaseModel]], bool]) -> list[str]:
    """The models or strategies whose settings class satisfies `has_it`, without `auto`, which is the same as allreduce."""
    return [name for name, one in VARIANTS[group].items() if has_it(one) and name != "auto"]


def enumerate_names(names: list[str], one: str = "", several: str = "") -> str:
    """`a, b and c`, followed by the verb for one or for several."""
    text = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"{text} {one if len(names) == 1 else several}".rstrip()


def list_fields(model: type[BaseModel] = RunConfig, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yields every setting with its dotted name; groups come before their members. A setting that several models or
    strategies have comes once for each of their classes, the default class first."""
    for name, info in model.model_fields.items():
        yield prefix + name, info
        for part in (info.annotation, *get_args(info.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from list_fields(part, f"{prefix}{name}.")


Changes = dict[str, tuple[JsonValue, JsonValue]]
"""The old and the new value of settings, by their dotted names; None also where a setting did not exist."""


def differences(old: RunConfig, new: RunConfig) -> tuple[Changes, Changes]:
    """What changed between two configs: (settings that a resumed run must keep, settings that it may change)."""
    before, after = flat(old.model_dump(mode="json")), flat(new.model_dump(mode="json"))
    fixed_names = {name for name, info in list_fields() if is_fixed(info)}
    fixed: Changes = {}
    free: Changes = {}
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            must_stay = key in fixed_names or key.partition(".")[0] in fixed_names
            (fixed if must_stay else free)[key] = (before.get(key), after.get(key))
    return fixed, free
