"""Prepares a corpus from text, once for all processes and all later runs.

The training text is streamed in shards of a fixed number of lines to processes on all cores: read, clean, find duplicates
over all shards, train the vocabulary on a sample, encode, join. The corpus keeps the order of the text, because training
accesses sentences at random through their offsets.

The same text and settings give the same digest with any number of processes. The work is done in a hidden folder beside
the corpus folder, named after the fingerprint, and the result is renamed at the end: a corpus is complete or does not
exist. If preparation is killed or interrupted, the next one continues in that folder with the missing shards.
"""

import errno
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import compress, islice
from pathlib import Path

import numpy as np

from lockstep import faults
from lockstep.data.corpus import shards
from lockstep.data.corpus.binary_corpus import (
    FILES,
    INDEX,
    VOCABULARY,
    Corpus,
    SetFacts,
    SetWriter,
    encode_sentences,
    id_type,
    seal,
)
from lockstep.data.corpus.fingerprint import compute_fingerprint, describe_provenance, find_differences
from lockstep.data.corpus.pool import Pool, WorkerEnded
from lockstep.data.corpus.removed_pairs import RemovedWriter
from lockstep.data.corpus.select_pairs import HeldOut, Selection, hash_sentences, select_pairs
from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.data.data_settings import DataSettings
from lockstep.data.text import parallel_text
from lockstep.data.text.clean import REASONS, Reason, check_pieces, count_reasons
from lockstep.data.text.find_files import SETS
from lockstep.data.text.lines import Hashes, Mask
from lockstep.errors import LockstepError
from lockstep.files import locked, read_json, sha256, sync, write_json
from lockstep.remote.place import is_remote

Report = Callable[[str, int, int | None], None]
"""Receives the name of a stage, the amount done, and the total or None."""
SHARD_LINES = 1 << 16
HELD_OUT_LINES = 4096
APART_PAIRS = 5000
"""From so many pairs on, the vocabulary is trained in another process: SentencePiece would hold up a stop for seconds."""


def corpus_folder(settings: DataSettings) -> Path:
    """Returns the folder of the corpus of these settings, whether it exists or not."""
    if settings.corpus is not None:
        return Path(settings.corpus).expanduser()
    source, target = settings.languages
    return Path("corpora") / f"{source}-{target}-{settings.vocabulary.size}-{compute_fingerprint(settings)[:10]}"


def prepare(settings: DataSettings, report: Report | None = None, force: bool = False) -> Corpus:
    """Opens the corpus of these settings. If it does not exist, or with `force`, makes it first.

    Any number of processes may call this at the same time: one makes the corpus, the others wait for it. `report` is
    called for the stages "read", "vocabulary" and "encode" with numbers of pairs. After an interrupted preparation it is
    also called once for "cleaned" and "encoded", with the number of shards that are reused and of all shards.
    """
    if is_remote(settings.corpus) or is_remote(settings.folder):
        from lockstep.data.corpus.remote_copies import prepare_remote

        return prepare_remote(settings, lambda local: prepare(local, report, force), force)
    folder = corpus_folder(settings).resolve()
    try:
        stamp = _read_stamp(folder)
        if stamp and not force:
            return _reuse(folder, settings)
        with locked(folder.with_name(f".{folder.name}.lock"), remove=True):
            if _read_stamp(folder) != stamp:  # another process made it while this one waited
                return _reuse(folder, settings)
            _check_folder(folder, force)
            work = folder.with_name(f".{folder.name}.partial-{compute_fingerprint(settings)}")
            _remove_partials(folder, except_for=work)
            try:
                _build(settings, work, report or (lambda stage, done, total: None))
                _move(work, folder)
            except WorkerEnded:
                raise
            except (LockstepError, OSError):  # settings, text or disk must change: the work folder is of no use
                shutil.rmtree(work, ignore_errors=True)
                raise
    except OSError as error:
        raise _disk_error(folder, error) from error
    return Corpus.open(folder)


def _build(settings: DataSettings, work: Path, report: Report) -> None:
    """Makes the corpus in the folder `corpus` of the work folder. Shards that exist there are reused."""
    provenance = describe_provenance(settings)
    work.mkdir(exist_ok=True)
    corpus = work / "corpus"
    shutil.rmtree(corpus, ignore_errors=True)
    corpus.mkdir()
    named = [name for name in SETS[1:] if settings.grammar or getattr(settings, name)]
    held_out, checked = _check_held_out(settings, named, report)
    with Pool(settings.processes) as pool:
        cleaned = _clean(settings, work, pool, report, checked)
        selection = select_pairs(settings, cleaned, held_out)
        _check_any_left(settings, selection.pairs, selection.removed)
        report("vocabulary", 0, selection.pairs)
        pieces = _train_vocabulary(settings, work, pool, cleaned, [verdict == 0 for verdict in selection.verdicts])
        report("vocabulary", selection.pairs, selection.pairs)
        encoded = _encode(settings, work, pool, report, cleaned, selection)
        digests = list(pool.map(sha256, [Path(source["path"]) for source in provenance["files"]]))

    shutil.copyfile(work / VOCABULARY, corpus / VOCABULARY)
    train = _join(corpus, encoded, pieces.size, selection)
    _check_any_left(settings, train["lines"], selection.removed)
    set_facts: dict[str, SetFacts] = {"train": train}
    for name in SETS[1:]:
        if name in selection.split:
            set_facts[name] = _encode_split(settings, name, selection.split[name], pieces, corpus)
        elif name in named:
            set_facts[name] = _encode_held_out(settings, name, pieces, corpus)
        report("encode", selection.pairs + sum(set_facts[name]["lines"] for name in set_facts if name != "train"), None)
    if describe_provenance(settings) != provenance:
        raise LockstepError("The text files changed while the corpus was being made from them.", "Prepare it again.")
    facts = {
        "languages": list(settings.languages),
        "megabytes": round(sum(facts["text_bytes"] for facts in set_facts.values()) / 1e6, 3),
        "sets": set_facts,
        "languages_checked": selection.languages_checked,
        "vocabulary": {"size": pieces.size, "kind": settings.vocabulary.kind, "digest": pieces.digest},
        "id_type": id_type(pieces.size),
        **provenance,
        "files": [{**source, "sha256": digest} for source, digest in zip(provenance["files"], digests, strict=True)],
    }
    seal(corpus, facts)
    faults.at("joined")


def _check_held_out(settings: DataSettings, names: list[str], report: Report) -> tuple[HeldOut, int]:
    """Reads the validation and test text. Returns the hashes of its sentences and the number of pairs."""
    sides: tuple[list[Hashes], list[Hashes]] = ([], [])
    checked = 0
    for name in names:
        pairs = parallel_text.read_set(settings, name)
        while chunk := list(islice(pairs, HELD_OUT_LINES)):
            checked += len(chunk)
            if settings.cleaning > 1:
                for side, sentences in zip(sides, zip(*chunk, strict=True), strict=True):
                    side.append(hash_sentences(sentences))
        report("read", checked, None)
    sources, targets = (np.unique(np.concatenate([np.zeros(0, np.uint64), *side])) for side in sides)
    return HeldOut(sources, targets), checked


def _clean(settings: DataSettings, work: Path, pool: Pool, report: Report, checked: int) -> list[Path]:
    """Reads the training text and cleans the missing shards. Returns the paths of all shards."""
    done = read_json(work / "shards.json")
    if done is not None:
        paths = [_shard_path(work, number, "cleaned") for number in range(done["shards"])]
        if all(map(shards.is_intact, paths)):
            report("cleaned", len(paths), len(paths))
            return paths
    paths, reused, read = [], 0, checked

    def jobs() -> Iterator[shards.CleanJob]:
        nonlocal reused
        for number, block in enumerate(parallel_text.read_blocks(settings, "train", SHARD_LINES)):
            paths.append(_shard_path(work, number, "cleaned"))
            if shards.is_intact(paths[-1]):
                reused += 1
            else:
                yield shards.CleanJob(settings, block, paths[-1])

    for number, pairs in enumerate(pool.map(shards.clean_shard, jobs()), start=1):
        read += pairs
        report("read", read, None)
        faults.set_step(number)
        faults.at("cleaned")
    if reused:
        report("cleaned", reused, len(paths))
    sync(work)
    write_json(work / "shards.json", {"shards": len(paths)})
    return paths


def _train_vocabulary(
    settings: DataSettings, work: Path, pool: Pool, cleaned: list[Path], masks: list[Mask]
) -> Vocabulary:
    path = work / VOCABULARY
    given = settings.vocabulary.model
    if given is not None:
        shutil.copyfile(given, path)
    elif not path.exists():
        job = shards.VocabularyJob(settings, cleaned, masks, path)
        pool.run(shards.train_vocabulary, job, apart=sum(map(len, masks)) > APART_PAIRS)
        sync(work)
    faults.at("vocabulary")
    return Vocabulary.load(path)


def _encode(
    settings: DataSettings, work: Path, pool: Pool, report: Report, cleaned: list[Path], selection: Selection
) -> list[Path]:
    """Encodes the missing shards. Returns the paths of all shards."""
    paths = [_shard_path(work, number, "encoded") for number in range(len(cleaned))]
    missing = [number for number, path in enumerate(paths) if not shards.is_intact(path)]
    total, verdicts = selection.pairs, selection.verdicts
    done = total - sum(int((verdicts[number] == 0).sum()) for number in missing)
    if len(missing) < len(paths):
        report("encoded", len(paths) - len(missing), len(paths))
    jobs = (
        shards.EncodeJob(settings, cleaned[number], verdicts[number], work / VOCABULARY, paths[number])
        for number in missing
    )
    report("encode", done, total)
    for number, pairs in enumerate(pool.map(shards.encode_shard, jobs), start=1):
        done += pairs
        report("encode", done, total)
        faults.set_step(number)
        faults.at("encoded")
    sync(work)
    return paths


def _join(corpus: Path, encoded: list[Path], vocabulary_size: int, selection: Selection) -> SetFacts:
    """Writes the files of the training set from its shards. Adds the pairs with too many pieces to the removed ones."""
    removed = selection.removed
    with SetWriter(corpus, "train", vocabulary_size) as writer, RemovedWriter(corpus) as removed_writer:
        for path in encoded:
            source, target, too_long, rows = shards.read_encoded(path)
            writer.append(source, target)
            removed_writer.append(rows)
            removed.update(too_long)
    return {
        "read": selection.read,
        **writer.count(),
        "removed": {reason: removed[reason] for reason in REASONS if removed[reason]},
        "changed": dict(selection.changed),
    }


def _encode_held_out(settings: DataSettings, name: str, pieces: Vocabulary, corpus: Path) -> SetFacts:
    """Encodes validation or test text from the files that the settings name. Its text is stored unchanged, because scores
    use it as the reference; the model gets it normalized, like all text."""
    removed = Counter[Reason]()
    pairs = parallel_text.read_set(settings, name, removed)
    with SetWriter(corpus, name, pieces.size) as writer:
        while chunk := list(islice(pairs, HELD_OUT_LINES)):
            source, target = (
                encode_sentences(pieces, [pair[side] for pair in chunk], normalized=settings.cleaning > 1)
                for side in (0, 1)
            )
            writer.append(source, target)
    counts = writer.count()
    return {"read": counts["lines"] + removed.total(), **counts, "removed": removed, "changed": {}}


def _encode_split(
    settings: DataSettings, name: str, pairs: list[tuple[str, str]], pieces: Vocabulary, corpus: Path
) -> SetFacts:
    """Encodes pairs that were split off the training text, without those that have too many pieces."""
    sides = [encode_sentences(pieces, [pair[side] for pair in pairs]) for side in (0, 1)]
    verdict = check_pieces(settings, sides[0].lengths - 1, sides[1].lengths - 1)
    good = list(compress(pairs, verdict == 0))
    _check_any_left(settings, len(good), count_reasons(verdict), name)
    with SetWriter(corpus, name, pieces.size) as writer:
        source, target = (encode_sentences(pieces, [pair[side] for pair in good]) for side in (0, 1))
        writer.append(source, target)
    return {"read": len(pairs), **writer.count(), "removed": count_reasons(verdict), "changed": {}}


def _shard_path(work: Path, number: int, kind: str) -> Path:
    return work / f"{number:06d}.{kind}"


def _reuse(folder: Path, settings: DataSettings) -> Corpus:
    corpus = Corpus.open(folder)
    if differences := find_differences(corpus.facts, settings):
        raise LockstepError(
            f"The corpus in {folder} was made from other settings or text: {'; '.join(differences)}.",
            "Choose another data.corpus, or make this one again with `lockstep prepare --force`."
            + " data.cleaning=1 uses a corpus of Lockstep 0.1.0." * (corpus.facts["settings"].get("cleaning") is None),
            code=2,
        )
    return corpus


def _read_stamp(folder: Path) -> tuple[int, int] | None:
    """Returns a value that changes whenever the corpus in a folder is made again, or None without a corpus."""
    try:
        index = (folder / INDEX).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return index.st_ino, index.st_mtime_ns


def _remove_partials(folder: Path, except_for: Path) -> None:
    """Removes work folders that killed preparations with other settings left. Call it under the lock only."""
    for path in folder.parent.iterdir():
        if path.name.startswith(f".{folder.name}.partial-") and path != except_for:
            shutil.rmtree(path)


def _check_folder(folder: Path, force: bool) -> None:
    """Raises if the folder holds anything but a corpus: it must not be replaced."""
    present = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    if foreign := sorted(present - FILES):
        raise LockstepError(f"{folder} holds other files ({foreign[0]}).", "Choose another data.corpus.", code=2)
    if present and not force:
        raise LockstepError(
            f"{folder} holds a corpus without its {INDEX}.", "Make it again with `lockstep prepare --force`."
        )


def _move(work: Path, folder: Path) -> None:
    """Moves the finished corpus into its folder and removes the work folder."""
    old = work / "old"
    if folder.exists():
        folder.rename(old)
    (work / "corpus").rename(folder)
    sync(folder.parent)
    shutil.rmtree(work, ignore_errors=True)


def _check_any_left(settings: DataSettings, pairs: int, removed: Counter[Reason], name: str = "training") -> None:
    if pairs == 0:
        limits = ("max_words", "max_ratio", "max_pieces", "max_identical", "max_foreign")
        shown = ", ".join(f"data.{limit} {getattr(settings, limit)}" for limit in limits)
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in removed.most_common() if count)
        raise LockstepError(
            f"No {name} pair is left after cleaning (removed: {reasons or 'none'}; {shown}).",
            "Check that the text is parallel, not empty and in data.languages, or raise these limits.",
        )


def _disk_error(folder: Path, error: OSError) -> LockstepError:
    remedy = "Check the folder, or set data.corpus to another one."
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "Free some space there, or set data.corpus to a folder on another disk."
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        remedy = "Set data.corpus to a folder that you may write."
    return LockstepError(f"The corpus {folder} cannot be made: {error.strerror or error}.", remedy)
