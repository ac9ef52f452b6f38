"""Training in fp16 with loss scaling, which is the default on Volta and Turing, by two workers on CPUs."""

from pathlib import Path

import pytest

from conftest import Tiny, lockstep, manifest, steps


def test_two_workers_in_fp16_follow_one_in_fp32(tiny: Tiny, tmp_path: Path) -> None:
    settings = ["model.dropout=0", "train.steps=8", "train.kernels=torch"]
    lockstep("train", tiny.config, *settings, "train.precision=fp32", "--workers", 1, "--run", tmp_path / "one")
    lockstep("train", tiny.config, *settings, "train.precision=fp16", "--workers", 2, "--run", tmp_path / "two")
    one, two = ([line["loss"] for line in steps(tmp_path / name)] for name in ("one", "two"))
    assert two == pytest.approx(one, rel=1e-2)
    assert two != one
    assert all(line["applied"] for line in steps(tmp_path / "two"))
    scalars = manifest(tmp_path / "two", 8)["progress"]["scalars"]
    assert scalars["loss_scale.value"] == 2.0**16
    assert scalars["loss_scale.good_steps"] == 8.0
