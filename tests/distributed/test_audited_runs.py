"""The journals of real runs prove that every sample was used once in each pass, whatever interrupted them."""

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Tiny, lockstep, steps

SETTINGS = ("train.checkpoint_every=3", "train.save=wait", "batch.words=300")


def audit(run: Path, code: int = 0) -> dict[str, Any]:
    return dict(json.loads(lockstep("runs", "audit", run, "--json", code=code).stdout))


def test_a_run_with_kills_and_other_workers_used_every_pair_once(tiny: Tiny, tmp_path: Path) -> None:
    train = ("train", tiny.config, *SETTINGS, "train.steps=16", "--run", tmp_path)
    kills = (("kill:phase=backward:step=5:rank=1", 2), ("kill:phase=update:step=9:rank=0", 3))
    for fault, workers in kills:
        assert lockstep(*train, "--workers", workers, fault=fault, code=None).returncode != 0
    cut_off = audit(tmp_path)
    assert cut_off["differences"] == []
    assert cut_off["passes"][0]["is_complete"] is False
    lockstep(*train, "--workers", 1)
    result = audit(tmp_path)
    assert result["differences"] == []
    assert result["verdict"].startswith("Every one of 298 pairs was used exactly once in ")
    assert (result["interruptions"], result["computed_again"]) == (2, 3)
    assert len([one for one in result["passes"] if one["is_complete"]]) >= 1
    _shift_cursor(tmp_path, step=4)
    changed = audit(tmp_path, code=1)
    assert [difference["step"] for difference in changed["differences"]] == [4]


def _shift_cursor(run: Path, step: int) -> None:
    path = run / "journal" / "worker-0000.jsonl"
    (line,) = (one for one in steps(run) if one["step"] == step)
    old = json.dumps(line, separators=(",", ":"))
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, old.replace(f'"cursor":{line["cursor"]},', f'"cursor":{line["cursor"] - 1},')))


@pytest.mark.parametrize(
    ("settings", "workers", "limit"),
    [
        pytest.param(("strategy.name=server", "strategy.mode=async"), 2, "server async", marks=pytest.mark.slow),
        pytest.param(("strategy.name=local", "strategy.every=4"), 2, "local", marks=pytest.mark.slow),
        pytest.param(("strategy.name=replicas",), 2, "replicas", marks=pytest.mark.slow),
        pytest.param(("strategy.name=sharded",), 2, None, marks=pytest.mark.slow),
        pytest.param(("strategy.name=resilient",), 2, "resilient", marks=pytest.mark.slow),
        pytest.param(("strategy.name=server",), 3, None, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_every_strategy_uses_every_pair_once_and_says_what_is_not_proven(
    tiny: Tiny, tmp_path: Path, settings: tuple[str, ...], workers: int, limit: str | None
) -> None:
    train = ("train", tiny.config, *SETTINGS, *settings, "--workers", workers, "--run", tmp_path)
    lockstep(*train, "train.steps=5")
    lockstep(*train, "train.steps=12")
    result = audit(tmp_path)
    assert result["differences"] == []
    assert result["verdict"].startswith("Every one of 298 pairs was used exactly once")
    assert [sentence.partition(":")[0] for sentence in result["limits"]] == ([limit] if limit else [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        "kill:phase=update:step=5:rank=1",
        pytest.param("kill:phase=merge:step=6:rank=0", marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_dies_and_comes_back_uses_no_pair_twice(tiny: Tiny, tmp_path: Path, fault: str) -> None:
    settings = ("train.steps=14", "strategy.name=resilient")
    lockstep("train", tiny.config, *SETTINGS, *settings, "--workers", 2, "--run", tmp_path, fault=fault)
    result = audit(tmp_path)
    assert result["differences"] == []
    assert result["verdict"].startswith("Every one of 298 pairs was used exactly once")


def test_the_samples_of_a_step_are_shown_as_they_were_trained_on(tiny: Tiny, tmp_path: Path) -> None:
    lockstep("train", tiny.config, "train.steps=3", "--workers", 2, "--run", tmp_path)
    show = ("data", "show", tmp_path, "--step", 3, "--json", "--limit", 300)
    batch, *shares = (json.loads(lockstep(*show, *words).stdout) for words in ((), ("--worker", 0), ("--worker", 1)))
    assert batch["batch"] == steps(tmp_path)[2]["batch"]
    assert batch["target_words"] == steps(tmp_path)[2]["global_target_words"]
    for rank, share in enumerate(shares):
        assert share["target_words"] == steps(tmp_path, rank)[2]["words"]["target"]
    together = [sample["index"] for share in shares for sample in share["shown"]]
    assert sorted(together) == sorted(sample["index"] for sample in batch["shown"])
    text = (tiny.folder / "train.en").read_text().splitlines()
    assert all(sample["source"] in text for sample in batch["shown"])
    assert all(sample["target"] == " ".join(reversed(sample["source"].split())).title() for sample in batch["shown"])
    printed = lockstep("data", "show", tmp_path, "--step", 3, "--limit", 1).stdout
    assert batch["shown"][0]["target"] in printed
    assert f"{len(batch['shown']) - 1} more" in printed
    assert "Name a step from 1 to 3." in lockstep("data", "show", tmp_path, "--step", 99, code=2).stderr


@pytest.mark.slow
def test_the_images_of_a_step_are_shown_with_their_classes(tiny_images: Tiny, tmp_path: Path) -> None:
    lockstep("train", tiny_images.config, "train.steps=11", "--workers", 2, "--run", tmp_path)
    shown = json.loads(lockstep("data", "show", tmp_path, "--step", 10, "--json").stdout)
    assert shown["pass"] == 2
    assert len(shown["shown"]) == 7
    assert all(sample["class"].startswith("brightness ") for sample in shown["shown"])
    assert audit(tmp_path)["verdict"].startswith("Every one of 60 images was used exactly once in the complete pass")
    data = json.loads((tmp_path / "data.json").read_text())
    (tmp_path / "data.json").write_text(json.dumps(data | {"digest": "0" * 64}))
    assert "The corpus is not the one" in lockstep("runs", "audit", tmp_path, code=2).stderr
