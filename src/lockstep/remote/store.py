"""A folder on an object store. The only module that talks to fsspec, and the one that turns its failures into sentences.

An object is replaced as a whole, but several are not: whoever writes several writes last the one that makes them count.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.errors import LockstepError

EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
STAMPS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "updated", "created")
"""Under one of these names a store tells what changes when an object does."""
NO_BUCKET = "bucket does not exist"
"""How s3fs tells a missing bucket from a missing object."""


class StoreError(LockstepError):
    """The store did not do what it was asked."""


@dataclass(frozen=True)
class StoredObject:
    """What a listing tells about an object."""

    bytes: int
    stamp: str


class Store:
    """Names are relative to the folder. Listings are never cached: others write too."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        protocol = self.url.partition("://")[0]
        self._in_place = protocol in ("file", "local")  # a folder, whose files can be seen half-written
        options = {"auto_mkdir": True} if self._in_place else {}
        with _spoken(self.url):
            try:
                import fsspec

                self._files, root = fsspec.core.url_to_fs(
                    self.url, use_listings_cache=False, skip_instance_cache=True, **options
                )
            except ImportError as error:
                extra = EXTRAS.get(protocol)
                package = f"'lockstep-train[{extra}]'" if extra else "the package named above"
                raise StoreError(
                    f"{self.url} needs a package that is not installed: {str(error).rstrip('.')}.",
                    f"pip install {package}",
                    code=2,
                ) from None
            except ValueError as error:
                raise StoreError(f"{self.url}: {error}.", "Use s3://, gs:// or another address of fsspec.", 2) from None
        self._root = str(root).rstrip("/")

    def read(self, name: str) -> bytes | None:
        """The content of a small object, or None when it is not there."""
        with _spoken(self.url):
            try:
                return bytes(self._files.cat_file(self._path(name)))
            except FileNotFoundError as error:
                if NO_BUCKET in str(error):
                    raise
                return None

    def write(self, name: str, data: bytes) -> None:
        with _spoken(self.url):
            self._files.pipe_file(self._path(name), data)

    def fetch(self, name: str, path: Path) -> None:
        """Copies an object into a file, which is never seen half-written."""
        aside = path.with_name(f".{path.name}.partial-{os.getpid()}")
        with _spoken(f"{self.url}/{name}"):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._files.get_file(self._path(name), str(aside))
                aside.replace(path)
            finally:
                aside.unlink(missing_ok=True)

    def send(self, path: Path, name: str) -> None:
        """Copies a file into an object."""
        with _spoken(f"{self.url}/{name}"):
            if not self._in_place:
                self._files.put_file(str(path), self._path(name))
                return
            aside = self._path(f"{name}.partial-{os.getpid()}")
            try:
                self._files.put_file(str(path), aside)
                self._files.mv(aside, self._path(name))
            finally:
                if self._files.exists(aside):
                    self._files.rm_file(aside)

    def list(self, under: str = "") -> dict[str, StoredObject]:
        """Every object below, by name; none when there is nothing. A name never leads out of a folder it is copied to."""
        with _spoken(self.url):
            try:
                found: dict[str, dict[str, Any]] = self._files.find(self._path(under), detail=True)
            except FileNotFoundError as error:
                if NO_BUCKET in str(error):
                    raise
                return {}
            return {
                path.removeprefix(f"{self._root}/"): StoredObject(int(info["size"]), _stamp(info))
                for path, info in found.items()
                if path.startswith(f"{self._root}/") and not path.endswith("/") and ".." not in path.split("/")
            }

    def remove(self, names: Iterable[str]) -> None:
        """Deletes objects; one that is gone already is fine."""
        with _spoken(self.url):
            for name in names:
                try:
                    self._files.rm_file(self._path(name))
                except FileNotFoundError:
                    continue

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


def _stamp(info: dict[str, Any]) -> str:
    return next((str(info[name]) for name in STAMPS if name in info), "")


@contextmanager
def _spoken(url: str) -> Iterator[None]:
    """Every store has errors of its own; all of them mean that it could not be used, so all are caught here."""
    try:
        yield
    except LockstepError:
        raise
    except FileNotFoundError as error:
        missing = "its bucket does not exist" if NO_BUCKET in str(error) else "it is not there"
        raise StoreError(f"{url} cannot be used: {missing}.", "Check the address.") from None
    except Exception as error:
        kind = type(error).__name__
        if isinstance(error, PermissionError) or "Credential" in kind or "Auth" in kind or "Token" in kind:
            raise StoreError(
                f"{url} may not be used with the credentials found here: {_reason(error)}.",
                "Set the store's usual environment variables or files (for S3: AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY), and check the rights on the bucket.",
            ) from None
        raise StoreError(
            f"{url} cannot be used: {_reason(error)}.", "Check the address, the network and AWS_ENDPOINT_URL, if set."
        ) from None


def _reason(error: Exception) -> str:
    text = (getattr(error, "strerror", None) or str(error)).strip()
    return text.splitlines()[0].rstrip(".")[:200] if text else type(error).__name__
