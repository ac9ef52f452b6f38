"""The catalog: what each known corpus consists of, where its pieces come from, and its licence.

The entries are data (`catalog.yaml`). A user's own file of the same form can add entries or change addresses.
"""

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from lockstep.errors import LockstepError
from lockstep.settings import Settings
from lockstep.yaml_text import parse_yaml

SOURCE, CLASSES = "source.json", "classes.txt"
"""Files of a folder that the catalog makes: where it comes from, and the names of image classes."""
BUILT_IN = Path(__file__).with_name("catalog.yaml")
Digest = Annotated[str, Field(pattern=r"^(md5:[0-9a-f]{32}|sha1:[0-9a-f]{40}|sha256:[0-9a-f]{64})$")]
SetName = Literal["train", "validation", "test"]
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""Names of corpora, pieces and languages. They become parts of paths."""
PlainName = Annotated[str, Field(pattern=rf"^{NAME}$")]
FileName = Annotated[str, Field(pattern=r"^[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*$")]
"""The name of a file without its folder."""
_DEBIAN = r"apt:[a-z0-9][a-z0-9+.-]*"
_NPM = r"npm:(@[a-z0-9][a-z0-9._~-]*/)?[a-z0-9][a-z0-9._~-]*@[A-Za-z0-9][A-Za-z0-9.+-]*"
ADDRESS = rf"^(https?://[^\s\x00-\x1f\x7f]+|{_DEBIAN}|{_NPM}|sacrebleu:.+)$"
"""A package is named without version or option, because its name becomes an argument of the package manager."""


class Source(Settings):
    """An address that a piece can be downloaded from."""

    address: Annotated[str, Field(pattern=ADDRESS)]
    """`http(s)://...`, `apt:PACKAGE`, `npm:PACKAGE@VERSION` or `sacrebleu:SET`."""
    bytes: int | None = None
    """The size of the file, if it is known."""
    digest: Digest | None = None
    """The digest of the file, if it is known."""


def _wrap_address(value: object) -> object:
    return {"address": value} if isinstance(value, str) else value


class Piece(Settings):
    """One file to download."""

    sources: Annotated[list[Annotated[Source, BeforeValidator(_wrap_address)]], Field(min_length=1)]
    """Addresses, tried in this order. A plain string is an address without size and digest."""
    also: list[FileName] = []
    """Other names that the file may have in the folder of --from."""


class CatalogPart(Settings):
    """A part of a set of sentence pairs: two files of one archive, or two pieces."""

    piece: str | None = None
    """The name of an archive among the pieces."""
    files: tuple[FileName, FileName] | None = None
    """Names of the source and the target file in that archive, without folders."""
    pieces: tuple[str, str] | None = None
    """The names of two pieces, the source and the target file (plain or compressed)."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.pieces is None) == (self.piece is None) or (self.piece is None) != (self.files is None):
            raise ValueError("a part has either `piece` and `files`, or `pieces`")
        return self

    def names(self) -> tuple[str, str]:
        """Returns the names of the source and the target file."""
        names = self.files or self.pieces
        assert names is not None
        return names

    def needs(self) -> tuple[str, ...]:
        """Returns the names of the pieces that this part is read from."""
        return (self.piece,) if self.piece else self.names()


class CatalogEntry(Settings):
    """A known corpus."""

    title: str
    """A description in one line."""
    recipe: Literal["pairs", "help-pages", "cifar10", "idx"]
    """How a corpus is made from the pieces."""
    languages: tuple[PlainName, PlainName] | None = None
    """Source and target language of a text corpus. They are also the suffixes of its files."""
    counts: dict[SetName, int] = {}
    """Exact number of sentence pairs or images in each set. It is checked."""
    about: dict[SetName, int] = {}
    """Approximate number of sentence pairs or images in each set. It is shown, not checked."""
    licence: str
    """The terms of use."""
    restricted: bool = False
    """Print the licence as a warning, because it forbids common uses."""
    citation: str
    """What to cite."""
    splits: str
    """How the data is split into sets."""
    pieces: dict[PlainName, Piece]
    """The files to download."""
    sets: dict[SetName, list[CatalogPart]] = {}
    """For recipe `pairs`: the parts of each set, which are concatenated."""
    files: dict[FileName, Digest] = {}
    """Digests of the files that the recipe makes, if they are known."""
    classes: list[str] = []
    """Names of the classes of an image corpus, in the order of their labels."""
    config: dict[str, Any] = {}
    """Settings for the config file of a text corpus."""

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
    """Returns all entries by name. The user's own file overrides the built-in entries key by key."""
    trees: dict[str, Any] = _read(BUILT_IN)
    if own is not None:
        _merge(trees, _read(own))
    entries = {}
    for name, tree in trees.items():
        if not re.fullmatch(NAME, str(name)):
            raise LockstepError(
                f"{own}: {name!r} is not a valid name for a corpus.", "Use letters, digits, . _ and -.", 2
            )
        try:
            entries[name] = CatalogEntry.model_validate(tree)
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in (name, *problem["loc"]))
            text = problem["msg"].removeprefix("Value error, ")
            if problem["type"] == "string_pattern_mismatch":
                text = f"{problem['input']!r} is not a valid name, address or digest"
            raise LockstepError(
                f"{own or BUILT_IN}: {where}: {text}.", "See docs/use/data.md for the format.", 2
            ) from None
    return entries


def find(entries: dict[str, CatalogEntry], name: str) -> CatalogEntry:
    """Returns the entry with this name, or raises an error that suggests similar names."""
    if name in entries:
        return entries[name]
    near = difflib.get_close_matches(name, entries, n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(near)}?" if near else "`lockstep data list` shows all names."
    raise LockstepError(f"There is no corpus {name!r} in the catalog.", hint, code=2)


def _merge(tree: dict[str, Any], changes: dict[str, Any]) -> None:
    """Changes a tree in place: values replace values, dictionaries are merged."""
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(tree.get(key), dict):
            _merge(tree[key], value)
        else:
            tree[key] = value


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LockstepError(f"The catalog {path} cannot be read: {error.strerror}.", "Check the path.", 2) from None
    except (yaml.YAMLError, ValueError):
        raise LockstepError(
            f"The catalog {path} is not valid YAML.", "See docs/use/data.md for the format.", 2
        ) from None
    if not isinstance(tree, dict):
        raise LockstepError(f"The catalog {path} holds no entries.", "See docs/use/data.md for the format.", 2)
    return tree
