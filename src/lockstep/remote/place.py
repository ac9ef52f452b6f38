"""Distinguishes addresses of object stores from paths, and finds their local copies. Every command imports this module,
so it imports nothing that is slow."""

import hashlib
import re
from pathlib import Path
from urllib.parse import urlsplit

from lockstep.errors import LockstepError
from lockstep.run import environment_variables


def is_remote(place: object) -> bool:
    """Is it an address like `s3://bucket/runs/first`, not a path? Raises for malformed addresses."""
    text = str(place)
    if "://" not in text:
        if typo := re.match(r"(s3|gs|gcs|az|abfs|hdfs|memory):/(?=[^/])", text):
            raise LockstepError(f"{text} is neither a path nor an address.", f"Write {typo[1]}:// with two slashes.", 2)
        return False
    if urlsplit(text.rpartition("::")[2]).password:
        raise LockstepError(
            "An address with a password would be written into the run's files.",
            "Remove the password: credentials come from the environment or from the files of the store's tools.",
            code=2,
        )
    return True


def cache_folder(kind: str, url: str) -> Path:
    """Returns the cache folder of an address. Its name is readable and unique to the address."""
    url = url.rstrip("/")
    words = re.sub(r"[^A-Za-z0-9._]+", "-", url.partition("://")[2]).strip("-.")
    return (
        environment_variables.cache_folder() / kind / f"{words[-60:]}-{hashlib.sha256(url.encode()).hexdigest()[:10]}"
    )


def working_folder(run: str | Path) -> Path:
    """Returns the local folder of a run: the run folder itself, or the folder that is mirrored to its address."""
    return cache_folder("runs", str(run)) if is_remote(run) else Path(run)
