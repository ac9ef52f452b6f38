"""The secret by which the processes of one job know each other.

Our own launchers make one for every launch. For torchrun, mpirun and others the user gives one, by LOCKSTEP_SECRET_FILE or
LOCKSTEP_SECRET. It never leaves a process: only digests made with it are sent.
"""

import hmac
import os
import secrets
import stat
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.run import environment_variables

LEAST_BYTES = 16
REMEDY = "Make one: (umask 077; openssl rand -hex 32 > job-secret)"


def make_secret_environment() -> dict[str, str]:
    """Returns the variables by which a launcher gives its processes a new random secret. A command line would show it to
    everybody."""
    return {"LOCKSTEP_SECRET": secrets.token_hex(32), "LOCKSTEP_SECRET_FILE": ""}


def read_secret() -> bytes:
    """Returns the secret of this job; empty if none was given. The file wins over the variable."""
    path = environment_variables.secret_file()
    secret = environment_variables.secret().strip().encode() if path is None else _read_file(path)
    if secret and len(secret) < LEAST_BYTES:
        raise LockstepError(f"The secret of this job is shorter than {LEAST_BYTES} characters.", REMEDY, code=2)
    return secret


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            secret = file.read(4096).strip()
    except OSError as error:
        raise LockstepError(f"LOCKSTEP_SECRET_FILE: {path}: {error.strerror}.", REMEDY, code=2) from None
    if mode & 0o077:
        raise LockstepError(
            f"Others than its owner can read or write the secret in {path} (mode {mode:04o}).",
            f"Run `chmod 600 {path}`; better, make a new one.",
            code=2,
        )
    if not secret:
        raise LockstepError(f"LOCKSTEP_SECRET_FILE: {path} is empty.", REMEDY, code=2)
    return secret


def sign(secret: bytes, purpose: str, content: bytes) -> bytes:
    """Returns the digest that only those can make who know the secret. A digest for one purpose is none for another."""
    return hmac.digest(secret, purpose.encode() + b"\0" + content, "sha256")


def is_signed(secret: bytes, purpose: str, content: bytes, signature: bytes) -> bool:
    return hmac.compare_digest(sign(secret, purpose, content), signature)
