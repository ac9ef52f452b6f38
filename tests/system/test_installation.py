"""Lockstep installs on machines that lack something."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import lockstep


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


@pytest.mark.slow
def test_the_edge_extra_brings_no_torch_and_translates(export_folder: Path, tmp_path: Path) -> None:
    root, python = Path(__file__).parents[2], tmp_path / "venv" / "bin" / "python"
    source = tmp_path / "source"
    for path in subprocess.run(
        ["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / path, source / path)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    constraints = ["-c", str(source / "constraints.txt")]
    install = [str(python), "-m", "pip", "install", "--quiet", *constraints, f"{source}[edge]"]
    result = subprocess.run(install, capture_output=True, text=True, check=False)
    if result.returncode:
        pytest.skip(f"The extra cannot be installed here: {result.stderr.strip().splitlines()[-1]}")
    assert not list((tmp_path / "venv").rglob("site-packages/torch*"))
    command = tmp_path / "venv" / "bin" / "lockstep"
    translated = subprocess.run(
        [command, "translate", export_folder, "ba de"], capture_output=True, text=True, check=True
    )
    assert translated.stdout == lockstep("translate", export_folder, "ba de").stdout
    refused = subprocess.run([command, "report", tmp_path], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    training = subprocess.run([command, "demo"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert training.returncode == 2
    assert "pip install 'lockstep-train[train]'" in training.stderr
