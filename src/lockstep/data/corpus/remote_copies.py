"""Copies corpora, text and images from object stores to this machine before they are used.

A corpus is published with `corpus.json` as the last file, and every digest is checked when it is fetched: a copy is
complete or does not exist. A copy lies in a folder named after its digest, so it never changes while a run has it mapped.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from lockstep.data.corpus.binary_corpus import INDEX, Corpus
from lockstep.data.data_settings import DataSettings
from lockstep.data.images.image_set import CLASSES, SOURCE
from lockstep.data.text.compressed import ENDINGS
from lockstep.data.text.find_files import SETS, SINGLE_FILES, name_format
from lockstep.errors import LockstepError
from lockstep.files import locked, read_json, sha256, sync, write_json
from lockstep.remote.place import cache_folder, is_remote
from lockstep.remote.store import Store

MAKE_AGAIN = "Make it again with `lockstep prepare --force`."


def prepare_remote(settings: DataSettings, make: Callable[[DataSettings], Corpus], force: bool) -> Corpus:
    """Opens the corpus of settings that name an address: fetches it if it exists there, else makes and publishes it.

    `make` prepares a corpus with settings that name local folders only. Text is fetched only if a corpus is made from
    it; an existing corpus is compared by its settings alone.
    """
    place, folder = settings.corpus, settings.folder
    # A folder that does not exist: without text, only the settings are compared.
    no_text = cache_folder("no-text", str(folder)) if is_remote(folder) else Path(folder)
    if place is None:
        return make(settings.model_copy(update={"folder": fetch_text(settings)}))
    if not is_remote(place):
        exists = (Path(place).expanduser() / INDEX).exists() and not force
        return make(settings.model_copy(update={"folder": no_text if exists else fetch_text(settings)}))
    url, home = str(place), cache_folder("corpora", str(place))
    with locked(home / ".lock"):
        if not force and (copy := _fetch_corpus(url, home)):
            return make(settings.model_copy(update={"folder": no_text, "corpus": copy}))
        local = settings.model_copy(update={"folder": fetch_text(settings), "corpus": home / "made"})
        made = make(local)
        publish_corpus(made.folder, url)
        final = home / made.digest[:16]
        shutil.rmtree(final, ignore_errors=True)
        made.folder.rename(final)
    return Corpus.open(final)


def fetch_corpus(url: str) -> Path | None:
    """Returns the folder of a local copy of a remote corpus, or None if there is no corpus at that address."""
    home = cache_folder("corpora", url)
    with locked(home / ".lock"):
        return _fetch_corpus(url, home)


def _fetch_corpus(url: str, home: Path) -> Path | None:
    store = Store(url)
    index = store.read(INDEX)
    if index is None:
        return None
    try:
        facts = json.loads(index)
        digest, content = str(facts["digest"]), {name: one["sha256"] for name, one in facts["content"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _damage_error(url, f"{INDEX} cannot be understood", MAKE_AGAIN) from None
    return _fetch_files(store, home, digest, {INDEX: index}, content, MAKE_AGAIN)


def _fetch_files(
    store: Store, home: Path, digest: str, index: dict[str, bytes], content: dict[str, str], remedy: str
) -> Path:
    """Copies files with these SHA-256 digests, and the `index` that names them, to a folder named after `digest`."""
    folder, partial = home / digest[:16], home / ".partial"
    if all((folder / name).exists() for name in index):
        return folder
    shutil.rmtree(partial, ignore_errors=True)
    objects = store.list()
    for name, expected in content.items():
        if name not in objects:
            raise _damage_error(store.url, f"{name} is missing", remedy)
        store.fetch(name, partial / name)
        if sha256(partial / name) != expected:
            raise _damage_error(store.url, f"{name} does not match its digest", remedy)
        sync(partial / name)
    for name, data in index.items():
        (partial / name).write_bytes(data)
        sync(partial / name)
    partial.rename(folder)
    sync(home)
    return folder


def fetch_images(place: Path | str) -> Path:
    """Returns the folder of images. A remote folder is copied to this machine once."""
    if not is_remote(place):
        return Path(place).expanduser()
    url = str(place)
    store, home = Store(url), cache_folder("images", url)
    index = store.read(SOURCE)
    remedy = "Copy a folder there that `lockstep data get` or `lockstep data pictures` made."
    if index is None:
        raise LockstepError(f"There are no images at {url}.", remedy, code=2)
    try:
        content = {name: one["digest"].removeprefix("sha256:") for name, one in json.loads(index)["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _damage_error(url, f"{SOURCE} cannot be understood", remedy) from None
    if CLASSES not in content:
        raise _damage_error(url, f"{SOURCE} does not list {CLASSES}", remedy)
    with locked(home / ".lock"):
        return _fetch_files(store, home, hashlib.sha256(index).hexdigest(), {SOURCE: index}, content, remedy)


def publish_corpus(folder: Path, url: str) -> None:
    """Copies a corpus to an address. The index of an older corpus there is removed before any of its files is replaced."""
    store = Store(url)
    store.remove([INDEX])
    for name in Corpus.open(folder).facts["content"]:
        store.send(folder / name, name)
    store.send(folder / INDEX, INDEX)


def fetch_text(settings: DataSettings) -> Path:
    """Returns the folder of the text files. Remote files that are new or changed are copied to this machine first."""
    if not is_remote(settings.folder):
        return Path(settings.folder)
    url = str(settings.folder)
    store, home = Store(url), cache_folder("text", url)
    objects = store.list()
    with locked(home / ".lock"):
        known = read_json(home / ".fetched.json") or {}
        for file in _list_files(settings, objects):
            name = next((n for n in (file, *(file + ending for ending in ENDINGS)) if n in objects), None)
            if name is None:
                raise LockstepError(
                    f"The text file {url}/{file} does not exist, nor with {', '.join(ENDINGS)}.",
                    "Check data.folder and the names in data.train, data.validation and data.test.",
                    code=2,
                )
            entry = [objects[name].bytes, objects[name].version]
            if known.get(name) != entry or not (home / name).is_file():
                store.fetch(name, home / name)
                known[name] = entry
                write_json(home / ".fetched.json", known)
    return home


def _list_files(settings: DataSettings, objects: Collection[str]) -> list[str]:
    """Returns the files that the names of text stand for. Files named without a suffix of compression may have one."""
    files: list[str] = []
    for name in (name for part in SETS for name in getattr(settings, part)):
        if not isinstance(name, str):
            files += name
            continue
        sides = [f"{name}.{language}" for language in settings.languages]
        single = [f"{name}.{kind}" for kind in SINGLE_FILES]
        present = [file for file in (*single, name) if any(f"{file}{ending}" in objects for ending in ("", *ENDINGS))]
        if name_format(name) != "lines":
            files.append(name)
        elif present and not any(f"{side}{ending}" in objects for side in sides for ending in ("", *ENDINGS)):
            files += present  # `find_files` chooses
        else:
            files += sides
    return files


def _damage_error(url: str, what: str, remedy: str) -> LockstepError:
    return LockstepError(f"The corpus {url} is damaged: {what}.", remedy)
