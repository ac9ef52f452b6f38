"""Fine-tuning: `train.start_from` takes the weights and the vocabulary of another run."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from conftest import LSTM, Tiny, lockstep, weights, write_pairs

STEPS = "train.steps=6"


@dataclass
class Domain:
    """A finished run, and a config that names other text and only that."""

    base: Path
    config: Path
    folder: Path

    def write_config(self, name: str, **changes: object) -> Path:
        path = self.folder / name
        path.write_text(yaml.safe_dump(yaml.safe_load(self.config.read_text()) | changes))
        return path


@pytest.fixture(scope="module")
def domain(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Domain:
    folder = tmp_path_factory.mktemp("domain")
    base = folder / "base"
    lockstep("train", tiny.config, "--run", base)
    for seed, (name, count) in enumerate({"train": 200, "valid": 10, "test": 10}.items(), start=7):
        write_pairs(folder, name, count, seed)
    config = yaml.safe_load(tiny.config.read_text())
    config["data"] = {
        "folder": str(folder),
        "train": ["train"],
        "validation": ["valid"],
        "test": ["test"],
        "corpus": str(folder / "corpus"),
    }
    del config["model"]
    config["train"]["start_from"] = str(base)
    (folder / "domain.yaml").write_text(yaml.safe_dump(config))
    return Domain(base, folder / "domain.yaml", folder)


def test_starts_with_the_weights_the_sizes_and_the_vocabulary(domain: Domain, tmp_path: Path) -> None:
    run = tmp_path / "tuned"
    result = lockstep("train", domain.config, "schedule.peak=1e-12", "train.steps=1", "--run", run)
    model = domain.base / "checkpoints/step-00000008/model"
    assert (run / "checkpoints/step-00000001/model/vocabulary.model").read_bytes() == (
        model / "vocabulary.model"
    ).read_bytes()
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["model"] == yaml.safe_load((domain.base / "config.yaml").read_text())["model"]
    assert config["train"]["start_from"] == str(domain.base)
    import torch
    from safetensors.torch import load_file

    before = load_file(model / "model.safetensors")
    after = load_file(run / "checkpoints/step-00000001/model/model.safetensors")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, rtol=0, atol=1e-9)
    assert "old test text" in result.stderr


def test_scores_both_test_texts_with_both_models(domain: Domain, tmp_path: Path) -> None:
    run = tmp_path / "tuned"
    lockstep("train", domain.config, STEPS, "--run", run)
    tests = json.loads((run / "tests.json").read_text())
    assert [(score["text"], score["model"]) for score in tests["scores"]] == [
        ("new", "result"),
        ("new", "start"),
        ("old", "result"),
        ("old", "start"),
    ]
    assert [score["sentences"] for score in tests["scores"]] == [10, 10, 12, 12]
    assert tests["known"] == 0
    assert tests["pieces_per_word"]["new"] == pytest.approx(tests["pieces_per_word"]["old"], rel=0.2)
    evaluated = json.loads(lockstep("evaluate", run, "--json").stdout)
    assert tests["scores"][0]["sacrebleu"] == evaluated["sacrebleu"]
    old = json.loads(lockstep("evaluate", domain.base, "--json").stdout)
    assert tests["scores"][3]["sacrebleu"] == old["sacrebleu"]
    report = json.loads(lockstep("report", run, "--json").stdout)
    assert report["fine_tuning"]["start"] == str(domain.base)
    assert f"The run started with the weights and the vocabulary of {domain.base}, step 8." in report["verdict"][-1]
    assert "On the old test text sacreBLEU" in report["verdict"][-1]
    assert "## Fine-tuning" in (run / "report.md").read_text()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("phase=update:step=2", id="before-saving", marks=pytest.mark.slow),
        pytest.param("phase=update:step=5", id="after-saving"),
    ],
)
def test_resumes_bit_identical(domain: Domain, tmp_path: Path, fault: str) -> None:
    """Before its first checkpoint a killed run starts again with the other run's weights, later with its own."""
    settings = (domain.config, STEPS, "train.checkpoint_every=3", "--workers", 2)
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    lockstep("train", *settings, "--run", straight)
    lockstep("train", *settings, "--run", killed, code=None, fault=fault)
    assert not (killed / "checkpoints/step-00000006").exists()
    lockstep("train", *settings, "--run", killed)
    assert weights(killed, 6) == weights(straight, 6)


@pytest.mark.slow
def test_resumes_when_the_start_is_gone(domain: Domain, tmp_path: Path) -> None:
    base, run = tmp_path / "base", tmp_path / "tuned"
    shutil.copytree(domain.base, base)
    settings = (f"train.start_from={base}", f"data.corpus={tmp_path / 'corpus'}", "train.steps=3")
    lockstep("train", domain.config, *settings, "--run", run)
    shutil.rmtree(base)
    refused = lockstep("train", domain.config, *settings, "train.steps=4", "--run", run, code=2)
    assert f"train.start_from={base}: There is no folder {base}." in refused.stderr
    assert "lockstep train --run" in refused.stderr
    lockstep("train", "train.steps=4", "--run", run)
    lockstep("report", run)


def test_says_when_the_old_test_text_was_trained_on(tiny: Tiny, domain: Domain, tmp_path: Path) -> None:
    for language in ("en", "de"):
        text = (domain.folder / f"train.{language}").read_text() + (tiny.folder / f"test.{language}").read_text()
        (tmp_path / f"mixed.{language}").write_text(text)
        shutil.copy(domain.folder / f"valid.{language}", tmp_path)
    run = tmp_path / "run"
    settings = (f"data.folder={tmp_path}", "data.train=[mixed]", "data.test=[]", f"data.corpus={tmp_path / 'corpus'}")
    lockstep("train", domain.config, *settings, "train.steps=1", "--run", run)
    report = (run / "report.md").read_text()
    assert "Its score is too good: 12 sentences of the old test text occurred in the training text" in report
    assert "The new text has no test set." in report


def test_refuses_sizes_that_do_not_fit(domain: Domain, tmp_path: Path) -> None:
    refused = lockstep("train", domain.config, "model.width=64", "--run", tmp_path / "run", code=2)
    assert "does not fit: model.width is 32 there and 64 here." in refused.stderr
    refused = lockstep("prepare", domain.config, "data.vocabulary.size=400", code=2)
    assert "data.vocabulary.size is 330 there and 400 here" in refused.stderr
    refused = lockstep("train", domain.config, *LSTM, "--run", tmp_path / "run", code=2)
    assert "model.name is transformer there and lstm here" in refused.stderr


def test_a_start_on_the_command_line_wins_over_sizes_of_the_file(domain: Domain, tmp_path: Path) -> None:
    """`lockstep train manuals.yaml train.start_from=RUN` works with a config that `init` wrote."""
    config = domain.write_config("sized.yaml", model={"width": 64, "heads": 4, "dropout": 0.2}, train={"steps": 1})
    run = tmp_path / "run"
    result = lockstep("train", config, f"train.start_from={domain.base}", "--run", run)
    assert f"The sizes of {domain.base} are used, not those of the config: model.width." in result.stderr
    model = yaml.safe_load((run / "config.yaml").read_text())["model"]
    assert (model["width"], model["dropout"]) == (32, 0.2)
    refused = lockstep("train", config, f"train.start_from={domain.base}", "model.width=16", "--run", run, code=2)
    assert "model.width is 32 there and 16 here" in refused.stderr


@pytest.mark.slow
def test_dropout_may_differ(domain: Domain, tmp_path: Path) -> None:
    run = tmp_path / "run"
    lockstep("train", domain.config, "model.dropout=0.3", "train.steps=1", "--run", run)
    model = yaml.safe_load((run / "config.yaml").read_text())["model"]
    assert (model["dropout"], model["width"]) == (0.3, 32)


def test_refuses_a_place_without_a_model(domain: Domain, tmp_path: Path) -> None:
    config = domain.write_config("nowhere.yaml", train={"start_from": str(tmp_path / "nothing")})
    refused = lockstep("train", config, "--run", tmp_path / "run", code=2)
    assert f"train.start_from={tmp_path / 'nothing'}: There is no folder" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.slow
def test_classifiers_start_from_weights_too(tiny_images: Tiny, tmp_path: Path) -> None:
    lockstep("train", tiny_images.config, "--run", tmp_path / "base")
    tuned = tmp_path / "tuned"
    lockstep("train", tiny_images.config, f"train.start_from={tmp_path / 'base'}", "train.steps=2", "--run", tuned)
    report = json.loads(lockstep("report", tuned, "--json").stdout)
    assert "The run started with the weights" in report["fine_tuning"]["text"]
