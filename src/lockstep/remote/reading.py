"""Copies of remote runs for commands that only read: what they need and no more, apart from where the run works."""

import shutil
from pathlib import Path
from typing import Literal

from lockstep.errors import LockstepError
from lockstep.remote.place import cache_folder, is_remote
from lockstep.remote.store import Store
from lockstep.run.checkpoint import choose, list_all

SMALL = ("config.yaml", "data.json", "choices.json", "environment.json", "proof.json")


def run_names(store: Store) -> list[str]:
    """The runs below an address, as names relative to it; "" when it is one itself."""
    objects = store.list()
    journals = {name.rpartition("journal/")[0] for name in objects if name.endswith(".jsonl")}
    return sorted(folder.rstrip("/") for folder in journals if f"{folder}config.yaml" in objects)


def copy_of_run(url: str, with_scalars: bool = False, with_manifests: bool = False) -> Path:
    """A folder with the run's small files and journal as they are now. TensorBoard's scalars and the manifests of the
    checkpoints come on demand, checkpoints never."""
    store, folder = Store(url), cache_folder("read", url)
    for name in (*store.list("journal"), *(store.list("tensorboard") if with_scalars else ())):
        store.fetch(name, folder / name)
    for name in SMALL:
        data = store.read(name)
        if data is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    if with_manifests:
        _fetch_manifests(store, folder, list(store.list("checkpoints")))
    return folder


def with_model(place: str | Path, which: Literal["best", "last"]) -> Path:
    """A local folder in which `find_model` finds the model of a run, a checkpoint or a model folder, remote or not."""
    if not is_remote(place):
        return Path(place)
    url = str(place)
    store, folder = Store(url), cache_folder("read", url)
    objects = store.list()
    model = [name for name in objects if name.startswith("model/")]
    if "model.safetensors" in objects:
        _refresh(store, folder, list(objects))
    elif model:
        _refresh(store, folder, model)
    else:
        _fetch_best_or_last(store, folder, which, list(objects))
    return folder


def _fetch_best_or_last(store: Store, folder: Path, which: Literal["best", "last"], objects: list[str]) -> None:
    copy_of_run(store.url)
    _fetch_manifests(store, folder, objects)
    found = list_all(folder / "checkpoints")
    if not found:
        raise LockstepError(
            f"There is no trained model in {store.url}.", "Name a run with a checkpoint, or train one first.", code=2
        )
    saved = choose(found, which).saved
    if saved.damage("model/") is not None:
        files = [f"checkpoints/{saved.path.name}/{name}" for name in saved.manifest["files"]]
        _refresh(store, folder, [name for name in files if "/model/" in name and name in objects])
    if damage := saved.damage("model/"):
        raise LockstepError(f"{saved.path.name} of {store.url} is damaged: {damage}.", "Take another checkpoint.")


def _fetch_manifests(store: Store, folder: Path, objects: list[str]) -> None:
    """Brings the manifests of all checkpoints, and lets go of checkpoints that are no longer there."""
    manifests = [name for name in objects if name.startswith("checkpoints/") and name.endswith("/manifest.json")]
    gone = {path.name for path in (folder / "checkpoints").glob("step-*")} - {name.split("/")[1] for name in manifests}
    for name in gone:
        shutil.rmtree(folder / "checkpoints" / name)
    _refresh(store, folder, manifests)


def _refresh(store: Store, folder: Path, names: list[str]) -> None:
    for name in names:
        store.fetch(name, folder / name)
