"""Which places are addresses of a store, and where their local copies lie. Nothing heavy is imported here, because
every command asks it."""

import hashlib
import re
from pathlib import Path
from urllib.parse import urlsplit

from lockstep.errors import LockstepError
from lockstep.files import cache


def is_remote(place: object) -> bool:
    """`s3://bucket/runs/first` is; a path is not. Addresses that cannot be meant are refused here."""
    text = str(place)
    if "://" not in text:
        if slip := re.match(r"(s3|gs|gcs|az|abfs|hdfs|memory):/(?=[^/])", text):
            raise LockstepError(f"{text} is neither a path nor an address.", f"Write {slip[1]}:// with two slashes.", 2)
        return False
    if urlsplit(text.rpartition("::")[2]).password:
        raise LockstepError(
            "An address with a password would be written into the run's files.",
            "Leave it out: credentials come from the environment or the usual files of the store's own tools.",
            code=2,
        )
    return True


def cache_folder(kind: str, url: str) -> Path:
    """The folder for one address: readable, and a different one for every address."""
    url = url.rstrip("/")
    words = re.sub(r"[^A-Za-z0-9._]+", "-", url.partition("://")[2]).strip("-.")
    return cache() / kind / f"{words[-60:]}-{hashlib.sha256(url.encode()).hexdigest()[:10]}"


def working_folder(run: str | Path) -> Path:
    """Where a run works on this machine: its own folder, or the one that is mirrored to its address."""
    return cache_folder("runs", str(run)) if is_remote(run) else Path(run)
