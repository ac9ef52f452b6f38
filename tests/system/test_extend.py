"""The example of docs/extend.md is a task that trains, whatever the number of workers."""

import re
from pathlib import Path

import pytest

from conftest import lockstep, steps

PAGE = Path(__file__).parents[2] / "docs" / "extend.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_example_trains_the_same_with_two_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (program,), (config,) = blocks("python"), blocks("yaml")
    Path("characters.py").write_text(program)
    Path("characters.yaml").write_text(config)
    Path("train.txt").write_text("the cat sat on the mat and the rat sat on the cat. " * 60)
    Path("held-out.txt").write_text("the rat sat on the mat and the cat sat on the rat. " * 6)
    shown = lockstep("train", "characters.yaml", "--run", "alone").stdout
    lockstep("train", "characters.yaml", "--workers", 2, "--run", "two")
    alone, two = steps(Path("alone")), steps(Path("two"))
    assert [line["loss"] for line in two] == pytest.approx([line["loss"] for line in alone], rel=1e-4)
    assert alone[-1]["loss"] < 0.5 * alone[0]["loss"]
    assert "characters/s" in shown
    assert "characters a second" in Path("alone/report.md").read_text()


def test_a_task_that_is_not_there_ends_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("characters.yaml").write_text(blocks("yaml")[0])
    result = lockstep("train", "characters.yaml", "--run", "run", code=2)
    assert "task=characters:make cannot be found" in result.stderr
    assert "Traceback" not in result.stderr
