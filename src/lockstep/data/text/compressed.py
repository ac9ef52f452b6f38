"""The bytes of a file, compressed or not, as a stream of blocks. Damage is an error that names the file."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lockstep.errors import LockstepError

ENDINGS = (".gz", ".xz", ".zst", ".bz2")
BLOCK_BYTES = 1 << 20


def plain_name(name: str) -> str:
    """A file name without the ending of its compression."""
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)


def blocks(path: Path) -> Iterator[bytes]:
    """The uncompressed content; nothing holds more of it than one block."""
    try:
        yield from _zstandard_blocks(path) if path.suffix == ".zst" else _file_blocks(path)
    except PermissionError:
        raise no_permission(path) from None
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise _damaged(path, error) from None
    except OSError as error:
        if error.errno is None:  # how bz2 says that its data make no sense
            raise _damaged(path, error) from None
        raise LockstepError(f"{path} cannot be read: {error.strerror}.", "Check the disk, or copy it anew.") from None


def whole_lines(path: Path) -> Iterator[bytes]:
    """The same content in pieces that end where a line ends."""
    rest = b""
    for block in blocks(path):
        data = rest + block
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if end:
            yield data[:end]
    if rest:
        yield rest


def no_permission(path: Path) -> LockstepError:
    return LockstepError(f"{path} may not be read by this user.", f"Give read permission: chmod +r {path}.")


def _file_blocks(path: Path) -> Iterator[bytes]:
    with _opened(path) as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _opened(path: Path) -> gzip.GzipFile | lzma.LZMAFile | bz2.BZ2File | BinaryIO:
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
    """All frames of a file; unlike the library's own stream reader, it notices when the last one is cut off."""
    import zstandard

    frame = None
    with path.open("rb") as file:
        while data := file.read(BLOCK_BYTES):
            while data:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                try:
                    yield frame.decompress(data)
                except zstandard.ZstdError as error:
                    raise _damaged(path, error) from None
                data = frame.unused_data
                if frame.eof:
                    frame = None
    if frame:
        raise EOFError("the last frame is cut off")


def _damaged(path: Path, error: Exception) -> LockstepError:
    return LockstepError(f"The compressed file {path} is damaged or cut off ({error}).", "Copy or download it again.")
