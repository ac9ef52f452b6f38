"""Lines that are longer than the training sentences are translated in parts, all others as they are."""

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lockstep.errors import LockstepError
from lockstep.run.checkpoint import find_model
from lockstep.translate.torch_engine import load_torch_translator
from lockstep.translate.translator import Translator

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "run-0.1.0.tar.gz"
SHORT = ["ba de", "", "ga ki lo", "   ", "mu"]
LONG = " ".join(["Ba de ga ki lo mu."] * 40)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "run"


@pytest.fixture
def translator(run: Path) -> Iterator[Translator]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several would wait for each other more than they compute
    yield load_torch_translator([find_model(run).folder])
    torch.set_num_threads(threads)


def test_a_model_knows_the_longest_sentence_of_its_training_text(run: Path, tmp_path: Path) -> None:
    folder = find_model(run).folder
    limit = load_torch_translator([folder]).limit
    assert limit == 27, "an earlier version recorded it in the run folder, with the end mark"
    alone = Path(shutil.copytree(folder, tmp_path / "model"))
    assert load_torch_translator([alone]).limit == 250
    config = json.loads((alone / "config.json").read_text()) | {"source_longest": 41}
    (alone / "config.json").write_text(json.dumps(config))
    assert load_torch_translator([alone]).limit == 40


def test_a_wrong_path_to_a_model_is_explained(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("configs").mkdir()
    Path("configs/first.yaml").touch()
    with pytest.raises(LockstepError, match="There is no folder first. Name a run folder"):
        find_model(Path("first"))
    shutil.copytree(run, "runs/first")
    with pytest.raises(LockstepError, match=r"There is no folder first. Did you mean runs/first\?"):
        find_model(Path("first"))
    with pytest.raises(LockstepError, match=r"configs/first.yaml is a file. Did you mean runs/first\?"):
        find_model(Path("configs/first.yaml"))


def test_only_lines_that_are_too_long_are_split(translator: Translator) -> None:
    alone = translator.translate(SHORT)
    results = translator.translate_each([*SHORT[:2], LONG, *SHORT[2:]])
    assert [result.text for result in results if result.parts == 1] == alone
    assert [result.parts for result in results] == [1, 1, 40, 1, 1, 1]
    assert [result.text == "" for result in results] == [False, True, False, False, True, False]


def test_the_parts_of_a_line_are_joined_in_order(translator: Translator) -> None:
    sentences = ["Ba de ga ki.", "Lo mu ba.", "Ki ki lo mu de ga ba."] * 5
    expected = translator.translate(sentences)
    assert translator.translate([" ".join(sentences)]) == [" ".join(text.strip() for text in expected)]
    translator.languages = ("en", "zh-Hans")
    assert translator.translate([" ".join(sentences)]) == ["".join(text.strip() for text in expected)]


def test_a_word_that_is_too_long_is_copied(translator: Translator) -> None:
    word = "x" * 200_000
    (result,) = translator.translate_each([f"Ba de. {word} ga"])
    assert word in result.text.split()
    assert (result.cut_sentences, result.copied_words) == (1, 1)
    (result,) = translator.translate_each([word])
    assert (result.text, result.copied_words) == (word, 1)


def test_a_language_without_spaces_is_divided_between_characters(translator: Translator) -> None:
    translator.languages = ("zh", "en")
    (result,) = translator.translate_each(["語" * 500])
    assert result.parts > 1
    assert result.copied_words == 0


def test_a_part_without_a_translation_is_noted(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator.vocabulary, "decode", lambda ids: [""] * len(ids))
    assert [result.is_missing for result in translator.translate_each(["ba", " "])] == [True, False]


def test_a_line_break_of_the_model_does_not_break_the_line(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translator.vocabulary, "decode", lambda ids: ["one\ntwo\r"] * len(ids))
    assert translator.translate(["ba"]) == ["one two "]


def test_a_stream_keeps_the_order_and_reports_every_byte(translator: Translator) -> None:
    sizes: list[int] = []
    lines = [f"{line}\n" for line in [*SHORT, "é " * 300, *SHORT]]
    results = list(translator.stream(iter(lines), 3, sizes.append))
    assert [source for source, _ in results] == [line.rstrip("\n") for line in lines]
    characters = sum(len("".join(line.split()).encode()) for line in lines)
    assert characters <= sum(sizes) <= sum(len(line.encode()) for line in lines)
