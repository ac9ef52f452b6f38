"""The prepared corpus: a folder of piece ids that every process maps into memory.

`corpus.json` describes the other files. `SET.SIDE.ids` holds all sentences of a side one after the other, each with its
end-of-sentence token; sentence i lies between entries i and i + 1 of `SET.SIDE.offsets`. Validation and test also have
their text, in `SET.SIDE.txt`. `removed.tsv.zst` lists the pairs that cleaning removed.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, NotRequired, Self, TypedDict

import numpy as np
import numpy.typing as npt
from pydantic import JsonValue

from lockstep.data.corpus.removed_pairs import REMOVED
from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.data.text.clean import Reason
from lockstep.data.text.find_files import SETS, TextFile
from lockstep.data.text.normalize import Change, normalize_text
from lockstep.errors import LockstepError
from lockstep.files import sha256, sync

FORMAT = 2
"""Increase it when the same settings and text no longer give the same files."""
SIDES = ("source", "target")
INDEX = "corpus.json"
VOCABULARY = "vocabulary.model"
KINDS = ("ids", "offsets", "txt")
FILES = {INDEX, VOCABULARY, REMOVED} | {f"{name}.{side}.{kind}" for name in SETS for side in SIDES for kind in KINDS}
"""Every file name that may occur in a corpus folder."""
OFFSET_TYPE = "<i8"
REQUIRED_KEYS = {"digest", "id_type", "sets", "settings", "files", "grammar_version"}
HISTOGRAM_STEP, HISTOGRAM_BINS = 5, 100

Ids = npt.NDArray[np.int64]
Integers = npt.NDArray[np.integer]


class SetCounts(TypedDict):
    """How much a set holds. Words are pieces and end-of-sentence tokens; plain words are separated by whitespace."""

    lines: int
    source_words: int
    target_words: int
    source_plain_words: int
    target_plain_words: int
    source_longest: int
    target_longest: int
    source_lengths: list[int]
    target_lengths: list[int]
    length_step: int
    text_bytes: int


class SetFacts(SetCounts):
    """A set as `corpus.json` describes it."""

    read: int
    removed: Mapping[Reason, int]
    changed: dict[Change, int]


class VocabularyFacts(TypedDict):
    """The vocabulary as `corpus.json` describes it."""

    size: int
    kind: str
    digest: str


class HashedTextFile(TextFile):
    """A text file that a corpus was made from."""

    sha256: str


class CorpusFile(TypedDict):
    """A file of the corpus folder."""

    bytes: int
    sha256: str


class CorpusFacts(TypedDict):
    """The content of `corpus.json`."""

    format: int
    digest: str
    languages: list[str]
    megabytes: float
    sets: dict[str, SetFacts]
    languages_checked: NotRequired[bool]  # not in corpora of 0.1.0
    vocabulary: VocabularyFacts
    id_type: str
    settings: dict[str, JsonValue]
    files: list[HashedTextFile]
    grammar_version: int | None
    content: dict[str, CorpusFile]


class LanguageSide:
    """All sentences of one side of a set."""

    def __init__(self, ids: Integers, offsets: Ids) -> None:
        self.ids = ids  # [words]
        self.offsets = offsets  # [sentences + 1]

    @cached_property
    def lengths(self) -> npt.NDArray[np.int32]:
        """The number of pieces of every sentence, including the end-of-sentence token, `[sentences]`."""
        lengths = np.empty(len(self.offsets) - 1, np.int32)
        return np.subtract(self.offsets[1:], self.offsets[:-1], out=lengths, casting="same_kind")

    def gather(self, indices: Integers) -> tuple[Ids, npt.NDArray[np.int32]]:
        """Returns the ids of these sentences in one array, `[words]`, and the length of each, `[sentences]`."""
        lengths = self.lengths[indices]  # [sentences]
        ends = np.cumsum(lengths, dtype=np.int64)  # [sentences] in the returned array
        total = int(ends[-1]) if len(ends) else 0
        shift = self.offsets[:-1][indices] - (ends - lengths)  # [sentences] from the returned array to the file
        positions = np.repeat(shift, lengths) + np.arange(total)  # [words]
        return self.ids[positions].astype(np.int64), lengths

    def cut(self, words: int, count: int) -> "LanguageSide":
        """Returns the same ids as `count` sequences of `words` words each, ignoring sentence boundaries, without a copy."""
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
        """Returns pairs of exactly `words` words on both sides. They are not translations of each other."""
        count = min(len(self.source.ids), len(self.target.ids)) // words
        if not count:
            raise LockstepError(
                f"The training text is too short for sequences of {words:,} words.", "Lower batch.fixed_length.", code=2
            )
        return ParallelSet(self.name, self.source.cut(words, count), self.target.cut(words, count))


class Corpus:
    """A corpus folder whose files all exist and have the expected size. Their digests are not checked."""

    def __init__(self, folder: Path, facts: CorpusFacts) -> None:
        self.folder = folder
        self.facts = facts
        self._sets: dict[str, ParallelSet] = {}

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Opens a corpus folder, or raises an error that names what is missing or damaged."""
        try:
            facts: CorpusFacts = json.loads((folder / INDEX).read_bytes())
            if facts["format"] != FORMAT:
                raise _unusable_error(
                    folder, f"has format {facts['format']}, and this version of Lockstep reads {FORMAT}"
                )
            for name, content in facts["content"].items():
                present = (folder / name).stat().st_size
                if present != content["bytes"]:
                    raise _unusable_error(
                        folder, f"is damaged: {name} has {present} bytes instead of {content['bytes']}"
                    )
            if missing_keys := REQUIRED_KEYS - facts.keys():
                raise KeyError(*missing_keys)
        except (FileNotFoundError, NotADirectoryError) as error:
            missing = Path(str(error.filename)).name
            if missing == INDEX:
                raise LockstepError(
                    f"There is no corpus in {folder}.", "Prepare it: `lockstep prepare` with the same settings."
                ) from None
            raise _unusable_error(folder, f"is damaged: {missing} is missing") from None
        except OSError as error:
            why = f"The corpus in {folder} cannot be read: {error.strerror}."
            raise LockstepError(why, "Check the permissions of the folder and its files.") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise _unusable_error(folder, f"is damaged: {INDEX} cannot be understood") from None
        return cls(folder, facts)

    @property
    def digest(self) -> str:
        """A hash of the content: ids, texts and vocabulary."""
        return self.facts["digest"]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary.load(self.folder / VOCABULARY)

    def has(self, name: str) -> bool:
        return name in self.facts["sets"]

    def set(self, name: str) -> ParallelSet:
        """Returns the training, validation or test set. Its files are mapped into memory once."""
        if name not in self._sets:
            self._sets[name] = ParallelSet(name, self._map_side(f"{name}.source"), self._map_side(f"{name}.target"))
        return self._sets[name]

    def texts(self, name: str) -> tuple[list[str], list[str]]:
        """Returns the source and target sentences of validation or test, as they were read."""
        source, target = (
            (self.folder / f"{name}.{side}.txt").read_bytes().decode().removesuffix("\n").split("\n") for side in SIDES
        )
        return source, target

    def _map_side(self, stem: str) -> LanguageSide:
        ids = np.memmap(self.folder / f"{stem}.ids", dtype=self.facts["id_type"], mode="r")
        offsets = np.memmap(self.folder / f"{stem}.offsets", dtype=OFFSET_TYPE, mode="r")
        return LanguageSide(np.asarray(ids), np.asarray(offsets))


def id_type(vocabulary_size: int) -> str:
    """Returns the smallest type that can store every id."""
    return "<u2" if vocabulary_size < 1 << 16 else "<u4"


@dataclass(frozen=True)
class EncodedSentences:
    """Sentences of one side as ids, with the size of their text."""

    ids: Integers  # [words], including end-of-sentence tokens
    lengths: npt.NDArray[np.int32]  # [sentences]
    text_bytes: int
    plain_words: int
    text: bytes = b""
    """One sentence per line; empty for training text."""


def encode_sentences(pieces: Vocabulary, texts: Sequence[str], normalized: bool = False) -> EncodedSentences:
    """Encodes the sentences of one side, normalized or not, and keeps their text."""
    text = "".join(f"{line}\n" for line in texts).encode()
    single = [normalize_text(line) if normalized else " ".join(line.split()) for line in texts]
    return EncodedSentences(*pieces.encode_flat(single), len(text), sum(len(line.split()) for line in texts), text)


class SetWriter:
    """Appends encoded pairs to the files of a set. Use it in a `with` statement."""

    def __init__(self, folder: Path, name: str, vocabulary_size: int) -> None:
        self._sides = [
            _SideWriter(folder, f"{name}.{side}", id_type(vocabulary_size), keep_text=name != "train") for side in SIDES
        ]

    def append(self, source: EncodedSentences, target: EncodedSentences) -> None:
        for side, sentences in zip(self._sides, (source, target), strict=True):
            side.append(sentences)

    def count(self) -> SetCounts:
        """Returns how much was written."""
        source, target = self._sides
        return {
            "lines": source.lines,
            "source_words": source.words,
            "target_words": target.words,
            "source_plain_words": source.plain_words,
            "target_plain_words": target.plain_words,
            "source_longest": source.longest,
            "target_longest": target.longest,
            "source_lengths": source.histogram(),
            "target_lengths": target.histogram(),
            "length_step": HISTOGRAM_STEP,
            "text_bytes": source.text_bytes + target.text_bytes,
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

    def append(self, sentences: EncodedSentences) -> None:
        lengths = sentences.lengths
        if not len(lengths):
            return
        offsets = self.words + np.cumsum(lengths, dtype=np.int64)
        self._ids.write(sentences.ids.astype(self._kind, copy=False).tobytes())
        self._offsets.write(offsets.astype(OFFSET_TYPE, copy=False).tobytes())
        if self._text:
            self._text.write(sentences.text)
        self.lines += len(lengths)
        self.words = int(offsets[-1])
        self.longest = max(self.longest, int(lengths.max()))
        self.text_bytes += sentences.text_bytes
        self.plain_words += sentences.plain_words
        bins = np.minimum((lengths - 1) // HISTOGRAM_STEP, HISTOGRAM_BINS - 1)
        self._histogram += np.bincount(bins, minlength=HISTOGRAM_BINS)

    def histogram(self) -> list[int]:
        """Returns the number of sentences of 1-5, 6-10, ... words, up to the longest. The 100th bin is open."""
        return self._histogram[: int(np.flatnonzero(self._histogram)[-1]) + 1 if self.lines else 0].tolist()

    def close(self) -> None:
        for file in (self._ids, self._offsets, self._text):
            if file:
                file.close()


def seal(folder: Path, facts: Mapping[str, object]) -> None:
    """Turns the files in a folder into a corpus: computes their digests, writes `corpus.json` and syncs all to disk."""
    content: dict[str, CorpusFile] = {}
    for path in sorted(folder.iterdir()):
        sync(path)
        content[path.name] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    trained_on = {name: file for name, file in content.items() if name != REMOVED}
    digest = hashlib.sha256(json.dumps(trained_on, sort_keys=True).encode()).hexdigest()
    index = {"format": FORMAT, "digest": digest, **facts, "content": content}
    (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
    sync(folder / INDEX)
    sync(folder)


def _unusable_error(folder: Path, what: str) -> LockstepError:
    return LockstepError(f"The corpus in {folder} {what}.", "Prepare it again: `lockstep prepare --force`.")
