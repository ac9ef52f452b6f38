"""Runs a printed script with bash and records the programs that it would start on a cluster."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.run import environment_variables

TIMEOUT_SECONDS = 60.0
STAND_IN = """#!{python} -I
import json, os, sys
with open({record!r}, "a") as file:
    print(json.dumps([[os.path.basename(sys.argv[0]), *sys.argv[1:]], dict(os.environ)]), file=file)
"""
"""Takes the place of srun or mpirun: it notes its words and its environment."""


@dataclass(frozen=True)
class Call:
    """A program that a script has started."""

    words: tuple[str, ...]
    variables: dict[str, str]  # those that the script has set


def record_calls(script: str, programs: Sequence[str], variables: Mapping[str, str]) -> list[Call]:
    """Runs a script with bash, in which the `programs` only note how they were called. `variables` are those that the
    platform gives to the script."""
    with tempfile.TemporaryDirectory(prefix="lockstep-pretend-") as folder:
        record = Path(folder) / "record"
        for program in programs:
            path = Path(folder) / program
            path.write_text(STAND_IN.format(python=sys.executable, record=str(record)), encoding="utf-8")
            path.chmod(0o700)
        environment = environment_variables.copy_basics() | dict(variables)
        environment["PATH"] = os.pathsep.join([folder, environment.get("PATH", os.defpath)])
        result = subprocess.run(
            ["bash", "-c", script, "bash"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if result.returncode:
            raise LockstepError(
                f"The printed script ended with code {result.returncode}: {result.stderr.strip()}",
                "See it with --print.",
            )
        lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    leaves_out = {name: value for name, value in environment.items() if name not in variables} | {"PATH": ""}
    calls = []
    for words, known in map(json.loads, lines):
        own = {name: value for name, value in known.items() if not _is_same(name, value, leaves_out)}
        calls.append(Call(tuple(words), own))
    return calls


def _is_same(name: str, value: str, environment: Mapping[str, str]) -> bool:
    """Whether a variable is not the script's: bash sets some, and others were there before."""
    return name in ("PATH", "_", "SHLVL", "PWD", "OLDPWD", "LC_CTYPE") or environment.get(name) == value
