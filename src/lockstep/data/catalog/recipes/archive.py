"""Reads tar archives and Debian packages as a stream. Nothing is unpacked to a path that an archive names."""

import bz2
import contextlib
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import zstandard

from lockstep.errors import LockstepError

AR_MAGIC = b"!<arch>\n"
AR_HEADER_BYTES = 60


@contextlib.contextmanager
def report_damage(path: Path) -> Iterator[None]:
    """Turns errors of the decompressors into one that names the archive."""
    try:
        yield
    except (EOFError, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise LockstepError(
            f"The archive {path} is damaged or cut off ({error}).", "Remove it and get it again."
        ) from None


class Content:
    """The content of one file in an archive. Reading raises if the archive is damaged."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path = file, path

    def read(self, size: int = -1) -> bytes:
        with report_damage(self._path):
            return self._file.read(size)


def decompress(file: IO[bytes]) -> IO[bytes]:
    """Opens the uncompressed content of a file. The compression is detected by its first bytes, not by its name."""
    start = file.read(6)
    file.seek(-len(start), io.SEEK_CUR)
    if start.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(file))
    if start == b"\xfd7zXZ\x00":
        return lzma.open(file)
    if start.startswith(b"BZh"):
        return bz2.open(file)
    if start.startswith(b"\x28\xb5\x2f\xfd"):
        return zstandard.ZstdDecompressor().stream_reader(file)
    return file


def read_archive(path: Path) -> Iterator[tuple[str, Content]]:
    """Yields the name and content of every regular file in an archive. Read each content before taking the next."""
    with report_damage(path), path.open("rb") as file:
        inner = _find_debian_data(file, path) if file.read(len(AR_MAGIC)) == AR_MAGIC else file
        inner.seek(0)
        with decompress(inner) as tar, tarfile.open(fileobj=tar, mode="r|") as archive:
            for member in archive:
                if member.isfile() and (content := archive.extractfile(member)):
                    yield member.name.removeprefix("./"), Content(content, path)


def _find_debian_data(file: IO[bytes], path: Path) -> IO[bytes]:
    """Returns data.tar of a Debian package, an `ar` archive of debian-binary, control.tar and data.tar."""
    while len(header := file.read(AR_HEADER_BYTES)) == AR_HEADER_BYTES:
        name, digits = header[:16].decode("ascii", "replace").strip(" /"), header[48:58].strip()
        if not digits.isdigit():
            break
        size = int(digits)
        if name.startswith("data.tar"):
            data = file.read(size)
            if len(data) == size:
                return io.BytesIO(data)
            break
        file.seek(size + size % 2, io.SEEK_CUR)
    raise LockstepError(f"The package {path} is damaged or cut off.", "Remove it and get it again.")
