"""Corpora and text on object stores: copied to this machine before they are used.

A corpus is published with `corpus.json` last and fetched with every digest checked: it exists whole or not at all, there
as here. A copy lies under its digest, so it is never changed while a training has it mapped.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from lockstep.data.compressed import ENDINGS, plain_name
from lockstep.data.corpus import INDEX, Corpus
from lockstep.data.settings import DataSettings
from lockstep.data.text import SETS, SINGLE_FILES
from lockstep.errors import LockstepError
from lockstep.files import locked, read_json, sha256, sync, write_json
from lockstep.remote.place import cache_folder, is_remote
from lockstep.remote.store import Store


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
        digest, content = str(facts["digest"]), dict(facts["content"])
    except (ValueError, KeyError, TypeError):
        raise _damaged(url, f"{INDEX} cannot be understood") from None
    folder, partial = home / digest[:16], home / ".partial"
    if (folder / INDEX).exists():
        return folder
    shutil.rmtree(partial, ignore_errors=True)
    objects = store.list()
    for name, expected in content.items():
        if name not in objects:
            raise _damaged(url, f"{name} is missing")
        store.fetch(name, partial / name)
        if (partial / name).stat().st_size != expected["bytes"] or sha256(partial / name) != expected["sha256"]:
            raise _damaged(url, f"{name} does not match its digest")
        sync(partial / name)
    (partial / INDEX).write_bytes(index)
    sync(partial / INDEX)
    partial.rename(folder)
    sync(home)
    return folder


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


def _damaged(url: str, what: str) -> LockstepError:
    return LockstepError(f"The corpus {url} is damaged: {what}.", "Make it anew with `lockstep prepare --force`.")
