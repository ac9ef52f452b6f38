"""Files of a run that have another content than Lockstep wrote end in a sentence, never in a traceback."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conftest import Tiny, lockstep
from lockstep.cli.main import app
from lockstep.errors import LockstepError

CONTENTS = [
    "[]",
    "5",
    '"x"',
    "null",
    "{}",
    '{"sets": 1, "digest": 1, "choices": 1, "batch": 1, "workers": 1}',
    "[" * 9000,
]


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def invoke(*words: object) -> None:
    """Calls the command in this process. It may fail, but only with a sentence."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, LockstepError | SystemExit):
        raise result.exception


@pytest.mark.parametrize("content", CONTENTS, ids=[content[:12] for content in CONTENTS])
@pytest.mark.parametrize("name", ["choices.json", "data.json", "environment.json", "proof.json", "tests.json"])
def test_a_file_of_another_shape(tiny: Tiny, run: Path, tmp_path: Path, name: str, content: str) -> None:
    (run / name).write_text(content)
    invoke("train", "--run", run)
    invoke("report", run)
    invoke("runs", "list", run.parent, "--json")
    invoke("export", run, "--to", tmp_path / "export")
    invoke("runs", "follow", run, "--once")
    invoke("data", "describe", run)
    invoke("data", "show", run, "--step", 3)
    invoke("runs", "audit", run)
    invoke("evaluate", run, "--set", "validation")


@pytest.mark.parametrize("content", CONTENTS, ids=[content[:12] for content in CONTENTS])
def test_a_manifest_of_another_shape(run: Path, content: str) -> None:
    for path in run.glob("checkpoints/*/manifest.json"):
        path.write_text(content)
    invoke("report", run)
    invoke("runs", "list", run.parent, "--json")
    invoke("translate", run, "ba de")


@pytest.mark.parametrize("content", [CONTENTS[0], CONTENTS[5]], ids=["list", "other values"])
@pytest.mark.parametrize("name", ["choices.json", "data.json", "environment.json"])
def test_a_run_with_a_file_of_another_shape_cannot_break_its_continuation(run: Path, name: str, content: str) -> None:
    (run / name).write_text(content)
    result = lockstep("train", "train.steps=241", "--workers", 1, "--run", run, code=None)
    assert "Traceback" not in result.stderr
    assert result.returncode == 0 or result.stderr.count("Error: ") == 1


@pytest.mark.parametrize("content", CONTENTS, ids=[content[:12] for content in CONTENTS])
def test_no_ablation_begins_without_the_batch_of_the_run(run: Path, content: str) -> None:
    (run / "choices.json").write_text(content)
    invoke("prove", run, "--steps", 10)
