"""The jobs that worker processes do on one shard of the training text.

A shard is a fixed number of consecutive lines. It is cleaned into `NUMBER.clean` and later encoded into `NUMBER.ids`.
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
from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.data.data_settings import DataSettings
from lockstep.data.text.clean import Hashes, Lines, Mask, Reason, check_pieces, clean, hash_pairs
from lockstep.data.text.parallel_text import TextBlock
from lockstep.files import sync

SENTENCES_AT_ONCE = 4096

Arrays = dict[str, npt.NDArray[np.generic]]


class CleanedFacts(TypedDict):
    """The counts in a cleaned shard."""

    read: int
    removed: dict[Reason, int]


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
    mask: Mask
    vocabulary: Path
    to: Path


def clean_shard(job: CleanJob) -> int:
    """Cleans a block and writes the remaining pairs. Returns the number of pairs that were read."""
    texts = job.block.decode()
    pairs = texts[0].count("\n")
    source, target, removed = clean(job.settings, *texts)
    hashes = hash_pairs(source, target) if job.settings.drop_duplicates else np.zeros(0, "<u8")
    facts: CleanedFacts = {"read": pairs, "removed": removed}
    _write(job.to, {"source": source.data, "target": target.data, "hashes": hashes}, facts)
    return pairs


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

    _replace(job.to, vocabulary.train(job.settings.vocabulary, read_sentences()), synced=True)


def encode_shard(job: EncodeJob) -> int:
    """Encodes the selected pairs of a cleaned shard and writes those that are not too long.

    Returns the number of selected pairs.
    """
    pieces = _load_vocabulary(job.vocabulary)
    sides = read_cleaned(job.shard)
    encoded = [_encode(pieces, _select(side.sentences, job.mask)) for side in sides]
    fits, removed = check_pieces(job.settings, encoded[0][1] - 1, encoded[1][1] - 1)
    mask = job.mask.copy()
    mask[job.mask] = fits
    arrays: Arrays = {}
    sizes = []
    for name, side, (ids, lengths) in zip(SIDES, sides, encoded, strict=True):
        if not fits.all():
            ids, lengths = ids[np.repeat(fits, lengths)], lengths[fits]
        arrays |= {f"{name}_ids": ids.astype(id_type(pieces.size)), f"{name}_lengths": lengths}
        sizes.append((int((side.ends - side.starts + 1)[mask].sum()), int(side.spaces[mask].sum()) + len(lengths)))
    (source_bytes, source_plain_words), (target_bytes, target_plain_words) = sizes
    facts: EncodedFacts = {
        "removed": removed,
        "source_bytes": source_bytes,
        "source_plain_words": source_plain_words,
        "target_bytes": target_bytes,
        "target_plain_words": target_plain_words,
    }
    _write(job.to, arrays, facts)
    return int(job.mask.sum())


def read_cleaned(path: Path) -> tuple[Lines, Lines]:
    """Returns both sides of a cleaned shard."""
    with np.load(path) as file:
        source, target = (Lines(file[side].tobytes().decode()) for side in SIDES)
    return source, target


def read_cleaned_facts(path: Path) -> tuple[CleanedFacts, Hashes]:
    """Returns the counts of a cleaned shard and the hashes of its pairs."""
    with np.load(path) as file:
        return json.loads(file["facts"].tobytes()), file["hashes"]


def read_encoded(path: Path) -> tuple[EncodedSentences, EncodedSentences, Counter[Reason]]:
    """Returns both sides of an encoded shard, and the number of dropped pairs for each reason."""
    with np.load(path) as file:
        facts = json.loads(file["facts"].tobytes())
        source, target = (
            EncodedSentences(
                file[f"{side}_ids"], file[f"{side}_lengths"], facts[f"{side}_bytes"], facts[f"{side}_plain_words"]
            )
            for side in SIDES
        )
    return source, target, Counter(facts["removed"])


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
