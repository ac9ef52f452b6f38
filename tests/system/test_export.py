"""A trained model leaves torch: exported, described, compared, averaged, packed for Argos Translate."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from conftest import LSTM, Tiny, lockstep
from lockstep.errors import LockstepError
from lockstep.translate.average import list_model_folders, read_weights
from lockstep.translate.export_folder import read_facts
from lockstep.translate.load_model import load_translator

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; sys.modules['safetensors'] = None; "


def run_without_torch(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the command where torch cannot be imported, as on an edge device."""
    program = f"{WITHOUT_TORCH}from lockstep.cli.main import main; main()"
    command = [sys.executable, "-c", program, *(str(word) for word in words)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def read_sources(tiny: Tiny, name: str = "test") -> list[str]:
    return (tiny.folder / f"{name}.en").read_text().splitlines()


def test_an_export_translates_as_the_trainer_does_and_says_so(trained: Path, export_folder: Path, tiny: Tiny) -> None:
    sources = read_sources(tiny) + read_sources(tiny, "valid")
    assert load_translator(export_folder).translate(sources) == load_translator(trained).translate(sources)
    facts = read_facts(export_folder)
    assert facts.parity is not None
    assert (facts.parity.sentences, facts.parity.identical) == (12, 12)
    assert facts.parity.bleu_of_export == facts.parity.bleu_of_trainer
    assert {path.name for path in export_folder.iterdir()} == {
        *("model.bin", "config.json", "shared_vocabulary.json", "sentencepiece.model", "lockstep.json", "README.md")
    }


def test_the_model_card_says_what_the_model_is(export_folder: Path, trained: Path) -> None:
    card = (export_folder / "README.md").read_text()
    data = json.loads((trained / "data.json").read_text())
    scores = read_facts(export_folder).scores
    assert "# English to German" in card
    assert data["digest"] in card
    assert data["files"][0]["sha256"] in card
    assert f"sacreBLEU {scores['sacrebleu']:.2f}" in card
    assert str(scores["signature"]) in card
    assert "12 of 12 translations are identical" in card
    assert "ctranslate2 4." in card
    assert "Licence of the text: unknown" in card


def test_an_export_is_used_without_torch(export_folder: Path, trained: Path, tiny: Tiny) -> None:
    text = "\n".join(read_sources(tiny)) + "\n"
    result = run_without_torch("translate", export_folder, stdin=text)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == load_translator(trained).translate(read_sources(tiny))
    refused = run_without_torch("translate", trained, "ba")
    assert refused.returncode == 2
    assert "pip install 'lockstep-train[train]'" in refused.stderr
    report = run_without_torch("train", tiny.config)
    assert report.returncode == 2
    assert "needs torch, which is not installed" in report.stderr
    assert "Traceback" not in report.stderr + refused.stderr


def test_the_mean_of_checkpoints_is_used_by_every_command(trained: Path, tiny: Tiny, tmp_path: Path) -> None:
    folders = list_model_folders(trained, "last", 3)
    assert [folder.parent.name for folder in folders] == [f"step-{step:08d}" for step in (120, 180, 240)]
    files = [load_file(folder / "model.safetensors") for folder in folders]
    mean = read_weights(folders)
    for name, values in mean.items():
        assert np.abs(values - np.mean([file[name] for file in files], axis=0)).max() < 1e-6
    options = ("--checkpoint", "last", "--average", "3")
    lockstep("export", trained, "--to", tmp_path / "mean", *options)
    assert read_facts(tmp_path / "mean").steps == [120, 180, 240]
    sentence = read_sources(tiny)[0]
    own = lockstep("translate", trained, sentence, *options).stdout
    assert lockstep("translate", tmp_path / "mean", sentence).stdout == own
    assert lockstep("evaluate", trained, *options, "--json").returncode == 0


def test_too_few_checkpoints_for_a_mean_are_explained(trained: Path, export_folder: Path) -> None:
    with pytest.raises(
        LockstepError, match=r"has 4 checkpoints, and --average 5 needs 5. Train with train.keep_last=5"
    ):
        load_translator(trained, checkpoint="last", average=5)
    with pytest.raises(LockstepError, match="it has no checkpoints to average"):
        load_translator(export_folder, average=2)


def test_an_argos_package_has_the_files_that_argos_translate_reads(trained: Path, tmp_path: Path) -> None:
    lockstep("export", trained, "--to", tmp_path / "en_de.argosmodel", "--format", "argos", "--quantize", "int8")
    with zipfile.ZipFile(tmp_path / "en_de.argosmodel") as archive:
        names = {name.partition("/")[2] for name in archive.namelist()}
        assert {name.partition("/")[0] for name in archive.namelist()} == {"translate-en_de-1_0"}
        metadata = json.loads(archive.read("translate-en_de-1_0/metadata.json"))
    assert {"metadata.json", "sentencepiece.model", "README.md", "model/model.bin", "model/config.json"} <= names
    assert (metadata["from_code"], metadata["to_code"], metadata["to_name"]) == ("en", "de", "German")
    assert list(tmp_path.iterdir()) == [tmp_path / "en_de.argosmodel"]


def test_an_earlier_export_is_replaced_and_other_files_never_are(trained: Path, tmp_path: Path) -> None:
    lockstep("export", trained, "--to", tmp_path / "model")
    before = (tmp_path / "model" / "model.bin").stat().st_size
    lockstep("export", trained, "--to", tmp_path / "model", "--quantize", "int8")
    assert (tmp_path / "model" / "model.bin").stat().st_size < before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("words")
    refused = lockstep("export", trained, "--to", tmp_path / "mine", code=2)
    assert "has files that are not an export" in refused.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"model", "mine"}


def test_what_cannot_be_exported_is_refused_with_a_sentence(trained: Path, tiny: Tiny, tmp_path: Path) -> None:
    lockstep("train", tiny.config, *LSTM, "train.steps=2", "--workers", 1, "--run", tmp_path / "lstm")
    refused = lockstep("export", tmp_path / "lstm", "--to", tmp_path / "x", code=2)
    assert "is no Transformer, and CTranslate2 runs Transformers only" in refused.stderr
    assert "image classifiers" not in refused.stderr
    assert "not as ONNX" in lockstep("export", trained, "--to", tmp_path / "x", "--format", "onnx", code=2).stderr
    missing = lockstep("export", tmp_path / "nothing", "--to", tmp_path / "x", code=2)
    assert "There is no folder" in missing.stderr
    assert not (tmp_path / "x").exists()


def test_a_run_without_its_text_is_exported_and_not_compared(trained: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(trained / "checkpoints" / "step-00000240" / "model", tmp_path / "model"))
    lockstep("export", model, "--to", tmp_path / "export")
    assert read_facts(tmp_path / "export").parity is None
    assert "The export was not compared" in (tmp_path / "export" / "README.md").read_text()


def test_a_damaged_export_is_reported_in_a_sentence(export_folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(export_folder, tmp_path / "copy"))
    content = (copy / "model.bin").read_bytes()
    (copy / "model.bin").write_bytes(content[: len(content) // 2])
    assert "CTranslate2 cannot load the model" in lockstep("translate", copy, "ba", code=1).stderr
    (copy / "lockstep.json").write_text("{")
    assert "lockstep.json cannot be read" in lockstep("translate", copy, "ba", code=1).stderr


def test_the_best_translations_are_printed_with_their_scores(trained: Path, export_folder: Path, tiny: Tiny) -> None:
    sources = read_sources(tiny)[:3]
    for model in (trained, export_folder):
        lines = lockstep("translate", model, sources[0], "--n-best", "3").stdout.splitlines()
        assert [line.split(" ||| ")[0] for line in lines] == ["1", "1", "1"]
        scores = [float(line.split(" ||| ")[2]) for line in lines]
        assert scores == sorted(scores, reverse=True)
        result = json.loads(lockstep("translate", model, sources[0], "--n-best", "3", "--json").stdout)
        assert [one["text"] for one in result["translations"]] == [line.split(" ||| ")[1] for line in lines]
        assert result["translation"] == result["translations"][0]["text"]


def test_a_compressed_file_is_translated_as_it_is_unpacked(export_folder: Path, tiny: Tiny, tmp_path: Path) -> None:
    import gzip

    import zstandard

    text = (tiny.folder / "test.en").read_bytes()
    (tmp_path / "test.en.gz").write_bytes(gzip.compress(text))
    (tmp_path / "test.en.zst").write_bytes(zstandard.compress(text))
    plain = lockstep("translate", export_folder, "-i", tiny.folder / "test.en")
    assert "Translated 12 lines in" in plain.stderr
    assert "target pieces/s" in plain.stderr
    for name in ("test.en.gz", "test.en.zst"):
        assert lockstep("translate", export_folder, "-i", tmp_path / name).stdout == plain.stdout
    (tmp_path / "cut.gz").write_bytes(gzip.compress(text)[:-9])
    assert "is damaged or cut off" in lockstep("translate", export_folder, "-i", tmp_path / "cut.gz", code=1).stderr
