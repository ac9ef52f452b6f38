"""The folder of a launch is removed by the next one if its launcher was killed, and never while it lives."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from conftest import Tiny, running
from lockstep.launch.launch_folder import make_launch_folder

HOLD = """
import sys
from lockstep.launch.launch_folder import make_launch_folder
with make_launch_folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary files of this process and of those that it starts are in a folder of the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def start_launcher() -> tuple["subprocess.Popen[str]", Path]:
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_only_the_folder_of_a_dead_launcher_is_removed(tmp_path: Path) -> None:
    dead, dead_folder = start_launcher()
    living, living_folder = start_launcher()
    (dead_folder / "error.json").touch()
    dead.kill()
    dead.wait()
    assert dead_folder.is_dir()
    with make_launch_folder() as own:
        assert not dead_folder.exists()
        assert living_folder.is_dir()
        assert Path(own).parent == tmp_path
    living.communicate()
    assert list(tmp_path.iterdir()) == []


def test_a_process_number_that_is_used_again_is_another_owner(tmp_path: Path) -> None:
    with make_launch_folder() as own:
        *_, place, pid, start, _ = Path(own).name.split("-")
    assert int(pid) == os.getpid()
    names = {
        "ours, earlier": f"lockstep-launch-{place}-{pid}-{int(start) - 1}-abc",
        "another machine": f"lockstep-launch-00000000-{pid}-{int(start) - 1}-abc",
        "another program": "lockstep-launch-mine",
    }
    for name in names.values():
        (tmp_path / name).mkdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / f"lockstep-launch-{place}-{pid}-0-link").symlink_to(tmp_path / "precious")
    with make_launch_folder():
        assert not (tmp_path / names["ours, earlier"]).exists()
        assert (tmp_path / names["another machine"]).exists()
        assert (tmp_path / names["another program"]).exists()
        assert (tmp_path / "precious").exists()


def test_a_killed_training_leaves_nothing_behind_for_ever(tiny: Tiny, tmp_path: Path) -> None:
    with running(tiny, tmp_path / "run", workers=2) as launcher:
        launcher.kill()
        launcher.communicate()
    assert len(list(tmp_path.glob("lockstep-*"))) == 1
    with make_launch_folder():
        pass
    assert list(tmp_path.glob("lockstep-*")) == []
