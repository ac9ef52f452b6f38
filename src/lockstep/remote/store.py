"""A folder on an object store. Only this module uses fsspec; it turns errors of the stores into plain sentences.

A store replaces one object atomically, but not several: a caller that writes several objects writes a manifest last.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.errors import LockstepError

EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
VERSION_KEYS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "updated", "created")
"""Every store lists one of these, which changes with the content of an object."""
NO_BUCKET = "bucket does not exist"
"""Part of the message with which s3fs distinguishes a missing bucket from a missing object."""


class StoreError(LockstepError):
    """An operation of an object store failed."""


@dataclass(frozen=True)
class StoredObject:
    """An object in a listing."""

    bytes: int
    version: str  # changes with the content


class Store:
    """A folder on an object store. Names are relative to it. Listings are not cached, because other machines write too."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        protocol = self.url.partition("://")[0]
        self._is_local = protocol in ("file", "local")  # a local folder, in which files being written are visible
        options = {"auto_mkdir": True} if self._is_local else {}
        with _explain_errors(self.url):
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
        """Returns the content of a small object, or None when it does not exist."""
        with _explain_errors(self.url):
            try:
                return bytes(self._files.cat_file(self._path(name)))
            except FileNotFoundError as error:
                if NO_BUCKET in str(error):
                    raise
                return None

    def write(self, name: str, data: bytes) -> None:
        with _explain_errors(self.url):
            self._files.pipe_file(self._path(name), data)

    def fetch(self, name: str, path: Path) -> None:
        """Copies an object into a file, atomically."""
        partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
        with _explain_errors(f"{self.url}/{name}"):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._files.get_file(self._path(name), str(partial))
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)

    def send(self, path: Path, name: str) -> None:
        """Copies a file into an object, atomically."""
        with _explain_errors(f"{self.url}/{name}"):
            if not self._is_local:
                self._files.put_file(str(path), self._path(name))
                return
            partial = self._path(f"{name}.partial-{os.getpid()}")
            try:
                self._files.put_file(str(path), partial)
                self._files.mv(partial, self._path(name))
            finally:
                if self._files.exists(partial):
                    self._files.rm_file(partial)

    def list(self, under: str = "") -> dict[str, StoredObject]:
        """Returns every object below, by name. Names with `..` are left out, so that a copy stays inside its folder."""
        with _explain_errors(self.url):
            try:
                listing: dict[str, dict[str, Any]] = self._files.find(self._path(under), detail=True)
            except FileNotFoundError as error:
                if NO_BUCKET in str(error):
                    raise
                return {}
            return {
                path.removeprefix(f"{self._root}/"): StoredObject(int(info["size"]), _find_version(info))
                for path, info in listing.items()
                if path.startswith(f"{self._root}/") and not path.endswith("/") and ".." not in path.split("/")
            }

    def remove(self, names: Iterable[str]) -> None:
        """Deletes objects. Objects that do not exist are ignored."""
        with _explain_errors(self.url):
            for name in names:
                try:
                    self._files.rm_file(self._path(name))
                except FileNotFoundError:
                    continue

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


def _find_version(info: Mapping[str, object]) -> str:
    return next((str(info[name]) for name in VERSION_KEYS if name in info), "")


@contextmanager
def _explain_errors(url: str) -> Iterator[None]:
    """Raises every error of the store as a StoreError with a remedy. Each store has different exception classes, so this
    catches all of them."""
    try:
        yield
    except LockstepError:
        raise
    except FileNotFoundError as error:
        missing = "its bucket does not exist" if NO_BUCKET in str(error) else "it does not exist"
        raise StoreError(f"{url} cannot be used: {missing}.", "Check the address.") from None
    except Exception as error:
        kind = type(error).__name__
        if isinstance(error, PermissionError) or "Credential" in kind or "Auth" in kind or "Token" in kind:
            raise StoreError(
                f"{url} cannot be used with the credentials of this machine: {_describe(error)}.",
                "Set the environment variables or files of the store (for S3: AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY), and check the permissions of the bucket.",
            ) from None
        raise StoreError(
            f"{url} cannot be used: {_describe(error)}.", "Check the address, the network and AWS_ENDPOINT_URL, if set."
        ) from None


def _describe(error: Exception) -> str:
    text = (getattr(error, "strerror", None) or str(error)).strip()
    return text.splitlines()[0].rstrip(".")[:200] if text else type(error).__name__
