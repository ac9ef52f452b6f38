"""A prepared corpus: a folder of piece ids that every process maps into memory instead of reading.

`corpus.json` tells what the other files hold. `SET.SIDE.ids` are all sentences of a side one after the other, each with
its end mark; sentence i lies between entries i and i + 1 of `SET.SIDE.offsets`. Sets that are scored also keep their
text in `SET.SIDE.txt`.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.data.text.parallel_text import SETS
from lockstep.errors import LockstepError
from lockstep.files import sha256, sync

FORMAT = 2
"""Raise it when the same settings and text would no longer make the same files."""
SIDES = ("source", "target")
INDEX = "corpus.json"
VOCABULARY = "vocabulary.model"
KINDS = ("ids", "offsets", "txt")
FILES = {INDEX, VOCABULARY} | {f"{name}.{side}.{kind}" for name in SETS for side in SIDES for kind in KINDS}
"""Every name that may occur in a corpus folder."""
OFFSET_TYPE = "<i8"
HISTOGRAM_STEP, HISTOGRAM_BINS = 5, 100

Ids = npt.NDArray[np.int64]


class LanguageSide:
    """All sentences of one side of a set."""

    def __init__(self, ids: npt.NDArray[Any], offsets: Ids) -> None:
        self.ids = ids  # [words], as stored
        self.offsets = offsets  # [sentences + 1]

    @cached_property
    def lengths(self) -> npt.NDArray[np.int32]:
        """Pieces of every sentence, end mark included."""
        lengths = np.empty(len(self.offsets) - 1, np.int32)
        return np.subtract(self.offsets[1:], self.offsets[:-1], out=lengths, casting="same_kind")

    def gather(self, indices: npt.NDArray[np.integer[Any]]) -> tuple[Ids, npt.NDArray[np.int32]]:
        """The ids of these sentences in one row, and the length of each."""
        lengths = self.lengths[indices]  # [sentences]
        ends = np.cumsum(lengths, dtype=np.int64)  # where each sentence ends in the row
        total = int(ends[-1]) if len(ends) else 0
        shift = self.offsets[:-1][indices] - (ends - lengths)  # from a place in the row to its place in the file
        places = np.repeat(shift, lengths) + np.arange(total)  # [words]
        return self.ids[places].astype(np.int64), lengths

    def cut(self, words: int, count: int) -> "LanguageSide":
        """The same ids as `count` sentences of `words` words each, wherever the real ones end. Nothing is copied."""
        return LanguageSide(self.ids, np.arange(count + 1, dtype=np.int64) * words)


@dataclass(frozen=True)
class ParallelSet:
    """Sentence pairs: sentence i of one side is the translation of sentence i of the other."""

    name: str
    source: LanguageSide
    target: LanguageSide

    def __len__(self) -> int:
        return len(self.source.offsets) - 1

    def cut(self, words: int) -> "ParallelSet":
        """As many pairs as the shorter side gives, all of `words` words on both sides; they do not translate each other."""
        count = min(len(self.source.ids), len(self.target.ids)) // words
        if not count:
            raise LockstepError(
                f"The training text is too short for sentences of {words:,} words.", "Lower batch.fixed_length.", code=2
            )
        return ParallelSet(self.name, self.source.cut(words, count), self.target.cut(words, count))


class Corpus:
    """A corpus that is known to be whole, up to changes of content that keep the size of every file."""

    def __init__(self, folder: Path, facts: dict[str, Any]) -> None:
        self.folder = folder
        self.facts = facts
        self._sets: dict[str, ParallelSet] = {}

    @classmethod
    def open(cls, folder: Path) -> Self:
        try:
            facts = json.loads((folder / INDEX).read_bytes())
            if facts["format"] != FORMAT:
                raise _unusable(folder, f"has format {facts['format']}, and this version of Lockstep reads {FORMAT}")
            for name, content in facts["content"].items():
                present = (folder / name).stat().st_size
                if present != content["bytes"]:
                    raise _unusable(folder, f"is damaged: {name} has {present} bytes instead of {content['bytes']}")
            _ = [facts[key] for key in ("digest", "id_type", "sets", "settings", "files", "grammar_version")]
        except (FileNotFoundError, NotADirectoryError) as error:
            missing = Path(str(error.filename)).name
            if missing == INDEX:
                raise LockstepError(
                    f"There is no corpus in {folder}.", "Prepare it: `lockstep prepare` with the same settings."
                ) from None
            raise _unusable(folder, f"is damaged: {missing} is missing") from None
        except OSError as error:
            why = f"The corpus in {folder} cannot be read: {error.strerror}."
            raise LockstepError(why, "Check the rights of the folder and its files.") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise _unusable(folder, f"is damaged: {INDEX} cannot be understood") from None
        return cls(folder, facts)

    @property
    def digest(self) -> str:
        """One value for the whole content: ids, texts and vocabulary."""
        return str(self.facts["digest"])

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary.load(self.folder / VOCABULARY)

    def has(self, name: str) -> bool:
        return name in self.facts["sets"]

    def set(self, name: str) -> ParallelSet:
        if name not in self._sets:
            self._sets[name] = ParallelSet(name, self._side(f"{name}.source"), self._side(f"{name}.target"))
        return self._sets[name]

    def texts(self, name: str) -> tuple[list[str], list[str]]:
        """The sentences of validation or test as they were read."""
        source, target = (
            (self.folder / f"{name}.{side}.txt").read_bytes().decode().removesuffix("\n").split("\n") for side in SIDES
        )
        return source, target

    def _side(self, stem: str) -> LanguageSide:
        ids = np.memmap(self.folder / f"{stem}.ids", dtype=self.facts["id_type"], mode="r")
        offsets = np.memmap(self.folder / f"{stem}.offsets", dtype=OFFSET_TYPE, mode="r")
        return LanguageSide(np.asarray(ids), np.asarray(offsets))


def id_type(vocabulary_size: int) -> str:
    """The smallest stored type that holds every id."""
    return "<u2" if vocabulary_size < 1 << 16 else "<u4"


@dataclass(frozen=True)
class CorpusRow:
    """Sentences of one side as they are stored, and what is counted of their text."""

    ids: npt.NDArray[Any]  # [words], end marks included
    lengths: npt.NDArray[np.int32]  # [sentences]
    text_bytes: int
    plain_words: int
    text: bytes = b""
    """One line a sentence; only where it is kept."""


def row_of(pieces: Vocabulary, texts: Sequence[str]) -> CorpusRow:
    """Encoded sentences with their text."""
    text = "".join(f"{line}\n" for line in texts).encode()
    single = [" ".join(line.split()) for line in texts]
    return CorpusRow(*pieces.encode_row(single), len(text), sum(len(line.split()) for line in texts), text)


class SetWriter:
    """Appends encoded pairs to the files of a set; use it in a `with` statement."""

    def __init__(self, folder: Path, name: str, vocabulary_size: int) -> None:
        self._sides = [
            _SideWriter(folder, f"{name}.{side}", id_type(vocabulary_size), keep_text=name != "train") for side in SIDES
        ]

    def append(self, source: CorpusRow, target: CorpusRow) -> None:
        for side, row in zip(self._sides, (source, target), strict=True):
            side.append(row)

    def facts(self) -> dict[str, Any]:
        """How much was written. Words are pieces, end marks included; plain words are separated by blanks."""
        sides = dict(zip(SIDES, self._sides, strict=True))
        return {
            "lines": self._sides[0].lines,
            **{f"{name}_words": side.words for name, side in sides.items()},
            **{f"{name}_plain_words": side.plain_words for name, side in sides.items()},
            **{f"{name}_longest": side.longest for name, side in sides.items()},
            **{f"{name}_lengths": side.histogram() for name, side in sides.items()},
            "length_step": HISTOGRAM_STEP,
            "text_bytes": sum(side.text_bytes for side in self._sides),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for side in self._sides:
            side.close()


class _SideWriter:
    def __init__(self, folder: Path, stem: str, kind: str, keep_text: bool) -> None:
        self._kind = kind
        self._ids: BinaryIO = (folder / f"{stem}.ids").open("wb")
        self._offsets: BinaryIO = (folder / f"{stem}.offsets").open("wb")
        self._text: BinaryIO | None = (folder / f"{stem}.txt").open("wb") if keep_text else None
        self._offsets.write(np.zeros(1, OFFSET_TYPE).tobytes())
        self.lines = self.words = self.longest = self.text_bytes = self.plain_words = 0
        self._histogram = np.zeros(HISTOGRAM_BINS, np.int64)

    def append(self, row: CorpusRow) -> None:
        if not len(row.lengths):
            return
        offsets = self.words + np.cumsum(row.lengths, dtype=np.int64)
        self._ids.write(row.ids.astype(self._kind, copy=False).tobytes())
        self._offsets.write(offsets.astype(OFFSET_TYPE, copy=False).tobytes())
        if self._text:
            self._text.write(row.text)
        self.lines += len(row.lengths)
        self.words = int(offsets[-1])
        self.longest = max(self.longest, int(row.lengths.max()))
        self.text_bytes += row.text_bytes
        self.plain_words += row.plain_words
        bins = np.minimum((row.lengths - 1) // HISTOGRAM_STEP, HISTOGRAM_BINS - 1)
        self._histogram += np.bincount(bins, minlength=HISTOGRAM_BINS)

    def histogram(self) -> list[int]:
        """Sentences of 1-5, 6-10, ... words, up to the longest; the last of all bins also holds everything above."""
        return self._histogram[: int(np.flatnonzero(self._histogram)[-1]) + 1 if self.lines else 0].tolist()

    def close(self) -> None:
        for file in (self._ids, self._offsets, self._text):
            if file:
                file.close()


def seal(folder: Path, facts: dict[str, Any]) -> None:
    """Turns the files in a folder into a corpus: digests them, writes `corpus.json`, and all of it is on the disk."""
    content = {}
    for path in sorted(folder.iterdir()):
        sync(path)
        content[path.name] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    index = {"format": FORMAT, "digest": digest, **facts, "content": content}
    (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
    sync(folder / INDEX)
    sync(folder)


def _unusable(folder: Path, what: str) -> LockstepError:
    return LockstepError(f"The corpus in {folder} {what}.", "Prepare it again: `lockstep prepare --force`.")
