"""Downloads files with package managers, which know their mirrors and check signatures."""

import os
import shutil
import subprocess
from pathlib import Path

from lockstep.errors import LockstepError


def download_apt(package: str, folder: Path) -> Path:
    """Downloads a Debian package without installing it. This does not need root."""
    remedy = (
        f"If the package lists are missing or old, run `apt-get update` once (as root); or put {package}_*.deb "
        "into a folder and name it with --from."
    )
    return _run_manager(["apt-get", "download", package], folder, "deb", remedy)


def download_npm(package: str, folder: Path) -> Path:
    """Downloads a package from the npm registry without installing it."""
    remedy = f"Check the network, or put {npm_file(package)} into a folder and name it with --from."
    return _run_manager(["npm", "pack", package], folder, "tgz", remedy)


def npm_file(package: str) -> str:
    """Returns the name of the file that `npm pack` writes for NAME@VERSION."""
    name, _, version = package.rpartition("@")
    return f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"


def _run_manager(command: list[str], folder: Path, ending: str, remedy: str) -> Path:
    """Runs a package manager in an empty folder and returns the file that it downloads."""
    words = " ".join(command)
    if shutil.which(command[0]) is None:
        raise LockstepError(f"`{words}` cannot run: {command[0]} is not installed.", remedy)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = os.environ | {"LC_ALL": "C"}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    files = sorted(folder.glob(f"*.{ending}"))
    if result.returncode or not files:
        lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("E:", "npm ERR!", "npm error"))] or lines[-1:]
        reason = errors[0].removeprefix("E:").strip() if errors else f"it ended with {result.returncode}"
        raise LockstepError(f"`{words}` failed: {reason.rstrip('.')}.", remedy)
    return files[0]
