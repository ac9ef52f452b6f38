"""What slows a run down is measured by ablation, and the report includes the proof."""

import json
from pathlib import Path

import pytest

from conftest import Tiny, lockstep
from lockstep.lab.prove import divide_batch

SLOW = "slow:phase=backward:rank=1:ms=200"


@pytest.mark.slow
def test_a_slow_worker_is_measured_and_one_round_proves_nothing(tiny: Tiny, tmp_path: Path) -> None:
    run = tmp_path / "run"
    lockstep("train", tiny.config, "train.steps=12", "--workers", 2, "--run", run, fault=SLOW)
    proof = json.loads(lockstep("prove", run, "--steps", 10, "--rounds", 1, "--json", fault=SLOW).stdout)
    assert proof["bottleneck"] == "not proven"
    assert "use --rounds 6" in proof["needed"][-1]
    assert 0.0 <= proof["others_share"] <= 1.0
    assert 0.2 < proof["step_seconds"] < 2.0
    assert proof["costs"]["imbalance"] > 0.5
    assert proof["costs"]["network"] < 0.4
    assert json.loads((run / "proof.json").read_text()) == proof
    facts = json.loads(lockstep("report", run, "--json").stdout)
    assert proof["sentence"] in json.dumps(facts, ensure_ascii=False)
    assert facts["verdict"][-1].startswith(facts["bottleneck"]["sentence"]), "the journal is never replaced"
    assert len((run / "journal" / "worker-0000.jsonl").read_text().splitlines()) > 12, "the run itself was not touched"
    assert not list(run.glob("full*"))


def test_one_worker_alone_computes_its_share() -> None:
    assert divide_batch({"words": 4096, "sentences": None}, 4) == [
        "batch.words=1024",
        "batch.sentences=null",
        "batch.images=null",
    ]
    assert divide_batch({"words": None, "sentences": None, "images": 128}, 2)[2] == "batch.images=64"


def test_what_is_not_a_run_is_refused(tmp_path: Path) -> None:
    refused = lockstep("prove", tmp_path, code=2)
    assert "is not a run" in refused.stderr
