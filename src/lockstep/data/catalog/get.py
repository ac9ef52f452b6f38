"""Makes a folder to train on from a catalog entry.

The folder is made under another name and renamed at the end: it is complete or does not exist. `source.json` in it records
where every piece came from.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import yaml

from lockstep.data.catalog.download import FetchLog
from lockstep.data.catalog.entries import CLASSES, SOURCE, CatalogEntry
from lockstep.data.catalog.fetch import FetchedPiece, fetch, forget_first_digests
from lockstep.errors import LockstepError
from lockstep.files import (
    FileFacts,
    create_folder_atomically,
    describe_files,
    digest,
    disk_error,
    locked,
    read_json,
    sync,
    write_atomically,
    write_json,
)

Recipe = Callable[[CatalogEntry, Mapping[str, Path], Path], dict[str, int]]


class PieceFacts(TypedDict):
    """A piece as `source.json` records it."""

    file: str
    address: str
    bytes: int
    sha256: str
    recorded: str


class SourceFacts(TypedDict):
    """The content of `source.json`."""

    name: str
    title: str
    licence: str
    citation: str
    splits: str
    languages: tuple[str, str] | None
    counts: dict[str, int]
    pieces: dict[str, PieceFacts]
    files: dict[str, FileFacts]


@dataclass(frozen=True)
class CatalogCorpus:
    """The folder of a corpus from the catalog."""

    folder: Path
    facts: SourceFacts
    made: bool
    """False if it existed already."""
    config: Path | None
    """The config file of a text corpus."""


def get(
    name: str,
    entry: CatalogEntry,
    log: FetchLog,
    *,
    to: Path,
    cache: Path,
    folder: Path | None = None,
    tries: int = 4,
) -> CatalogCorpus:
    """Fetches the pieces of an entry and makes the corpus in `to`. With `folder`, the pieces come from there only."""
    to = to.expanduser().resolve()
    try:
        with locked(to.with_name(f".{to.name}.lock")):
            if existing := _open_existing(name, to):
                return existing
            pieces = fetch(name, entry, log, cache=cache, folder=folder, tries=tries)
            log.say(f"{name}: making the corpus")
            with create_folder_atomically(to) as partial:
                try:
                    _make(name, entry, pieces, partial, to)
                except LockstepError:
                    forget_first_digests(pieces)
                    raise
    except OSError as error:
        raise disk_error(to, error, "name another folder with --to") from None
    facts = read_json(to / SOURCE)
    return CatalogCorpus(to, facts, True, _config_path(name, to))


def _open_existing(name: str, to: Path) -> CatalogCorpus | None:
    """Returns the corpus if it is in `to` already. Raises if `to` holds something else."""
    facts: SourceFacts | None = read_json(to / SOURCE) if to.is_dir() else None
    if isinstance(facts, dict) and facts.get("name") == name and "pieces" in facts:
        return CatalogCorpus(to, facts, False, _config_path(name, to))
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise LockstepError(f"{to} already exists and is not {name}.", "Name another folder with --to.", code=2)
    return None


def _config_path(name: str, to: Path) -> Path | None:
    path = to / f"{name}.yaml"
    return path if path.exists() else None


def _make(name: str, entry: CatalogEntry, pieces: dict[str, FetchedPiece], folder: Path, to: Path) -> None:
    """Writes all files of a corpus to an empty folder, which will be renamed to `to`."""
    counts = _choose_recipe(entry)(entry, {key: piece.path for key, piece in pieces.items()}, folder)
    for set_name, expected in entry.counts.items():
        if counts.get(set_name) != expected:
            raise LockstepError(
                f"The {set_name} set of {name} has {counts.get(set_name, 0):,} items instead of {expected:,}.",
                "A piece has unexpected content: remove it from the cache (or the folder) and get it again.",
            )
    for file, expected_digest in entry.files.items():
        if (actual := digest(folder / file, expected_digest.partition(":")[0])) != expected_digest:
            raise LockstepError(
                f"{file} of {name} has the digest {actual} instead of {expected_digest}.",
                "Please report this as a bug.",
            )
    if entry.classes:
        write_atomically(folder / CLASSES, "".join(f"{line}\n" for line in entry.classes))
    if entry.languages:
        write_atomically(folder / f"{name}.yaml", _write_config(name, entry, counts, to))
    write_atomically(folder / "LICENCE.txt", f"{entry.title}\n\n{entry.licence}\n\nCite: {entry.citation}\n")
    for path in folder.iterdir():
        sync(path)
    facts: SourceFacts = {
        "name": name,
        "title": entry.title,
        "licence": entry.licence,
        "citation": entry.citation,
        "splits": entry.splits,
        "languages": entry.languages,
        "counts": counts,
        "pieces": {key: _describe_piece(piece) for key, piece in pieces.items()},
        "files": describe_files(folder),
    }
    write_json(folder / SOURCE, facts)


def _describe_piece(piece: FetchedPiece) -> PieceFacts:
    return {
        "file": piece.path.name,
        "address": piece.address,
        "bytes": piece.bytes,
        "sha256": piece.sha256,
        "recorded": piece.recorded or "not recorded",
    }


def _write_config(name: str, entry: CatalogEntry, counts: dict[str, int], to: Path) -> str:
    """Returns a config that `lockstep train` can use unchanged."""
    own = dict(entry.config)
    sets = {set_name: [set_name] for set_name in ("train", "validation", "test") if counts.get(set_name)}
    data = {"languages": list(entry.languages or ()), "folder": str(to), **sets, **own.pop("data", {})}
    text = yaml.safe_dump({"data": data, **own}, sort_keys=False, allow_unicode=True, width=110)
    return f"# {entry.title}. Written by `lockstep data get {name}`; LICENCE.txt says on which terms.\n{text}"


def _choose_recipe(entry: CatalogEntry) -> Recipe:
    from lockstep.data.catalog.recipes import help_pages, image_archives, pairs

    recipes: dict[str, Recipe] = {
        "pairs": pairs.make_pairs,
        "help-pages": help_pages.make_pairs,
        "cifar10": image_archives.make_cifar10,
        "idx": image_archives.make_idx,
    }
    return recipes[entry.recipe]
