"""Copies of remote runs for commands that only read. They are separate from the folder in which a run trains, and have
only the files that the command needs."""

import shutil
from pathlib import Path
from typing import Literal

from lockstep.errors import LockstepError
from lockstep.remote.place import cache_folder, is_remote
from lockstep.remote.store import Store
from lockstep.run.checkpoint import choose, list_all

SMALL_FILES = ("config.yaml", "data.json", "choices.json", "environment.json", "proof.json", "tests.json")


def list_run_names(store: Store) -> list[str]:
    """Returns the runs below an address, as names relative to it; "" when the address itself is a run."""
    objects = store.list()
    journals = {name.rpartition("journal/")[0] for name in objects if name.endswith(".jsonl")}
    return sorted(folder.rstrip("/") for folder in journals if f"{folder}config.yaml" in objects)


def fetch_run(url: str, with_scalars: bool = False, with_manifests: bool = False) -> Path:
    """Returns a folder with the current small files and journal of a run. TensorBoard's scalars and the manifests of the
    checkpoints are optional; checkpoints are not fetched."""
    store, folder = Store(url), cache_folder("read", url)
    for name in (*store.list("journal"), *(store.list("tensorboard") if with_scalars else ())):
        store.fetch(name, folder / name)
    for name in SMALL_FILES:
        data = store.read(name)
        if data is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    if with_manifests:
        _fetch_manifests(store, folder, list(store.list("checkpoints")))
    return folder


def fetch_model(place: str | Path, which: Literal["best", "last"], average: int = 1) -> Path:
    """Returns a local folder for `find_model`, which has the model of a run, a checkpoint or a model folder; to `average`
    more than one, those of all checkpoints. A local `place` is returned as it is."""
    if not is_remote(place):
        return Path(place)
    url = str(place)
    store, folder = Store(url), cache_folder("read", url)
    objects = store.list()
    model = [name for name in objects if name.startswith("model/")]
    if "model.safetensors" in objects:
        _fetch_all(store, folder, list(objects))
    elif model:
        _fetch_all(store, folder, model)
    else:
        _fetch_checkpoints(store, folder, which, list(objects), average)
    return folder


def _fetch_checkpoints(
    store: Store, folder: Path, which: Literal["best", "last"], objects: list[str], average: int
) -> None:
    fetch_run(store.url)
    _fetch_manifests(store, folder, objects)
    checkpoints = list_all(folder / "checkpoints")
    if not checkpoints:
        raise LockstepError(
            f"There is no trained model in {store.url}.", "Name a run with a checkpoint, or train one first.", code=2
        )
    for saved in checkpoints if average > 1 else [choose(checkpoints, which).saved]:
        if saved.damage("model/") is not None:
            files = [f"checkpoints/{saved.path.name}/{name}" for name in saved.manifest["files"]]
            _fetch_all(store, folder, [name for name in files if "/model/" in name and name in objects])
        if damage := saved.damage("model/"):
            raise LockstepError(f"{saved.path.name} of {store.url} is damaged: {damage}.", "Take another checkpoint.")


def _fetch_manifests(store: Store, folder: Path, objects: list[str]) -> None:
    """Fetches the manifests of all checkpoints, and deletes local copies of checkpoints that no longer exist."""
    manifests = [name for name in objects if name.startswith("checkpoints/") and name.endswith("/manifest.json")]
    local = {path.name for path in (folder / "checkpoints").glob("step-*")}
    for name in local - {name.split("/")[1] for name in manifests}:
        shutil.rmtree(folder / "checkpoints" / name)
    _fetch_all(store, folder, manifests)


def _fetch_all(store: Store, folder: Path, names: list[str]) -> None:
    for name in names:
        store.fetch(name, folder / name)
