"""From a catalog entry to a folder that can be trained from.

The folder is made beside its place and renamed at the end: it exists whole or not at all. `source.json` in it tells
where everything came from.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lockstep.data.catalog.entries import CatalogEntry
from lockstep.data.catalog.fetch import Fetched, Talk, fetch, forget_first_digests
from lockstep.errors import LockstepError
from lockstep.files import (
    digest,
    disk_error,
    facts_of_files,
    locked,
    read_json,
    sync,
    whole_folder,
    write_json,
    write_whole,
)

Recipe = Callable[[CatalogEntry, Mapping[str, Path], Path], dict[str, int]]
SOURCE = "source.json"


@dataclass(frozen=True)
class Result:
    """What `get` found or made."""

    folder: Path
    facts: dict[str, Any]
    """The content of source.json."""
    made: bool
    """False when it was there already."""
    config: Path | None
    """The config file of a text corpus."""


def get(
    name: str,
    entry: CatalogEntry,
    talk: Talk,
    *,
    to: Path,
    cache: Path,
    folder: Path | None = None,
    tries: int = 4,
) -> Result:
    """Fetches the pieces of an entry (from `folder` without network) and makes the corpus in `to`."""
    to = to.expanduser().resolve()
    try:
        with locked(to.with_name(f".{to.name}.lock")):
            if there := _there(name, to):
                return there
            pieces = fetch(name, entry, talk, cache=cache, folder=folder, tries=tries)
            talk.say(f"{name}: making the corpus")
            with whole_folder(to) as partial:
                try:
                    _make(name, entry, pieces, partial, to)
                except LockstepError:
                    forget_first_digests(pieces)
                    raise
    except OSError as error:
        raise disk_error(to, error, "name another folder with --to") from None
    facts = read_json(to / SOURCE)
    return Result(to, facts, True, _config_path(name, to))


def _there(name: str, to: Path) -> Result | None:
    facts = read_json(to / SOURCE) if to.is_dir() else None
    if isinstance(facts, dict) and facts.get("name") == name and "pieces" in facts:
        return Result(to, facts, False, _config_path(name, to))
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise LockstepError(f"{to} is there already and is not {name}.", "Name another folder with --to.", code=2)
    return None


def _config_path(name: str, to: Path) -> Path | None:
    path = to / f"{name}.yaml"
    return path if path.exists() else None


def _make(name: str, entry: CatalogEntry, pieces: dict[str, Fetched], folder: Path, to: Path) -> None:
    """Fills an empty folder, which will be moved to `to`."""
    counts = _recipe(entry)(entry, {key: piece.path for key, piece in pieces.items()}, folder)
    for set_name, expected in entry.counts.items():
        if counts.get(set_name) != expected:
            raise LockstepError(
                f"The {set_name} set of {name} has {counts.get(set_name, 0):,} items instead of {expected:,}.",
                "A piece is not what it should be: remove it from the cache (or the folder) and get it again.",
            )
    for file, expected_digest in entry.files.items():
        if (found := digest(folder / file, expected_digest.partition(":")[0])) != expected_digest:
            raise LockstepError(f"{file} of {name} came out wrong: {found} instead of {expected_digest}.", "Report it.")
    if entry.classes:
        write_whole(folder / "classes.txt", "".join(f"{line}\n" for line in entry.classes))
    if entry.languages:
        write_whole(folder / f"{name}.yaml", _config(name, entry, counts, to))
    write_whole(folder / "LICENCE.txt", f"{entry.title}\n\n{entry.licence}\n\nCite: {entry.citation}\n")
    for path in folder.iterdir():
        sync(path)
    facts = {
        "name": name,
        "title": entry.title,
        "licence": entry.licence,
        "citation": entry.citation,
        "splits": entry.splits,
        "languages": entry.languages,
        "counts": counts,
        "pieces": {key: _piece_facts(piece) for key, piece in pieces.items()},
        "files": facts_of_files(folder),
    }
    write_json(folder / SOURCE, facts)


def _piece_facts(piece: Fetched) -> dict[str, Any]:
    return {
        "file": piece.path.name,
        "address": piece.address,
        "bytes": piece.bytes,
        "sha256": piece.sha256,
        "recorded": piece.recorded or "not recorded",
    }


def _config(name: str, entry: CatalogEntry, counts: dict[str, int], to: Path) -> str:
    """A config that `lockstep train` takes as it is."""
    own = dict(entry.config)
    sets = {set_name: [set_name] for set_name in ("train", "validation", "test") if counts.get(set_name)}
    data = {"languages": list(entry.languages or ()), "folder": str(to), **sets, **own.pop("data", {})}
    text = yaml.safe_dump({"data": data, **own}, sort_keys=False, allow_unicode=True, width=110)
    return f"# {entry.title}. Written by `lockstep data get {name}`; LICENCE.txt says on which terms.\n{text}"


def _recipe(entry: CatalogEntry) -> Recipe:
    from lockstep.data.catalog.recipes import help_pages, image_archives, pairs

    recipes: dict[str, Recipe] = {
        "pairs": pairs.build,
        "help-pages": help_pages.build,
        "cifar10": image_archives.cifar10,
        "idx": image_archives.idx,
    }
    return recipes[entry.recipe]
