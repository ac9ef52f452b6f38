"""Measures text and machine, and chooses sizes that suit them, for settings that a config leaves out."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.config import RunConfig, Tree
    from lockstep.config.sizes import Sizes, TrainingMachine
    from lockstep.data.data_settings import DataSettings
    from lockstep.data.text.survey import Survey

MOST_PAIRS = 2_000_001
"""More pairs than this get the largest sizes, so there is no need to count them."""
MORE_PIECES_THAN_WANTED = 64_000


@dataclass(frozen=True)
class FittedSizes:
    """What was counted, and the sizes that suit it."""

    survey: "Survey"
    machine: "TrainingMachine"
    sizes: "Sizes"


def fit_sizes(data: "DataSettings", seconds: float | None = None) -> FittedSizes:
    """Counts the training text, for at most this many seconds, and chooses sizes for it and this machine."""
    from lockstep.config.sizes import TextFacts, choose_sizes
    from lockstep.data.corpus.vocabulary import find_largest_size
    from lockstep.data.text.survey import survey

    counted = survey(data, "train", MOST_PAIRS, seconds)
    settings = data.vocabulary.model_copy(update={"size": MORE_PIECES_THAN_WANTED})
    largest = find_largest_size(settings, counted.sample) if counted.sample else None
    machine = read_machine_facts()
    return FittedSizes(
        counted,
        machine,
        choose_sizes(TextFacts(counted.pairs, counted.mean_words, counted.characters, largest), machine),
    )


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


def fill_in_sizes(tree: "Tree", config: "RunConfig", recorded: "RunConfig | None") -> "Tree":
    """The settings of a config that names only its text, with sizes for what it leaves out: those of the run if it exists
    already, else those that suit the text and this machine."""
    from lockstep.config import apply_override, as_yaml
    from lockstep.errors import LockstepError
    from lockstep.settings import flat

    try:
        chosen = fit_sizes(config.data).sizes.as_dict()
    except LockstepError:  # text that is not there or cannot be read: whoever needs it will say so
        return tree
    if recorded is not None:
        before = flat(recorded.model_dump(mode="json"))
        chosen = {key: before[key] for key in chosen if key in before}
    given = flat(tree)
    for key, value in chosen.items():
        is_of_another_model = key.startswith("model.") and config.model.name != "transformer"
        is_batch_size = key == "batch.words" and not {"batch.sentences", "batch.images"}.isdisjoint(given)
        if key not in given and not is_of_another_model and not is_batch_size:
            apply_override(tree, f"{key}={as_yaml(value)}")
    return tree
