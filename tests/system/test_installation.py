"""Lockstep installs on machines that lack something."""

import os
import subprocess
import sys
from pathlib import Path


def test_without_a_compiler_lockstep_installs_all_the_same(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build_ext",
        "--build-temp",
        str(tmp_path),
        "--build-lib",
        str(tmp_path),
    ]
    done = subprocess.run(
        command, cwd=root, env=os.environ | {"CC": "no-such-compiler"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("*.so"))
