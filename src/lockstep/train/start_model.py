"""The model from which a run starts (`train.start_from`): the weights, sizes and vocabulary of another run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from pydantic import JsonValue

from lockstep.ablation import Ablation
from lockstep.config import RunConfig
from lockstep.errors import LockstepError
from lockstep.files import sha256
from lockstep.notices import warn
from lockstep.run.checkpoint import find_model, read_checkpoint, read_model_config, report_unusable
from lockstep.run.directory import RunDirectory
from lockstep.settings import is_fixed

if TYPE_CHECKING:
    from torch import nn

WEIGHTS, VOCABULARY = "model.safetensors", "vocabulary.model"


StartFacts = TypedDict("StartFacts", {"from": str, "model": str, "step": int | None, "sha256": str})
"""What the journal says about the start: the place that the user named, the model folder, its step and its weights."""


class SentStart(TypedDict):
    """A StartModel as it is sent."""

    place: str
    folder: str
    config: dict[str, Any]
    notice: str | None


@dataclass(frozen=True)
class StartModel:
    """A model folder, and the place that the user named."""

    place: str
    folder: Path
    config: dict[str, Any]  # its config.json: model settings, languages, vocabulary size or classes
    notice: str | None = None  # when it is not the best checkpoint of the run

    @property
    def step(self) -> int | None:
        """The step of the checkpoint; None for a model folder that is not part of one."""
        checkpoint = read_checkpoint(self.folder.parent)
        return None if checkpoint is None else checkpoint.step

    @property
    def run(self) -> Path | None:
        """The folder of the run that trained the model, if it is still part of that run."""
        run = self.folder.parent.parent.parent
        return run if (run / "config.yaml").is_file() and (run / "choices.json").is_file() else None

    @staticmethod
    def send(start: "StartModel | None") -> "SentStart | None":
        """Returns what the primary tells the other workers."""
        if start is None:
            return None
        return {"place": start.place, "folder": str(start.folder), "config": start.config, "notice": start.notice}

    @staticmethod
    def receive(facts: "SentStart | None") -> "StartModel | None":
        if facts is None:
            return None
        return StartModel(facts["place"], Path(facts["folder"]), facts["config"], facts["notice"])

    def facts(self) -> StartFacts:
        digest = sha256(self.folder / WEIGHTS)
        return {"from": self.place, "model": str(self.folder.absolute()), "step": self.step, "sha256": digest}


def find_start(place: str | Path) -> StartModel:
    """Finds the model at a place: the best one of a run, or that of a checkpoint or model folder. It may be remote."""
    from lockstep.remote.fetch_run import fetch_model

    local = fetch_model(place, "best")
    try:
        model = find_model(Path(local).expanduser())
    except LockstepError as error:
        remedy = "Name a run, a checkpoint or a model folder. `lockstep train --run RUN` continues a run without it."
        raise LockstepError(f"train.start_from={place}: {error.message}", remedy, code=2) from None
    with report_unusable(model.folder):
        config = read_model_config(model.folder, "model", "computes")
    return StartModel(str(place), model.folder, config, model.notice)


def apply_start(config: RunConfig, overrides: Sequence[str] = ()) -> RunConfig:
    """Takes model settings, vocabulary and languages from the start model. Settings that the config gives itself must fit
    it, but if `overrides` name the start model, it wins over the sizes of the file.

    The config that a run has recorded is complete: it stays valid when the start model is gone."""
    if config.train.start_from is None:
        return config
    try:
        start = find_start(config.train.start_from)
    except LockstepError:
        if config.data.vocabulary.model is not None:
            return config
        raise
    if start.notice is not None:
        warn(start.notice)
    keys = {override.partition("=")[0].strip() for override in overrides}
    sizes = _list_sizes(config, start)
    differing = {key: values for key, values in sizes.items() if values[0] != values[1]}
    refused = {key: values for key, values in differing.items() if key in keys or "train.start_from" not in keys}
    if refused:
        raise _unfit_error(start, refused)
    if differing:
        warn(f"The sizes of {start.place} are used, not those of the config: {', '.join(differing)}.")
    tree = config.model_dump(mode="json")
    given = config.model.model_dump(mode="json", include=config.model.model_fields_set)
    changes = {name: value for name, value in given.items() if f"model.{name}" not in sizes}
    tree["model"] = start.config["model"] | changes
    if "vocabulary_size" in start.config:
        size = int(start.config["vocabulary_size"])
        tree["data"]["vocabulary"] |= {"model": str(start.folder.absolute() / VOCABULARY), "size": size}
        tree["data"]["languages"] = _choose_languages(config, start)
    with report_unusable(start.folder):
        return RunConfig.model_validate(tree)


def _list_sizes(config: RunConfig, start: StartModel) -> dict[str, tuple[JsonValue, JsonValue]]:
    """Returns the settings of the config that decide the shape of the model, each with the start model's value and its
    own."""
    theirs, fields = start.config["model"], type(config.model).model_fields
    given = config.model.model_dump(mode="json", include=config.model.model_fields_set)
    sizes = {f"model.{name}": (theirs.get(name), value) for name, value in given.items() if is_fixed(fields[name])}
    vocabulary = config.data.vocabulary
    if "vocabulary_size" in start.config and "size" in vocabulary.model_fields_set:
        sizes["data.vocabulary.size"] = (start.config["vocabulary_size"], vocabulary.size)
    return sizes


def _choose_languages(config: RunConfig, start: StartModel) -> list[str]:
    """Returns the languages of the config, or those of the start model if it names none."""
    theirs, ours = list(start.config.get("languages", config.data.languages)), list(config.data.languages)
    if "languages" not in config.data.model_fields_set:
        return theirs
    if theirs != ours:
        translates = " to ".join(theirs)
        warn(f"{start.place} translates {translates}, and this run {' to '.join(ours)}: check data.languages.")
    return ours


def _unfit_error(start: StartModel, differing: Mapping[str, tuple[JsonValue, JsonValue]]) -> LockstepError:
    listed = ", ".join(f"{key} is {theirs} there and {ours} here" for key, (theirs, ours) in differing.items())
    remedy = "Remove these settings: a run takes the sizes and the vocabulary of the model it starts from."
    return LockstepError(f"The model of train.start_from={start.place} does not fit: {listed}.", remedy, code=2)


def find_needed_start(config: RunConfig, run: RunDirectory, ablation: Ablation) -> StartModel | None:
    """Returns the model whose weights this launch must read; None when there is none, or a checkpoint replaces it."""
    place = config.train.start_from
    if place is None or ablation.active or any(run.checkpoints.glob("step-*")):
        return None
    return find_start(place)


def check_vocabulary(start: StartModel, data_facts: Mapping[str, Any]) -> None:
    """Refuses a corpus that was encoded with another vocabulary: its ids would mean other words to the model."""
    vocabulary = start.folder / VOCABULARY
    if vocabulary.is_file() and data_facts["vocabulary"]["digest"] != sha256(vocabulary):
        remedy = "Choose another data.corpus, or make it again with `lockstep prepare --force`."
        raise LockstepError(
            f"The corpus does not have the vocabulary of train.start_from={start.place}.", remedy, code=2
        )


def load_start(module: "nn.Module", folder: Path | None) -> "nn.Module":
    """Copies the weights of an exported model into the new module of a task. Without a folder it stays as it is."""
    from safetensors.torch import load_file

    if folder is not None:
        with report_unusable(folder):
            weights = load_file(folder / WEIGHTS)
            is_whole = weights.keys() == module.state_dict().keys()
            part = module if is_whole else module.get_submodule("model")  # translation is exported without its loss
            part.load_state_dict(weights)
    return module
