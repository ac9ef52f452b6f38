"""A mistake of the user ends in one sentence that names the problem and the remedy, and nothing is lost."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Tiny, lockstep, running, steps, weights
from lockstep.run.journal import lines


def refused(*words: object, code: int, says: list[str], **options: str) -> None:
    """The command ends with this code and one error that contains all of `says`, without a traceback."""
    result = lockstep(*words, code=code, **options)
    assert "Traceback" not in result.stdout + result.stderr
    assert result.stderr.count("Error:") == 1, result.stderr
    for part in says:
        assert part in result.stderr, result.stderr


@pytest.fixture
def text(tiny: Tiny, tmp_path: Path) -> Path:
    """A copy of the text of the tiny corpus, which a test may change."""
    folder = tmp_path / "text"
    folder.mkdir()
    for path in (*tiny.folder.glob("*.en"), *tiny.folder.glob("*.de")):
        shutil.copy(path, folder)
    return folder


def train_on(tiny: Tiny, text: Path) -> list[object]:
    run = text.parent / "run"
    return ["train", tiny.config, f"data.folder={text}", f"data.corpus={text.parent / 'corpus'}", "--run", run]


def test_missing_text_file(tiny: Tiny, text: Path) -> None:
    (text / "train.de").unlink()
    refused(*train_on(tiny, text), code=2, says=["train.de"])


def test_a_known_corpus_that_was_never_fetched(tiny: Tiny, tmp_path: Path) -> None:
    folder = tmp_path / "wmt16-en-de"
    words = ("prepare", tiny.config, f"data.folder={folder}", f"data.corpus={tmp_path / 'corpus'}")
    refused(*words, code=2, says=[f"There is no folder {folder}", f"`lockstep data get wmt16-en-de --to {folder}`"])


def test_empty_text_file(tiny: Tiny, text: Path) -> None:
    (text / "train.de").write_text("")
    refused(*train_on(tiny, text), code=1, says=["train.de", "empty"])


def test_unequal_line_counts(tiny: Tiny, text: Path) -> None:
    with (text / "train.de").open("a") as file:
        file.write("Ba\n")
    refused(*train_on(tiny, text), code=1, says=["train.en", "train.de", "300", "301"])


def test_invalid_utf8(tiny: Tiny, text: Path) -> None:
    content = (text / "train.en").read_bytes().split(b"\n")
    content[6] = b"b\xe9"
    (text / "train.en").write_bytes(b"\n".join(content))
    refused(*train_on(tiny, text), code=1, says=["train.en", "Line 7", "UTF-8"])


def test_bad_text_leaves_no_incomplete_corpus(tiny: Tiny, text: Path) -> None:
    (text / "train.de").write_text("")
    refused(*train_on(tiny, text), code=1, says=["empty"])
    assert not (text.parent / "corpus").exists()
    assert not list(text.parent.glob(".corpus*"))


def test_vocabulary_larger_than_the_corpus_allows(tiny: Tiny, text: Path) -> None:
    """It is made as large as the text allows, and the run continues with the setting as it was written."""
    words = (*train_on(tiny, text), "data.vocabulary.size=5000")
    assert "the text has too few for the 5,000 of data.vocabulary.size" in lockstep(*words).stderr
    assert "finished at step 9" in lockstep(*words, "train.steps=9").stdout


def test_vocabulary_without_room_for_every_character(tiny: Tiny, text: Path) -> None:
    refused(*train_on(tiny, text), "data.vocabulary.size=262", code=2, says=["262", "data.vocabulary.size"])


def test_unknown_setting_names_the_nearest(tiny: Tiny, tmp_path: Path) -> None:
    refused("train", tiny.config, "train.stpes=5", "--run", tmp_path, code=2, says=["train.stpes", "train.steps"])


def test_wrong_type_names_key_value_and_expectation(tiny: Tiny, tmp_path: Path) -> None:
    refused(
        "train",
        tiny.config,
        "batch.words=many",
        "--run",
        tmp_path,
        code=2,
        says=["batch.words", "many", "whole number"],
    )


def test_missing_config(tmp_path: Path) -> None:
    refused("train", tmp_path / "no.yaml", code=2, says=["no.yaml", "does not exist"])


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("model.width=64", "model.width 32 -> 64"),
        ("data.vocabulary.size=340", "data.vocabulary.size 330 -> 340"),
        ("batch.words=200", "batch.words 150 -> 200"),
        ("train.seed=2", "train.seed 1 -> 2"),
    ],
)
def test_a_run_of_another_config_is_refused_with_the_difference(tiny: Tiny, setting: str, shown: str) -> None:
    run = tiny.folder / "other-config"
    if not run.exists():
        lockstep("train", tiny.config, "train.steps=2", "--run", run)
    before = weights(run, 2)
    refused("train", tiny.config, "train.steps=4", setting, "--run", run, code=2, says=[shown])
    assert weights(run, 2) == before


def test_a_run_without_a_checkpoint_takes_corrected_settings(tiny: Tiny, tmp_path: Path) -> None:
    refused("train", tiny.config, "batch.words=3", "--run", tmp_path, code=2, says=["batch.words", "longest"])
    lockstep("train", tiny.config, "train.steps=1", "--run", tmp_path)


def test_a_run_on_another_corpus_is_refused(tiny: Tiny, text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    lockstep("train", tiny.config, "train.steps=2", "--run", run)
    (text / "train.en").write_text((text / "train.en").read_text().replace("ba", "bo"))
    refused(*train_on(tiny, text), "train.steps=4", code=2, says=["another corpus"])


def test_a_run_folder_that_is_a_file(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    refused("train", tiny.config, "--run", tmp_path / "run", code=2, says=["run", "a file in the way"])


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tiny: Tiny, tmp_path: Path) -> None:
    train = ("train", tiny.config, "train.checkpoint_every=3", "--run", tmp_path)
    lockstep(*train, "train.steps=6")
    newest = next((tmp_path / "checkpoints" / "step-00000006" / "state").glob("*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[-100] ^= 0xFF
    newest.write_bytes(content)
    result = lockstep(*train, "train.steps=9")
    assert "step-00000006" in result.stderr
    assert "does not match its digest" in result.stderr
    assert "Continuing from step 3" in result.stderr
    lockstep("train", tiny.config, "train.steps=9", "--run", tmp_path / "straight")
    assert weights(tmp_path, 9) == weights(tmp_path / "straight", 9)


def test_only_damaged_checkpoints_are_an_error_and_stay(tiny: Tiny, tmp_path: Path) -> None:
    lockstep("train", tiny.config, "train.steps=2", "--run", tmp_path)
    (tmp_path / "checkpoints" / "step-00000002" / "manifest.json").write_text("{")
    refused("train", tiny.config, "train.steps=4", "--run", tmp_path, code=1, says=["step-00000002", "whole"])
    assert (tmp_path / "checkpoints" / "step-00000002" / "model" / "model.safetensors").exists()


def test_a_port_in_use(tiny: Tiny, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = ("train", tiny.config, "--workers", 2, "--run", tmp_path, "--port", port)
        refused(*words, code=2, says=[str(port), "in use"])


def test_a_port_in_use_under_an_engine(tiny: Tiny, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        place = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        refused("train", tiny.config, "--run", tmp_path, code=2, says=[port, "in use"], **place)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 700 KB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this machine does not allow mounting")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_full_disk_loses_nothing(tiny: Tiny, small_disk: Path, workers: int) -> None:
    run = small_disk / "run"
    train = ("train", tiny.config, "train.checkpoint_every=2", "train.keep_last=9", "--workers", workers, "--run", run)
    lockstep(*train, "train.steps=2")
    before = weights(run, 2)
    refused(*train, "train.steps=30", code=1, says=["No space left"])
    assert weights(run, 2) == before
    subprocess.run(["mount", "-o", "remount,size=50m", str(small_disk)], check=True)
    lockstep(*train, "train.steps=30")
    assert steps(run)[-1]["step"] == 30


def test_a_full_disk_is_waited_for_when_it_may_be(tiny: Tiny, small_disk: Path) -> None:
    """There is room for one checkpoint and the journal, and not for two checkpoints."""
    subprocess.run(["mount", "-o", "remount,size=900k", str(small_disk)], check=True)
    run = small_disk / "run"
    train = ("train", tiny.config, "train.checkpoint_every=2", "train.disk_full=warn", "--workers", 2, "--run", run)
    result = lockstep(*train, "train.steps=7", code=1)
    assert "The checkpoint step-00000007 could not be written: No space left" in result.stderr, "the last one must fit"
    assert "step-00000004 could not be written: No space left on device. Training continues" in result.stderr
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000002"]
    events = [line for line in lines(run / "journal" / "worker-0000.jsonl") if line is not None]
    assert 4 in {line["step"] for line in events if line.get("what") == "checkpoint not written"}
    assert steps(run)[-1]["step"] == 7
    subprocess.run(["mount", "-o", "remount,size=50m", str(small_disk)], check=True)
    lockstep(*train, "train.steps=7")
    lockstep(*train[:-1], small_disk / "straight", "train.steps=7")
    assert weights(run, 7) == weights(small_disk / "straight", 7)


def test_a_read_only_disk(tiny: Tiny, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    refused("train", tiny.config, "--run", small_disk / "run", code=1, says=["Read-only", "run"])


def test_servers_without_the_server_strategy(tiny: Tiny, tmp_path: Path) -> None:
    words = ("train", tiny.config, "--servers", 1, "--run", tmp_path)
    refused(*words, code=2, says=["--servers", "strategy.name=server"])


def test_single_with_two_workers(tiny: Tiny, tmp_path: Path) -> None:
    words = ("train", tiny.config, "strategy.name=single", "--workers", 2, "--run", tmp_path)
    refused(*words, code=2, says=["single", "2"])


def test_a_rank_without_a_rendezvous_address(tiny: Tiny, tmp_path: Path) -> None:
    place = {"RANK": "0", "WORLD_SIZE": "2"}
    refused("train", tiny.config, "--run", tmp_path, code=2, says=["MASTER_ADDR"], **place)


def test_a_port_that_does_not_exist(tiny: Tiny, tmp_path: Path) -> None:
    result = lockstep("train", tiny.config, "--port", 70000, "--run", tmp_path, code=2)
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("name", ["evaluate", "translate"])
def test_a_run_without_a_model(tmp_path: Path, name: str) -> None:
    refused(name, tmp_path, code=2, says=["no trained model", str(tmp_path)])


def test_a_file_instead_of_a_corpus(tiny: Tiny) -> None:
    refused("data", "describe", tiny.config, code=2, says=["neither a corpus nor a run"])


def test_a_set_that_the_corpus_does_not_have(tiny: Tiny, tmp_path: Path) -> None:
    lockstep("train", tiny.config, "train.steps=1", "--run", tmp_path)
    refused("evaluate", tmp_path, "--set", "tset", code=2, says=["tset", "validation, test"])


def test_a_folder_with_a_config_of_its_own_is_not_overwritten(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(tiny.config.read_text())
    refused("train", tmp_path / "config.yaml", "--run", tmp_path, code=2, says=["config.yaml", "overwritten"])
    assert (tmp_path / "config.yaml").read_text() == tiny.config.read_text()


def test_the_folder_of_the_text_is_no_run_folder(tiny: Tiny, text: Path) -> None:
    before = sorted(path.name for path in text.iterdir())
    words = ("train", tiny.config, f"data.folder={text}", f"data.corpus={text.parent / 'corpus'}", "--run", text)
    refused = lockstep(*words, code=2)
    assert f"The run folder {text} is the folder of the text (data.folder)." in refused.stderr
    assert sorted(path.name for path in text.iterdir()) == before


def test_translating_a_file_onto_itself_or_from_bad_text(tiny: Tiny, tmp_path: Path) -> None:
    run = tmp_path / "odd [/name]"
    lockstep("train", tiny.config, "train.steps=1", "--run", run)
    text = tmp_path / "text"
    text.write_text("ba be\n")
    refused("translate", run, "-i", text, "-o", text, code=2, says=["input as well"])
    assert text.read_text() == "ba be\n"
    text.write_bytes(b"\xff\xfe\n")
    refused("translate", run, "-i", text, code=1, says=["UTF-8"])
    assert "odd [/name]" in lockstep("runs", tmp_path).stdout


def test_far_more_workers_than_cores_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    error = lockstep("train", tiny.config, "--workers", 100_000, "--run", tmp_path / "run", code=2).stderr
    assert "Error: 100,000 processes are too many for the" in error


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_folder_that_is_deleted_during_training(tiny: Tiny, tmp_path: Path, workers: int) -> None:
    run = tmp_path / "run"
    often = ("train.evaluate_every=50", "train.checkpoint_every=50")
    with running(tiny, run, *often, workers=workers, steps_first=60) as process:
        shutil.rmtree(run)
        errors = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert errors.count("Error: ") == 1
    assert f"Error: The run folder {run} is gone: it was deleted or moved while the run was training." in errors
    assert not run.exists()
