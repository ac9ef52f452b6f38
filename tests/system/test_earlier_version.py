"""A run folder of an earlier version still resumes, reports and translates.

`tests/fixtures/run-0.1.0.tar.gz` holds text, corpus and run of Lockstep 0.1.0: two workers, one of them killed in step 13
of 20. `expected.txt` has the losses and the model's digest of the same training without the kill, on a CPU of AMD.
"""

import json
import tarfile
from pathlib import Path

import pytest

from conftest import lockstep, steps
from golden_runs import TOLERANCE, losses, machine, model_digest
from lockstep.run.best import Evaluation
from lockstep.run.checkpoint import choose, list_all

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "run-0.1.0.tar.gz"


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The folder with the run, as if it had been made here."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    for path in (tmp_path / "tiny.yaml", tmp_path / "run" / "config.yaml"):
        path.write_text(path.read_text().replace("/earlier", str(tmp_path)))
    return tmp_path


def test_a_run_of_0_1_0_resumes_to_the_same_model(earlier: Path) -> None:
    run = earlier / "run"
    shown = lockstep("train", earlier / "tiny.yaml", "--workers", 2, "--run", run)
    assert "step 10" in shown.stdout + shown.stderr
    expected = (earlier / "expected.txt").read_text()
    assert [line["step"] for line in steps(run)] == list(range(1, 21))
    if f"{expected.splitlines()[0]}, AuthenticAMD" == machine():
        assert model_digest(run, 20) == expected.splitlines()[1].split()[1]
    assert [line["loss"] for line in steps(run)] == pytest.approx(losses(expected), rel=TOLERANCE)


def test_a_run_of_0_1_0_is_reported_and_listed(earlier: Path) -> None:
    answers = json.loads(lockstep("report", earlier / "run", "--json").stdout)
    assert "after 12" in answers["verdict"][0]
    assert "run" in lockstep("runs", earlier).stdout


def test_the_best_checkpoint_of_a_run_of_0_1_0_is_known(earlier: Path) -> None:
    """Both checkpoints have the same score. Their manifests do not name the loss of each, only that of the best."""
    saved = list_all(earlier / "run" / "checkpoints")
    assert all("loss" not in one.manifest["progress"] for one in saved)
    assert [one.evaluation for one in saved] == [
        Evaluation(5, 0.0, 5.789321726018732),
        Evaluation(10, 0.0, 5.151700973510742),
    ]
    assert choose(saved, "best").saved.step == 10


def test_a_run_of_0_1_0_translates(earlier: Path) -> None:
    (earlier / "input").write_text("ba de\n")
    shown = lockstep("translate", earlier / "run", "--input", earlier / "input")
    assert len(shown.stdout.splitlines()) == 1


@pytest.mark.slow
def test_a_run_of_0_1_0_with_settings_that_did_nothing_stays_usable(earlier: Path) -> None:
    """Its all-reduce accepted and ignored the settings of parameter servers and local SGD."""
    run = earlier / "run"
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("mode: sync", "mode: async").replace("every: null", "every: 7"))
    (earlier / "input").write_text("ba de\n")
    assert lockstep("translate", run, "--input", earlier / "input").stdout
    assert lockstep("evaluate", run).stdout
    lockstep("train", "--workers", 2, "--run", run)
    assert [line["step"] for line in steps(run)] == list(range(1, 21))
    assert json.loads(lockstep("report", run, "--json").stdout)["verdict"]
    assert "  mode: " not in (run / "config.yaml").read_text()
    refused = lockstep("train", "strategy.mode=async", "--run", run, code=2)
    assert "strategy.mode is not for strategy.name=auto; server has it" in refused.stderr
