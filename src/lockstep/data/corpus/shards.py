"""The work on one shard of the training text, done in whatever process is free.

A shard is a fixed number of neighbouring lines. It is cleaned into `NUMBER.clean` and later encoded into `NUMBER.ids`.
Each is one file that carries checksums of its parts and is written aside and renamed, so preparation that was killed goes
on with the shards that are missing; what a power cut damages is told by its checksums.
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
from typing import Any

import numpy as np
import numpy.typing as npt

from lockstep.data.corpus import vocabulary
from lockstep.data.corpus.binary_corpus import CorpusRow, id_type
from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.data.data_settings import DataSettings
from lockstep.data.text.clean import Hashes, Lines, Mask, Reason, clean, pair_hashes, piece_fault
from lockstep.data.text.parallel_text import TextBlock
from lockstep.files import sync

SENTENCES_AT_ONCE = 4096

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class CleanJob:
    settings: DataSettings
    block: TextBlock
    to: Path


@dataclass(frozen=True)
class VocabularyJob:
    settings: DataSettings
    shards: list[Path]
    kept: list[Mask]
    to: Path


@dataclass(frozen=True)
class EncodeJob:
    settings: DataSettings
    shard: Path
    kept: Mask
    vocabulary: Path
    to: Path


def clean_shard(job: CleanJob) -> int:
    """Writes what is left of a block after cleaning; returns the number of pairs that were read."""
    texts = job.block.texts()
    source, target, removed = clean(job.settings, *texts)
    hashes = pair_hashes(source, target) if job.settings.drop_duplicates else np.zeros(0, "<u8")
    facts = {"read": texts[0].count("\n"), "kept": len(source), "removed": removed}
    _write(job.to, {"source": source.data, "target": target.data, "hashes": hashes}, facts)
    return int(texts[0].count("\n"))


def train_vocabulary(job: VocabularyJob) -> None:
    """Trains the vocabulary on an even sample of the pairs that are kept."""
    places = vocabulary.sample(sum(int(kept.sum()) for kept in job.kept), job.settings.vocabulary.sample)

    def sentences() -> Iterator[str]:
        before = 0
        for path, kept in zip(job.shards, job.kept, strict=True):
            mine = np.flatnonzero(kept)
            start, end = np.searchsorted(places, [before, before + len(mine)])
            source, target = cleaned_lines(path)
            for place in mine[places[start:end] - before]:
                yield source.list[place]
                yield target.list[place]
            before += len(mine)

    _write_aside(job.to, vocabulary.train(job.settings.vocabulary, sentences()), synced=True)


def encode_shard(job: EncodeJob) -> int:
    """Writes the ids of the pairs of a shard that are kept; returns how many pairs it looked at."""
    pieces = _vocabulary(job.vocabulary)
    sides = cleaned_lines(job.shard)
    rows = [_encoded(pieces, _selected(side.list, job.kept)) for side in sides]
    fits, removed = piece_fault(job.settings, rows[0][1] - 1, rows[1][1] - 1)
    kept = job.kept.copy()
    kept[job.kept] = fits
    arrays: Arrays = {}
    facts: dict[str, Any] = {"removed": removed}
    for name, side, (ids, lengths) in zip(("source", "target"), sides, rows, strict=True):
        if not fits.all():
            ids, lengths = ids[np.repeat(fits, lengths)], lengths[fits]
        arrays |= {f"{name}_ids": ids.astype(id_type(pieces.size)), f"{name}_lengths": lengths}
        facts |= {f"{name}_bytes": int((side.ends - side.starts + 1)[kept].sum())}
        facts |= {f"{name}_plain_words": int(side.blanks[kept].sum()) + len(lengths)}
    _write(job.to, arrays, facts)
    return int(job.kept.sum())


def cleaned_lines(path: Path) -> tuple[Lines, Lines]:
    """Both sides of a cleaned shard."""
    with np.load(path) as file:
        source, target = (Lines(file[side].tobytes().decode()) for side in ("source", "target"))
    return source, target


def cleaned_facts(path: Path) -> tuple[dict[str, Any], Hashes]:
    """What was counted of a cleaned shard, and the names of its pairs."""
    with np.load(path) as file:
        return json.loads(file["facts"].tobytes()), file["hashes"]


def encoded_rows(path: Path) -> tuple[CorpusRow, CorpusRow, Counter[Reason]]:
    """Both sides of an encoded shard, and why pairs of it were left out."""
    with np.load(path) as file:
        facts = json.loads(file["facts"].tobytes())
        source, target = (
            CorpusRow(
                file[f"{side}_ids"], file[f"{side}_lengths"], facts[f"{side}_bytes"], facts[f"{side}_plain_words"]
            )
            for side in ("source", "target")
        )
    return source, target, Counter(facts["removed"])


def is_whole(path: Path) -> bool:
    """Is this shard there, and does all of it match its checksums?"""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (FileNotFoundError, zipfile.BadZipFile, EOFError):
        return False


@lru_cache(maxsize=1)
def _vocabulary(path: Path) -> Vocabulary:
    return Vocabulary.load(path)


def _encoded(pieces: Vocabulary, texts: list[str]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """In portions: the lists of ids that SentencePiece returns take twenty times their size as arrays."""
    parts = [
        pieces.encode_row(texts[start : start + SENTENCES_AT_ONCE]) for start in range(0, len(texts), SENTENCES_AT_ONCE)
    ] or [pieces.encode_row([])]
    return np.concatenate([ids for ids, _ in parts]), np.concatenate([lengths for _, lengths in parts])


def _selected(texts: list[str], chosen: Mask) -> list[str]:
    return texts if chosen.all() else list(compress(texts, chosen))


def _packed(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def _write(path: Path, arrays: Arrays, facts: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, facts=_packed(json.dumps(facts).encode()), **arrays)  # type: ignore[arg-type]
    _write_aside(path, buffer.getbuffer())


def _write_aside(path: Path, data: bytes | memoryview, synced: bool = False) -> None:
    aside = path.with_name(f"{path.name}.{os.getpid()}.aside")
    aside.write_bytes(data)
    if synced:
        sync(aside)
    aside.replace(path)
