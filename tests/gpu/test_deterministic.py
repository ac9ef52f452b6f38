"""What a deterministic training on CUDA needs before its first product."""

import os
from pathlib import Path

import pytest

from lockstep.config import load
from lockstep.errors import LockstepError
from lockstep.train.worker import train

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@pytest.mark.parametrize(("deterministic", "expected"), [(True, ":4096:8"), (False, None)])
def test_cublas_gets_its_workspace(
    deterministic: bool, expected: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """torch refuses deterministic products without it: every run with train.deterministic would have failed."""

    def join(*_: object) -> None:
        seen.append(os.environ.get(WORKSPACE))
        raise LockstepError("far enough")

    seen: list[str | None] = []
    monkeypatch.setenv(WORKSPACE, "")
    monkeypatch.delenv(WORKSPACE)
    monkeypatch.setattr("lockstep.team.join", join)
    config = load(Path(__file__).parents[2] / "configs" / "demo.yaml", [f"train.deterministic={deterministic}".lower()])
    with pytest.raises(LockstepError, match="far enough"):
        train(config, tmp_path)
    assert seen == [expected]
