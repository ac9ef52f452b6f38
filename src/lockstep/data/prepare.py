"""From text to a prepared corpus, once for all processes and all later runs.

Text is streamed three times (check and count, vocabulary, encode) rather than kept. The corpus is made in a hidden
folder beside its place and renamed at the end: it exists whole or not at all. Same text and settings, same digest.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from lockstep.data import text, vocabulary
from lockstep.data.clean import Reason, clean, clean_encoded
from lockstep.data.corpus import FILES, FORMAT, INDEX, VOCABULARY, Corpus, SetWriter, id_type, seal
from lockstep.data.settings import DataSettings
from lockstep.errors import LockstepError
from lockstep.files import sha256, sync
from lockstep.remote.place import is_remote

Report = Callable[[str, int], None]
CHUNK_PAIRS = 4096


def fingerprint(settings: DataSettings) -> str:
    """A short name of everything the corpus is made from: settings, text files as they are now, versions."""
    recipe = {"format": FORMAT, **_recipe(settings)}
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]


def corpus_folder(settings: DataSettings) -> Path:
    """Where the corpus of these settings lies or will lie."""
    if settings.corpus is not None:
        return Path(settings.corpus).expanduser()
    source, target = settings.languages
    return Path("corpora") / f"{source}-{target}-{settings.vocabulary.size}-{fingerprint(settings)[:10]}"


def prepare(settings: DataSettings, report: Report | None = None, force: bool = False) -> Corpus:
    """Opens the corpus of these settings, and makes it first when it is not there (or when `force` asks for it).

    Any number of processes may call this at once: one makes the corpus, the others wait for it. `report` hears the
    stage ("read", "vocabulary", "encode") and its number of lines so far.
    """
    if is_remote(settings.corpus) or is_remote(settings.folder):
        from lockstep.data.remote import prepared

        return prepared(settings, lambda local: prepare(local, report, force), force)
    folder = corpus_folder(settings).resolve()
    try:
        stamp = _stamp(folder)
        if stamp and not force:
            return _reuse(folder, settings)
        with _locked(folder):
            if _stamp(folder) != stamp:  # another process made it while this one waited
                return _reuse(folder, settings)
            _remove_partials(folder)
            _check_place(folder, force)
            partial = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
            try:
                partial.mkdir()
                _build(settings, partial, report or (lambda stage, count: None))
                _move(partial, folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise _disk_error(folder, error) from error
    return Corpus.open(folder)


def _build(settings: DataSettings, folder: Path, report: Report) -> None:
    """Fills an empty folder with the corpus."""
    recipe = _recipe(settings)
    sets = [name for name in text.SETS if settings.grammar or getattr(settings, name)]
    reading = _Progress(report, "read")
    counts = {name: sum(1 for _ in _pairs(settings, name, reading, Counter())) for name in sets}
    _check_any_left(settings, counts["train"])

    pairs = _pairs(settings, "train", _Progress(report, "vocabulary"), Counter())
    model = vocabulary.train(settings.vocabulary, vocabulary.sample(pairs, counts["train"], settings.vocabulary.sample))
    (folder / VOCABULARY).write_bytes(model)
    pieces = vocabulary.Vocabulary(model)

    encoding = _Progress(report, "encode")
    set_facts = {name: _encode(settings, name, pieces, folder, encoding) for name in sets}
    _check_any_left(settings, set_facts["train"]["lines"])
    files = [{**source, "sha256": sha256(Path(source["path"]))} for source in recipe["files"]]
    if _recipe(settings) != recipe:
        raise LockstepError("The text files changed while the corpus was being made from them.", "Prepare it again.")
    facts = {
        "languages": list(settings.languages),
        "megabytes": round(sum(facts["text_bytes"] for facts in set_facts.values()) / 1e6, 3),
        "sets": set_facts,
        "vocabulary": {"size": pieces.size, "kind": settings.vocabulary.kind, "digest": pieces.digest},
        "id_type": id_type(pieces.size),
        **recipe,
        "files": files,
    }
    seal(folder, facts)


def _encode(
    settings: DataSettings, name: str, pieces: vocabulary.Vocabulary, folder: Path, progress: "_Progress"
) -> dict[str, Any]:
    """Writes the files of one set and returns what there is to know about it."""
    removed: Counter[Reason] = Counter()
    pairs = _pairs(settings, name, progress, removed)
    with SetWriter(folder, name, pieces.size) as writer:
        while chunk := list(islice(pairs, CHUNK_PAIRS)):
            sources, targets = [pair[0] for pair in chunk], [pair[1] for pair in chunk]
            source_ids = pieces.encode(sources, vocabulary.ALL_CORES)
            target_ids = pieces.encode(targets, vocabulary.ALL_CORES)
            if name == "train":
                kept = clean_encoded(settings, source_ids, target_ids, removed)
                sources, targets = [sources[i] for i in kept], [targets[i] for i in kept]
                source_ids, target_ids = [source_ids[i] for i in kept], [target_ids[i] for i in kept]
            writer.append(sources, targets, source_ids, target_ids)
    return {**writer.facts(), "removed": dict(sorted(removed.items()))}


class _Progress:
    """Counts the lines of a stage over all its sets and reports now and then."""

    def __init__(self, report: Report, stage: str) -> None:
        self._report, self._stage, self._count = report, stage, 0

    def follow(self, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        for pair in pairs:
            self._count += 1
            if self._count % CHUNK_PAIRS == 0:
                self._report(self._stage, self._count)
            yield pair
        self._report(self._stage, self._count)


def _pairs(
    settings: DataSettings, name: str, progress: _Progress, removed: Counter[Reason]
) -> Iterator[tuple[str, str]]:
    """The pairs of a set as a stream, training text already filtered."""
    pairs = progress.follow(text.read_set(settings, name))
    return clean(settings, pairs, removed) if name == "train" else pairs


def _recipe(settings: DataSettings) -> dict[str, Any]:
    """What decides the content of a corpus, as it is recorded in it."""
    version = None
    if settings.grammar:
        from lockstep.data import grammar

        version = grammar.VERSION
    return {"settings": _dump(settings), "files": text.sources(settings), "grammar_version": version}


def _dump(settings: DataSettings) -> dict[str, Any]:
    """The settings without places: where the text lies is told by its files."""
    return settings.model_dump(mode="json", exclude={"corpus", "folder"})


def _reuse(folder: Path, settings: DataSettings) -> Corpus:
    corpus = Corpus.open(folder)
    if differences := _differences(corpus.facts, settings):
        raise LockstepError(
            f"The corpus in {folder} was made from something else: {'; '.join(differences)}.",
            "Choose another data.corpus, or make this one anew with `lockstep prepare --force`.",
            code=2,
        )
    return corpus


def _differences(facts: dict[str, Any], settings: DataSettings) -> list[str]:
    """What a corpus was made from -> what is asked for now.

    Text that moved or was merely touched is compared by content; text that is not on this machine is not missed.
    """
    old, new = _flat(facts["settings"]), _flat(_dump(settings))
    keys = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    found = [f"data.{key} {old.get(key)} -> {new.get(key)}" for key in keys]
    try:
        recipe = _recipe(settings)
    except LockstepError:
        return found
    if facts["grammar_version"] != recipe["grammar_version"]:
        found.append(f"version of the grammar {facts['grammar_version']} -> {recipe['grammar_version']}")
    if set(keys).isdisjoint({"languages", "grammar", *text.SETS}):
        for before, now in zip(facts["files"], recipe["files"], strict=False):
            if before["bytes"] != now["bytes"]:
                found.append(f"{now['path']} {before['bytes']} bytes -> {now['bytes']} bytes")
            elif {**before, **now} != before and sha256(Path(now["path"])) != before["sha256"]:
                found.append(f"{now['path']} has other content")
    return found


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _stamp(folder: Path) -> tuple[int, int] | None:
    """Changes whenever the corpus in a folder is made anew."""
    try:
        found = (folder / INDEX).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Only one process at a time; the lock goes with the process, however it ends."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_partials(folder: Path) -> None:
    """What a killed preparation left; only under the lock, so it cannot be another's work."""
    for left in folder.parent.iterdir():
        if left.name.startswith(f".{folder.name}.partial-"):
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


def _move(partial: Path, folder: Path) -> None:
    old = partial.with_name(f"{partial.name}-old")
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _check_any_left(settings: DataSettings, pairs: int) -> None:
    if pairs == 0:
        raise LockstepError(
            f"No training pair is left after cleaning (data.max_words {settings.max_words}, data.max_ratio "
            f"{settings.max_ratio}, data.max_pieces {settings.max_pieces}).",
            "Check that the text is parallel and not blank, or raise these limits.",
        )


def _disk_error(folder: Path, error: OSError) -> LockstepError:
    remedy = "Check the folder, or set data.corpus to another one."
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "Free some space there, or set data.corpus to a folder on another disk."
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        remedy = "Set data.corpus to a folder that you may write."
    return LockstepError(f"The corpus {folder} cannot be made: {error.strerror or error}.", remedy)
