"""Corpora, text and images on object stores: copied to this machine before they are used.

A corpus is published with `corpus.json` last and fetched with every digest checked: it exists whole or not at all, there
as here. A copy lies under its digest, so it is never changed while a training has it mapped.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from lockstep.data.corpus.binary_corpus import INDEX, Corpus
from lockstep.data.data_settings import DataSettings
from lockstep.data.images.image_set import CLASSES, SOURCE
from lockstep.data.text.compressed import ENDINGS, plain_name
from lockstep.data.text.parallel_text import SETS, SINGLE_FILES
from lockstep.errors import LockstepError
from lockstep.files import locked, read_json, sha256, sync, write_json
from lockstep.remote.place import cache_folder, is_remote
from lockstep.remote.store import Store

MAKE_ANEW = "Make it anew with `lockstep prepare --force`."


def prepared(settings: DataSettings, make: Callable[[DataSettings], Corpus], force: bool) -> Corpus:
    """The corpus of settings that name an address: fetched when it is there, else made here and published.

    `make` prepares with settings that name local folders only. Text is fetched only when a corpus is made from it: an
    existing corpus is compared by its settings.
    """
    place, folder = settings.corpus, settings.folder
    elsewhere = (
        cache_folder("no-text", str(folder)) if is_remote(folder) else Path(folder)
    )  # never made: nothing to compare
    if place is None:
        return make(settings.model_copy(update={"folder": local_text(settings)}))
    if not is_remote(place):
        there = (Path(place).expanduser() / INDEX).exists() and not force
        return make(settings.model_copy(update={"folder": elsewhere if there else local_text(settings)}))
    url, home = str(place), cache_folder("corpora", str(place))
    with locked(home / ".lock"):
        if not force and (found := _copy(url, home)):
            return make(settings.model_copy(update={"folder": elsewhere, "corpus": found}))
        local = settings.model_copy(update={"folder": local_text(settings), "corpus": home / "made"})
        made = make(local)
        publish_corpus(made.folder, url)
        final = home / made.digest[:16]
        shutil.rmtree(final, ignore_errors=True)
        made.folder.rename(final)
    return Corpus.open(final)


def local_copy_of_corpus(url: str) -> Path | None:
    """A whole copy of a remote corpus on this machine; None when there is none at that address."""
    home = cache_folder("corpora", url)
    with locked(home / ".lock"):
        return _copy(url, home)


def _copy(url: str, home: Path) -> Path | None:
    store = Store(url)
    index = store.read(INDEX)
    if index is None:
        return None
    try:
        facts = json.loads(index)
        digest, content = str(facts["digest"]), {name: one["sha256"] for name, one in facts["content"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _damaged(url, f"{INDEX} cannot be understood", MAKE_ANEW) from None
    return _whole(store, home, digest, {INDEX: index}, content, MAKE_ANEW)


def _whole(
    store: Store, home: Path, digest: str, index: dict[str, bytes], content: dict[str, str], remedy: str
) -> Path:
    """A copy of files with these SHA-256 digests, and the `index` that names them, in a folder named after `digest`."""
    folder, partial = home / digest[:16], home / ".partial"
    if all((folder / name).exists() for name in index):
        return folder
    shutil.rmtree(partial, ignore_errors=True)
    objects = store.list()
    for name, expected in content.items():
        if name not in objects:
            raise _damaged(store.url, f"{name} is missing", remedy)
        store.fetch(name, partial / name)
        if sha256(partial / name) != expected:
            raise _damaged(store.url, f"{name} does not match its digest", remedy)
        sync(partial / name)
    for name, data in index.items():
        (partial / name).write_bytes(data)
        sync(partial / name)
    partial.rename(folder)
    sync(home)
    return folder


def local_images(place: Path | str) -> Path:
    """The folder of images; a remote one is copied here first, whole and once."""
    if not is_remote(place):
        return Path(place).expanduser()
    url = str(place)
    store, home = Store(url), cache_folder("images", url)
    index, remedy = store.read(SOURCE), "Copy a whole folder of images there, as `lockstep data get` makes them."
    if index is None:
        raise LockstepError(f"There are no images at {url}.", remedy, code=2)
    try:
        content = {name: one["digest"].removeprefix("sha256:") for name, one in json.loads(index)["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _damaged(url, f"{SOURCE} cannot be understood", remedy) from None
    if CLASSES not in content:
        raise _damaged(url, f"{SOURCE} does not list {CLASSES}", remedy)
    with locked(home / ".lock"):
        return _whole(store, home, hashlib.sha256(index).hexdigest(), {SOURCE: index}, content, remedy)


def publish_corpus(folder: Path, url: str) -> None:
    """Copies a corpus to an address; an older one there stops being one before its first file is replaced."""
    store = Store(url)
    store.remove([INDEX])
    for name in Corpus.open(folder).facts["content"]:
        store.send(folder / name, name)
    store.send(folder / INDEX, INDEX)


def local_text(settings: DataSettings) -> Path:
    """The folder of the text files; remote ones are copied here first, as far as they changed."""
    if not is_remote(settings.folder):
        return Path(settings.folder)
    url = str(settings.folder)
    store, home = Store(url), cache_folder("text", url)
    objects = store.list()
    with locked(home / ".lock"):
        known = read_json(home / ".fetched.json") or {}
        for file in _wanted(settings):
            name = next((n for n in (file, *(file + ending for ending in ENDINGS)) if n in objects), None)
            if name is None:
                raise LockstepError(
                    f"The text file {url}/{file} does not exist, nor with {', '.join(ENDINGS)}.",
                    "Check data.folder and the names in data.train, data.validation and data.test.",
                    code=2,
                )
            entry = [objects[name].bytes, objects[name].stamp]
            if known.get(name) != entry or not (home / name).is_file():
                store.fetch(name, home / name)
                known[name] = entry
                write_json(home / ".fetched.json", known)
    return home


def _wanted(settings: DataSettings) -> list[str]:
    """The files that the names of text stand for, without the ending of a compressed one unless it was given."""
    names = [name for part in SETS for name in getattr(settings, part)]
    return [
        file
        for name in names
        for file in (
            [name]
            if plain_name(name).endswith(SINGLE_FILES)
            else [f"{name}.{language}" for language in settings.languages]
        )
    ]


def _damaged(url: str, what: str, remedy: str) -> LockstepError:
    return LockstepError(f"The corpus {url} is damaged: {what}.", remedy)
