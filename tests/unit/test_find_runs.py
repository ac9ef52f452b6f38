from pathlib import Path

import pytest

from lockstep.cli.find_runs import name_runs
from lockstep.errors import LockstepError


def run(folder: Path) -> str:
    (folder / "journal").mkdir(parents=True)
    (folder / "config.yaml").write_text("")
    return str(folder)


def test_a_run_has_the_name_of_its_folder(tmp_path: Path) -> None:
    a, b = run(tmp_path / "x" / "a"), run(tmp_path / "y" / "b")
    assert name_runs([a, b]) == {"a": a, "b": b}


def test_runs_with_equal_names_get_as_much_of_their_path_as_needed(tmp_path: Path) -> None:
    places = [run(tmp_path / "x" / "fast" / "a"), run(tmp_path / "y" / "fast" / "a"), run(tmp_path / "b")]
    assert list(name_runs(places)) == ["x/fast/a", "y/fast/a", "b"]


def test_a_folder_of_runs_stands_for_all_of_them(tmp_path: Path) -> None:
    a, b = run(tmp_path / "a"), run(tmp_path / "deep" / "b")
    assert name_runs([str(tmp_path)]) == {"a": a, "b": b}
    assert name_runs([a, str(tmp_path)]) == {"a": a, "b": b}, "each once"


def test_runs_inside_of_a_run_are_ignored(tmp_path: Path) -> None:
    outer = run(tmp_path / "outer")
    run(tmp_path / "outer" / "copy")
    assert name_runs([outer]) == {"outer": outer}


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_place_without_a_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(LockstepError, match=name):
        name_runs([str(tmp_path / name)])
