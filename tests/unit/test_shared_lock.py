"""A lock that the workers of one launch hold together, and nobody else."""

import os
from pathlib import Path

import pytest

from lockstep.errors import LockstepError
from lockstep.run.directory import RunDirectory


def yes() -> bool:
    return True


def no() -> bool:
    return False


def test_the_first_settles_alone_and_then_lets_the_others_in(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    first, settles = run.share("launch-a", no, 0.0)
    assert settles
    with pytest.raises(LockstepError, match="is being trained right now"):
        run.share("launch-a", no, 0.0)
    run.let_in(first)
    second, settles = run.share("launch-a", yes, 0.0)
    assert not settles
    first.close()
    assert run.busy()
    second.close()
    assert not run.busy()


def test_another_launch_is_kept_out_as_long_as_one_worker_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_LAUNCHER", "4242")
    run = RunDirectory(tmp_path)
    first, _ = run.share("launch-a", no, 0.0)
    run.let_in(first)
    second, _ = run.share("launch-a", yes, 0.0)
    first.close()
    with pytest.raises(LockstepError, match="process 4242"):
        run.lock(patience_seconds=0.0)
    with pytest.raises(LockstepError, match="launch launch-a"):
        run.share("launch-b", no, 60.0)  # it does not wait so long for strangers
    second.close()
    third, settles = run.share("launch-b", no, 0.0)
    assert settles
    third.close()


def test_a_worker_started_again_when_all_had_died_does_not_settle_again(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    first, _ = run.share("launch-a", no, 0.0)
    first.close()
    again, settles = run.share("launch-a", yes, 0.0)
    assert not settles
    other, settles = run.share("launch-a", yes, 0.0)  # so the first of them holds it together with others
    assert not settles
    assert os.fstat(again.fileno()).st_ino == os.fstat(other.fileno()).st_ino
    again.close()
    other.close()
