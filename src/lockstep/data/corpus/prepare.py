"""From text to a prepared corpus, once for all processes and all later runs.

The training text is streamed in shards of a fixed number of lines through processes on all cores: read, clean, find
duplicates over all shards, train the vocabulary on a sample, encode, join. The corpus keeps the order of the text: training
draws its sentences in random order through the index, so shuffling them on the disk would gain nothing.

Same text and settings, same digest, with any number of processes. Everything happens in a hidden folder beside the
corpus' place, named after the recipe, and the result is renamed at the end: a corpus exists whole or not at all. When
preparation is killed, the next one finds that folder and goes on with the shards that are missing.
"""

import errno
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from lockstep import faults
from lockstep.data.corpus import shards
from lockstep.data.corpus.binary_corpus import FILES, INDEX, VOCABULARY, Corpus, SetWriter, id_type, row_of, seal
from lockstep.data.corpus.fingerprint import differences, fingerprint, recipe
from lockstep.data.corpus.pool import Pool, WorkerEnded
from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.data.data_settings import DataSettings
from lockstep.data.text import parallel_text
from lockstep.data.text.clean import REASONS, Mask, Reason, first_ones
from lockstep.errors import LockstepError
from lockstep.files import locked, read_json, sha256, sync, write_json
from lockstep.remote.place import is_remote

Report = Callable[[str, int, int | None], None]
"""Hears of a stage: its name, how far it is, and how far it goes if that is known."""
SHARD_LINES = 1 << 16
HELD_OUT_LINES = 4096


def corpus_folder(settings: DataSettings) -> Path:
    """Where the corpus of these settings lies or will lie."""
    if settings.corpus is not None:
        return Path(settings.corpus).expanduser()
    source, target = settings.languages
    return Path("corpora") / f"{source}-{target}-{settings.vocabulary.size}-{fingerprint(settings)[:10]}"


def prepare(settings: DataSettings, report: Report | None = None, force: bool = False) -> Corpus:
    """Opens the corpus of these settings, and makes it first when it is not there (or when `force` asks for it).

    Any number of processes may call this at once: one makes the corpus, the others wait for it. `report` hears of the
    stages "read", "vocabulary" and "encode" in pairs; and once each, as "cleaned" and "encoded", how many of all shards an
    interrupted preparation had left in that state.
    """
    if is_remote(settings.corpus) or is_remote(settings.folder):
        from lockstep.data.corpus.remote_copies import prepared

        return prepared(settings, lambda local: prepare(local, report, force), force)
    folder = corpus_folder(settings).resolve()
    try:
        stamp = _stamp(folder)
        if stamp and not force:
            return _reuse(folder, settings)
        with locked(folder.with_name(f"{folder.name}.lock")):
            if _stamp(folder) != stamp:  # another process made it while this one waited
                return _reuse(folder, settings)
            _check_place(folder, force)
            work = folder.with_name(f".{folder.name}.partial-{fingerprint(settings)}")
            _remove_partials(folder, but=work)
            try:
                _build(settings, work, report or (lambda stage, done, total: None))
                _move(work, folder)
            except WorkerEnded:
                raise
            except (LockstepError, OSError):  # another recipe, or more room, is needed: nothing to go on with
                shutil.rmtree(work, ignore_errors=True)
                raise
    except OSError as error:
        raise _disk_error(folder, error) from error
    return Corpus.open(folder)


def _build(settings: DataSettings, work: Path, report: Report) -> None:
    """Makes the corpus in the folder `corpus` of the work folder, from what is there already."""
    made_from = recipe(settings)
    work.mkdir(exist_ok=True)
    corpus = work / "corpus"
    shutil.rmtree(corpus, ignore_errors=True)
    corpus.mkdir()
    held_out = [name for name in parallel_text.SETS[1:] if settings.grammar or getattr(settings, name)]
    checked = 0
    for name in held_out:
        checked += sum(1 for _ in parallel_text.read_set(settings, name))
        report("read", checked, None)
    with Pool(settings.processes) as pool:
        cleaned = _clean(settings, work, pool, report, checked)
        kept, removed, read = _without_duplicates(settings, cleaned)
        pairs = sum(int(mask.sum()) for mask in kept)
        _check_any_left(settings, pairs)
        report("vocabulary", 0, pairs)
        pieces = _train_vocabulary(settings, work, pool, cleaned, kept)
        report("vocabulary", pairs, pairs)
        encoded = _encode(settings, work, pool, report, cleaned, kept)
        digests = list(pool.map(sha256, [Path(source["path"]) for source in made_from["files"]]))

    shutil.copyfile(work / VOCABULARY, corpus / VOCABULARY)
    train = _join(corpus, encoded, pieces.size, removed)
    _check_any_left(settings, train["lines"])
    set_facts = {"train": {"read": read, **train}}
    for name in held_out:
        set_facts[name] = _encode_held_out(settings, name, pieces, corpus)
        report("encode", pairs + sum(set_facts[name]["lines"] for name in set_facts if name != "train"), None)
    if recipe(settings) != made_from:
        raise LockstepError("The text files changed while the corpus was being made from them.", "Prepare it again.")
    facts = {
        "languages": list(settings.languages),
        "megabytes": round(sum(facts["text_bytes"] for facts in set_facts.values()) / 1e6, 3),
        "sets": set_facts,
        "vocabulary": {"size": pieces.size, "kind": settings.vocabulary.kind, "digest": pieces.digest},
        "id_type": id_type(pieces.size),
        **made_from,
        "files": [{**source, "sha256": digest} for source, digest in zip(made_from["files"], digests, strict=True)],
    }
    seal(corpus, facts)
    faults.at("joined")


def _clean(settings: DataSettings, work: Path, pool: Pool, report: Report, checked: int) -> list[Path]:
    """Reads the training text and cleans the shards that are missing; returns all of them."""
    done = read_json(work / "cleaned.json")
    if done is not None:
        paths = [_shard(work, number, "clean") for number in range(done["shards"])]
        if all(map(shards.is_whole, paths)):
            report("cleaned", len(paths), len(paths))
            return paths
    paths, before, read = [], 0, checked

    def jobs() -> Iterator[shards.CleanJob]:
        nonlocal before
        for number, block in enumerate(parallel_text.blocks(settings, "train", SHARD_LINES)):
            paths.append(_shard(work, number, "clean"))
            if shards.is_whole(paths[-1]):
                before += 1
            else:
                yield shards.CleanJob(settings, block, paths[-1])

    for number, pairs in enumerate(pool.map(shards.clean_shard, jobs()), start=1):
        read += pairs
        report("read", read, None)
        faults.step(number)
        faults.at("cleaned")
    if before:
        report("cleaned", before, len(paths))
    sync(work)
    write_json(work / "cleaned.json", {"shards": len(paths)})
    return paths


def _without_duplicates(settings: DataSettings, cleaned: list[Path]) -> tuple[list[Mask], Counter[Reason], int]:
    """Which pairs of each shard are learned from, why the others are not, and how many were read."""
    if not cleaned:  # a catalogue may have no message that is translated
        return [], Counter(), 0
    facts, hashes = zip(*map(shards.cleaned_facts, cleaned), strict=True)
    sizes = [fact["kept"] for fact in facts]
    removed: Counter[Reason] = Counter()
    for fact in facts:
        removed.update(fact["removed"])
    first = first_ones(np.concatenate(hashes)) if settings.drop_duplicates else np.ones(sum(sizes), bool)
    removed["duplicate"] = len(first) - int(first.sum())
    return np.split(first, np.cumsum(sizes)[:-1]), removed, sum(fact["read"] for fact in facts)


def _train_vocabulary(
    settings: DataSettings, work: Path, pool: Pool, cleaned: list[Path], kept: list[Mask]
) -> Vocabulary:
    path = work / VOCABULARY
    if not path.exists():
        pool.run(shards.train_vocabulary, shards.VocabularyJob(settings, cleaned, kept, path))
        sync(work)
    faults.at("vocabulary")
    return Vocabulary.load(path)


def _encode(
    settings: DataSettings, work: Path, pool: Pool, report: Report, cleaned: list[Path], kept: list[Mask]
) -> list[Path]:
    """Encodes the shards that are missing; returns all of them."""
    paths = [_shard(work, number, "ids") for number in range(len(cleaned))]
    missing = [number for number, path in enumerate(paths) if not shards.is_whole(path)]
    total = sum(int(mask.sum()) for mask in kept)
    done = total - sum(int(kept[number].sum()) for number in missing)
    if len(missing) < len(paths):
        report("encoded", len(paths) - len(missing), len(paths))
    jobs = (
        shards.EncodeJob(settings, cleaned[number], kept[number], work / VOCABULARY, paths[number])
        for number in missing
    )
    report("encode", done, total)
    for number, pairs in enumerate(pool.map(shards.encode_shard, jobs), start=1):
        done += pairs
        report("encode", done, total)
        faults.step(number)
        faults.at("encoded")
    sync(work)
    return paths


def _join(corpus: Path, encoded: list[Path], vocabulary_size: int, removed: Counter[Reason]) -> dict[str, Any]:
    """Writes the files of the training set; returns what there is to know about it."""
    with SetWriter(corpus, "train", vocabulary_size) as writer:
        for path in encoded:
            source, target, too_long = shards.encoded_rows(path)
            writer.append(source, target)
            removed.update(too_long)
    return {**writer.facts(), "removed": {reason: removed[reason] for reason in REASONS if removed[reason]}}


def _encode_held_out(settings: DataSettings, name: str, pieces: Vocabulary, corpus: Path) -> dict[str, Any]:
    pairs = parallel_text.read_set(settings, name)
    with SetWriter(corpus, name, pieces.size) as writer:
        while chunk := list(islice(pairs, HELD_OUT_LINES)):
            source, target = (row_of(pieces, [pair[side] for pair in chunk]) for side in (0, 1))
            writer.append(source, target)
    facts = writer.facts()
    return {"read": facts["lines"], **facts, "removed": {}}


def _shard(work: Path, number: int, kind: str) -> Path:
    return work / f"{number:06d}.{kind}"


def _reuse(folder: Path, settings: DataSettings) -> Corpus:
    corpus = Corpus.open(folder)
    if found := differences(corpus.facts, settings):
        raise LockstepError(
            f"The corpus in {folder} was made from something else: {'; '.join(found)}.",
            "Choose another data.corpus, or make this one anew with `lockstep prepare --force`.",
            code=2,
        )
    return corpus


def _stamp(folder: Path) -> tuple[int, int] | None:
    """Changes whenever the corpus in a folder is made anew."""
    try:
        found = (folder / INDEX).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns


def _remove_partials(folder: Path, but: Path) -> None:
    """What a killed preparation of another recipe left; only under the lock, so it cannot be another's work."""
    for left in folder.parent.iterdir():
        if left.name.startswith(f".{folder.name}.partial-") and left != but:
            shutil.rmtree(left)


def _check_place(folder: Path, force: bool) -> None:
    """Never replaces a folder that is not a corpus."""
    present = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    if foreign := sorted(present - FILES):
        raise LockstepError(f"{folder} holds other files ({foreign[0]}).", "Choose another data.corpus.", code=2)
    if present and not force:
        raise LockstepError(
            f"{folder} holds a corpus without its {INDEX}.", "Make it anew with `lockstep prepare --force`."
        )


def _move(work: Path, folder: Path) -> None:
    """Puts the finished corpus into its place and removes everything else."""
    old = work / "old"
    if folder.exists():
        folder.rename(old)
    (work / "corpus").rename(folder)
    sync(folder.parent)
    shutil.rmtree(work, ignore_errors=True)


def _check_any_left(settings: DataSettings, pairs: int) -> None:
    if pairs == 0:
        limits = ("max_words", "max_ratio", "max_pieces", "max_identical", "max_foreign")
        shown = ", ".join(f"data.{limit} {getattr(settings, limit)}" for limit in limits)
        raise LockstepError(
            f"No training pair is left after cleaning ({shown}).",
            "Check that the text is parallel, not blank and in data.languages, or raise these limits.",
        )


def _disk_error(folder: Path, error: OSError) -> LockstepError:
    remedy = "Check the folder, or set data.corpus to another one."
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "Free some space there, or set data.corpus to a folder on another disk."
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        remedy = "Set data.corpus to a folder that you may write."
    return LockstepError(f"The corpus {folder} cannot be made: {error.strerror or error}.", remedy)
