"""Reads a file, compressed or not, as a stream of blocks. A damaged file raises an error that names it."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from lockstep.errors import LockstepError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ENDINGS = (".gz", ".xz", ".zst", ".bz2")
BLOCK_BYTES = 1 << 20
ZSTANDARD_BYTES = 1 << 11
"""Compressed bytes at once. They unpack to 64 MB at most, because a block of 128 kB takes four bytes or more."""


def strip_compression(name: str) -> str:
    """Returns a file name without the suffix of its compression."""
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yields the uncompressed content. Only one block is in memory at a time."""
    try:
        yield from _zstandard_blocks(path) if path.suffix == ".zst" else _file_blocks(path)
    except PermissionError:
        raise permission_error(path) from None
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise _damage_error(path, error) from None
    except OSError as error:
        if error.errno is None:  # bz2 reports invalid data this way
            raise _damage_error(path, error) from None
        raise LockstepError(f"{path} cannot be read: {error.strerror}.", "Check the disk, or copy it again.") from None


def open_unpacked(path: Path) -> BinaryIO:
    """Opens a file, compressed or not, to read its uncompressed lines. An uncompressed one is the file itself."""
    if not path.name.endswith(ENDINGS):
        return path.open("rb")
    return io.BufferedReader(_BlockStream(path))


class _BlockStream(io.RawIOBase):
    """The uncompressed content as a stream."""

    def __init__(self, path: Path) -> None:
        self._blocks, self._rest = read_blocks(path), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = block
        part, self._rest = self._rest[: len(view)], self._rest[len(view) :]
        view[: len(part)] = part
        return len(part)


def permission_error(path: Path) -> LockstepError:
    return LockstepError(f"{path} may not be read by this user.", f"Give read permission: chmod +r {path}.")


def _file_blocks(path: Path) -> Iterator[bytes]:
    with _open(path) as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _open(path: Path) -> gzip.GzipFile | lzma.LZMAFile | bz2.BZ2File | BinaryIO:
    match path.suffix:
        case ".gz":
            return gzip.GzipFile(path)
        case ".xz":
            return lzma.LZMAFile(path)
        case ".bz2":
            return bz2.BZ2File(path)
        case _:
            return path.open("rb")


def _zstandard_blocks(path: Path) -> Iterator[bytes]:
    """Yields all frames of a file. Unlike the stream reader of zstandard, it raises if the last frame is cut off."""
    import zstandard

    frame = None
    with path.open("rb") as file:
        while data := file.read(ZSTANDARD_BYTES):
            while data:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                try:
                    yield frame.decompress(data)
                except zstandard.ZstdError as error:
                    raise _damage_error(path, error) from None
                data = frame.unused_data
                if frame.eof:
                    frame = None
    if frame:
        raise EOFError("the last frame is cut off")


def _damage_error(path: Path, error: Exception) -> LockstepError:
    return LockstepError(f"The compressed file {path} is damaged or cut off ({error}).", "Copy or download it again.")
