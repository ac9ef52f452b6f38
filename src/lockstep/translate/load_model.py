"""Loads the translator of a run, a checkpoint, a model folder or an export. torch is imported only for the first three."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lockstep.errors import LockstepError, missing
from lockstep.export_facts import is_export
from lockstep.notices import warn
from lockstep.remote.fetch_run import fetch_model
from lockstep.remote.place import is_remote
from lockstep.translate.average import find_models
from lockstep.translate.translator import Translator

if TYPE_CHECKING:
    from lockstep.translate.torch_engine import TorchTranslator


def load_translator(
    place: str | Path,
    *,
    checkpoint: Literal["best", "last"] = "best",
    average: int = 1,
    search: dict[str, object] | None = None,
    device: str = "auto",
) -> Translator:
    """Returns the translator of a run or its address, a checkpoint, a model folder or an export folder. `search` replaces
    settings of its search. With `average`, the weights are the mean of that many checkpoints."""
    folder = Path(place)
    if not is_remote(place) and is_export(folder):
        from lockstep.translate.ctranslate2_engine import load_export

        if average > 1:
            raise LockstepError(
                f"{folder} is an export: it has no checkpoints to average.", "Export the run with --average.", code=2
            )
        return load_export(folder, search, device)
    return load_torch(place, checkpoint=checkpoint, average=average, search=search, device=device)


def load_torch(
    place: str | Path,
    *,
    checkpoint: Literal["best", "last"] = "best",
    average: int = 1,
    search: dict[str, object] | None = None,
    device: str = "auto",
) -> "TorchTranslator":
    """Returns the translator of a run, a checkpoint or a model folder. A sentence on stderr says so if another checkpoint
    had to be taken."""
    folders, notice = find_models(fetch_model(place, checkpoint, average), checkpoint, average)
    if notice is not None:
        warn(notice)
    try:
        from lockstep.devices import pick_device
        from lockstep.translate.torch_engine import load_torch_translator
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise missing("A model that is not an export", "torch", "train") from None
    return load_torch_translator(folders, search, str(pick_device(device, 0)))
