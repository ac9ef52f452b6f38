"""Measures text and machine, and chooses sizes that suit them, for settings that a config leaves out."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.config import RunConfig
    from lockstep.config.sizes import Sizes, TrainingMachine
    from lockstep.data.data_settings import DataSettings
    from lockstep.data.text.survey import Survey

MOST_PAIRS = 2_000_001
"""More pairs than this get the largest sizes, so there is no need to count them."""
MORE_PIECES_THAN_WANTED = 64_000
FILLED_IN = ("data.vocabulary.", "batch.", "model.", "train.", "schedule.", "search.")
SHOWN_KEYS = ("data.vocabulary.size", "batch.words", "model.width", "train.steps")


@dataclass(frozen=True)
class FittedSizes:
    """What was counted, and the sizes that suit it."""

    survey: "Survey"
    machine: "TrainingMachine"
    sizes: "Sizes"


def fit_sizes(data: "DataSettings", seconds: float | None = None) -> FittedSizes:
    """Counts the training text, for at most this many seconds, and chooses sizes for it and this machine."""
    from lockstep.config.sizes import TextFacts, choose_sizes
    from lockstep.data.corpus.vocabulary import count_pieces, find_largest_size
    from lockstep.data.text.survey import survey

    counted = survey(data, "train", MOST_PAIRS, seconds)
    settings = data.vocabulary.model_copy(update={"size": MORE_PIECES_THAN_WANTED})
    largest = find_largest_size(settings, counted.sample) if counted.sample else None
    machine = read_machine_facts()
    split = len(data.split_sets) * min(data.split.most, round(data.split.share * counted.clean_pairs))
    trained_pairs = max(1, counted.clean_pairs - split)
    text = TextFacts(
        counted.pairs, counted.mean_words, counted.characters, counted.common_characters, largest, trained_pairs
    )
    if counted.sample:
        chosen = choose_sizes(text, machine).as_dict()
        size, coverage = chosen["data.vocabulary.size"], chosen.get("data.vocabulary.coverage", 1.0)
        trial = data.vocabulary.model_copy(update={"size": size, "coverage": coverage})
        text = replace(text, mean_pieces=count_pieces(trial, counted.sample, counted.sides[1]))
    return FittedSizes(counted, machine, choose_sizes(text, machine))


def read_machine_facts() -> "TrainingMachine":
    """The cores, the memory and the GPUs of this machine. It does not import torch."""
    import psutil

    from lockstep.config.sizes import TrainingMachine
    from lockstep.watch.gpus import Gpus

    return TrainingMachine(
        cores=len(os.sched_getaffinity(0)),
        memory_gb=psutil.virtual_memory().total / 1e9,
        gpus=len(Gpus()(1.0)),
    )


def fill_in_sizes(config: "RunConfig", words: list[str], run: str | Path | None) -> "RunConfig":
    """The config of `CONFIG key=value ...`, which names no batch, with sizes for what it leaves out: those of the run if it
    exists already, else those that suit the text and this machine."""
    from lockstep.config import apply_override, as_yaml, build, load, read_tree
    from lockstep.errors import LockstepError
    from lockstep.notices import warn
    from lockstep.run.directory import RunDirectory
    from lockstep.settings import flat

    recorded = RunDirectory(Path(run)).config if run is not None else None
    try:
        if recorded is not None and recorded.exists():
            before = flat(load(recorded, []).model_dump(mode="json"))
            chosen = {key: value for key, value in before.items() if key.startswith(FILLED_IN)}
        else:
            chosen = fit_sizes(config.data).sizes.as_dict()
    except LockstepError:  # unreadable text: preparation reports it
        return config
    tree = read_tree(Path(words[0]), words[1:])
    given = {*flat(tree), *(["batch.words"] if config.batch.sentences else [])}
    has_sizes = chosen.get("model.name", "transformer") == config.model.name
    foreign = ("model.", "data.vocabulary.") if config.train.start_from else () if has_sizes else ("model.",)
    left_out = {key: value for key, value in chosen.items() if key not in given and not key.startswith(foreign)}
    for key, value in left_out.items():
        apply_override(tree, f"{key}={as_yaml(value)}")
    if recorded is None or not recorded.exists():
        sizes = ", ".join(f"{key} {as_yaml(left_out[key])}" for key in SHOWN_KEYS if key in left_out)
        warn(f"{words[0]} names no batch. Sizes that suit its text and this machine are used: {sizes}.")
    return build(tree, words[0], words[1:])
