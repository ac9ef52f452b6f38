"""The jobs that worker processes do on one shard of the training text.

A shard is a fixed number of consecutive lines. It is cleaned into `NUMBER.cleaned` and later encoded into `NUMBER.encoded`.
Each is one file with checksums of its parts. It is renamed into place when it is complete, so a preparation that was
killed continues with the missing shards; the checksums detect files that a power cut damaged.
"""

import io
import json
import os
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from pathlib import Path
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from lockstep.data.corpus import vocabulary
from lockstep.data.corpus.binary_corpus import SIDES, EncodedSentences, id_type
from lockstep.data.corpus.removed_pairs import format_rows, shorten
from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.data.data_settings import DataSettings
from lockstep.data.text.clean import REASONS, Reason, RemovedPair, check_pieces, clean, count_reasons
from lockstep.data.text.lines import Hashes, Lines, Mask
from lockstep.data.text.normalize import Change
from lockstep.data.text.text_block import TextBlock
from lockstep.files import sync

SENTENCES_AT_ONCE = 4096

Arrays = dict[str, npt.NDArray[np.generic]]


class CleanedFacts(TypedDict):
    """The counts in a cleaned shard."""

    read: int
    removed: dict[Reason, int]
    changed: dict[Change, int]
    checked: int
    natural: int
    file: str
    first: int
    """The number of the shard's first line in the file."""


class EncodedFacts(TypedDict):
    """The counts in an encoded shard."""

    removed: dict[Reason, int]
    source_bytes: int
    source_plain_words: int
    target_bytes: int
    target_plain_words: int


@dataclass(frozen=True)
class CleanJob:
    settings: DataSettings
    block: TextBlock
    to: Path


@dataclass(frozen=True)
class VocabularyJob:
    settings: DataSettings
    shards: list[Path]
    masks: list[Mask]
    to: Path


@dataclass(frozen=True)
class EncodeJob:
    settings: DataSettings
    shard: Path
    verdict: npt.NDArray[np.int8]
    """For every pair of the shard: 0 to encode it, or 1 + the index of the reason why it is dropped."""
    vocabulary: Path
    to: Path


def clean_shard(job: CleanJob) -> int:
    """Cleans a block and writes the remaining pairs. Returns the number of pairs that were read."""
    settings, block = job.settings, job.block
    decoded = block.decode(settings.line_limit, settings.skips_bad_lines)
    cleaned = clean(settings, decoded)
    facts: CleanedFacts = {
        "read": len(cleaned.lines) + len(cleaned.removed),
        "removed": Counter(pair.reason for pair in cleaned.removed),
        "changed": cleaned.changed,
        "checked": cleaned.checked,
        "natural": cleaned.natural,
        "file": str(block.paths[0]),
        "first": block.first,
    }
    shown = [pair._replace(source=shorten(pair.source), target=shorten(pair.target)) for pair in cleaned.removed]
    arrays: Arrays = {
        "source": cleaned.source.data,
        "target": cleaned.target.data,
        "source_hashes": cleaned.source.hashes,
        "target_hashes": cleaned.target.hashes,
        "lines": cleaned.lines.astype(np.int32),
        "doubts": cleaned.doubts,
        "dropped": np.frombuffer(json.dumps(shown).encode(), np.uint8),
    }
    _write(job.to, arrays, facts)
    return facts["read"]


def train_vocabulary(job: VocabularyJob) -> None:
    """Trains the vocabulary on a sample of the pairs that the masks select."""
    total = sum(int(mask.sum()) for mask in job.masks)
    sample = vocabulary.choose_sample(total, job.settings.vocabulary.sample)

    def read_sentences() -> Iterator[str]:
        before = 0
        for path, mask in zip(job.shards, job.masks, strict=True):
            selected = np.flatnonzero(mask)
            start, end = np.searchsorted(sample, [before, before + len(selected)])
            source, target = read_cleaned(path)
            for index in selected[sample[start:end] - before]:
                yield source.sentences[index]
                yield target.sentences[index]
            before += len(selected)

    _replace(job.to, vocabulary.train_to_fit(job.settings.vocabulary, read_sentences), synced=True)


def encode_shard(job: EncodeJob) -> int:
    """Encodes the selected pairs of a cleaned shard and writes those that are not too long, and all that were removed.

    Returns the number of selected pairs.
    """
    pieces = _load_vocabulary(job.vocabulary)
    sides = read_cleaned(job.shard)
    verdict = job.verdict.copy()
    selected = verdict == 0
    encoded = [_encode(pieces, _select(side.sentences, selected)) for side in sides]
    verdict[selected] = check_pieces(job.settings, encoded[0][1] - 1, encoded[1][1] - 1)
    mask, fits = verdict == 0, verdict[selected] == 0
    arrays: Arrays = {"dropped": np.frombuffer(_format_dropped(job.shard, sides, verdict), np.uint8)}
    sizes = []
    for name, side, (ids, lengths) in zip(SIDES, sides, encoded, strict=True):
        if not fits.all():
            ids, lengths = ids[np.repeat(fits, lengths)], lengths[fits]
        arrays |= {f"{name}_ids": ids.astype(id_type(pieces.size)), f"{name}_lengths": lengths}
        sizes.append((int((side.ends - side.starts + 1)[mask].sum()), int(side.spaces[mask].sum()) + len(lengths)))
    (source_bytes, source_plain_words), (target_bytes, target_plain_words) = sizes
    facts: EncodedFacts = {
        "removed": count_reasons(verdict[selected]),
        "source_bytes": source_bytes,
        "source_plain_words": source_plain_words,
        "target_bytes": target_bytes,
        "target_plain_words": target_plain_words,
    }
    _write(job.to, arrays, facts)
    return int(selected.sum())


def _format_dropped(shard: Path, sides: tuple[Lines, Lines], verdict: npt.NDArray[np.int8]) -> bytes:
    """Returns the rows of all pairs that were removed from a shard, for the file of removed pairs."""
    with np.load(shard) as file:
        facts: CleanedFacts = json.loads(file["facts"].tobytes())
        pairs = [RemovedPair(*pair) for pair in json.loads(file["dropped"].tobytes())]
        lines = file["lines"]
    for index in np.flatnonzero(verdict > 0):
        source, target = (side.sentences[index] for side in sides)
        pairs.append(RemovedPair(int(lines[index]), REASONS[verdict[index] - 1], source, target))
    return format_rows(facts["file"], facts["first"], pairs)


def read_cleaned(path: Path) -> tuple[Lines, Lines]:
    """Returns both sides of a cleaned shard."""
    with np.load(path) as file:
        source, target = (Lines(file[side].tobytes().decode()) for side in SIDES)
    return source, target


def read_cleaned_facts(path: Path) -> tuple[CleanedFacts, Hashes, Hashes]:
    """Returns the counts of a cleaned shard and the hashes of its source and target sentences."""
    with np.load(path) as file:
        return json.loads(file["facts"].tobytes()), file["source_hashes"], file["target_hashes"]


def read_doubts(path: Path) -> npt.NDArray[np.int8]:
    """Returns what the language of the pairs of a cleaned shard suggests."""
    with np.load(path) as file:
        doubts: npt.NDArray[np.int8] = file["doubts"]
    return doubts


def read_encoded(path: Path) -> tuple[EncodedSentences, EncodedSentences, Counter[Reason], bytes]:
    """Returns both sides of an encoded shard, the number of pairs that encoding dropped for each reason, and the rows of
    all pairs that were removed from the shard."""
    with np.load(path) as file:
        facts = json.loads(file["facts"].tobytes())
        source, target = (
            EncodedSentences(
                file[f"{side}_ids"], file[f"{side}_lengths"], facts[f"{side}_bytes"], facts[f"{side}_plain_words"]
            )
            for side in SIDES
        )
        return source, target, Counter(facts["removed"]), file["dropped"].tobytes()


def is_intact(path: Path) -> bool:
    """Does this shard exist, and do all its parts match their checksums?"""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (FileNotFoundError, zipfile.BadZipFile, EOFError):
        return False


@lru_cache(maxsize=1)
def _load_vocabulary(path: Path) -> Vocabulary:
    return Vocabulary.load(path)


def _encode(pieces: Vocabulary, texts: list[str]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Encodes texts in portions: the lists that SentencePiece returns are twenty times as large as arrays."""
    parts = [
        pieces.encode_flat(texts[start : start + SENTENCES_AT_ONCE])
        for start in range(0, len(texts), SENTENCES_AT_ONCE)
    ] or [pieces.encode_flat([])]
    return np.concatenate([ids for ids, _ in parts]), np.concatenate([lengths for _, lengths in parts])


def _select(texts: list[str], mask: Mask) -> list[str]:
    return texts if mask.all() else list(compress(texts, mask))


def _write(path: Path, arrays: Arrays, facts: CleanedFacts | EncodedFacts) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    _replace(path, buffer.getbuffer())


def _replace(path: Path, data: bytes | memoryview, synced: bool = False) -> None:
    """Writes a file under another name and renames it, so that it never exists half-written."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.aside")
    aside.write_bytes(data)
    if synced:
        sync(aside)
    aside.replace(path)
