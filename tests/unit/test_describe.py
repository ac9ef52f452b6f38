import json
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from lockstep.cli.describe_command import bar, describe, describe_cleaning, histogram, read_facts
from lockstep.data.corpus.prepare import prepare
from lockstep.data.data_settings import DataSettings
from lockstep.errors import LockstepError

app = Typer()
app.command()(describe)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("describe")
    lines = [" ".join("abcdefghij"[int(digit)] for digit in str(number * number)) for number in range(100, 300)]
    for language in ("en", "de"):
        text = "\n".join(f"{line} {language}" for line in [*lines, lines[0], ""])
        (folder / f"text.{language}").write_text(f"{text}\n")
        (folder / f"val.{language}").write_text("a b\n")
    values = {"folder": folder, "train": ["text"], "validation": ["val"], "corpus": folder / "c"}
    return prepare(DataSettings.model_validate(values | {"vocabulary": {"size": 285}, "max_foreign": 1})).folder


def run_describe(*words: str) -> str:
    return CliRunner(env={"COLUMNS": "160"}).invoke(app, words, catch_exceptions=False).output


def test_a_corpus_is_described_with_counts_removals_and_lengths(corpus: Path) -> None:
    output = run_describe(str(corpus))
    facts = read_facts(corpus)
    assert f"{facts['sets']['train']['source_words']:,}" in output
    assert f"{facts['sets']['train']['target_plain_words']:,}" in output
    assert "duplicate" in output
    assert "0.50%" in output  # 1 of 202
    assert "█" in output
    assert facts["digest"] in output
    assert "text.de" in output


def test_json_has_the_same_facts(corpus: Path) -> None:
    assert json.loads(run_describe(str(corpus), "--json")) == {"path": str(corpus)} | read_facts(corpus)


def test_a_run_is_described_by_its_corpus(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text((corpus / "corpus.json").read_text())
    assert read_facts(tmp_path) == read_facts(corpus)


def test_a_folder_without_corpus_or_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LockstepError, match="neither a corpus nor a run"):
        read_facts(tmp_path)
    (tmp_path / "data.json").write_text('{"digest": "old"}')
    with pytest.raises(LockstepError, match="another version"):
        read_facts(tmp_path)


def test_bars_are_exact_to_an_eighth_and_show_every_share_above_zero() -> None:
    assert [bar(share, 2) for share in (0, 1e-6, 0.25, 0.5, 0.5625, 1)] == ["", "▏", "▌", "█", "█▏", "██"]


def test_a_histogram_joins_neighbours_until_it_fits() -> None:
    assert histogram([1, 2, 3], 5) == [("1-5", 1), ("6-10", 2), ("11-15", 3)]
    assert histogram([1, 2, 3], 5, rows=2) == [("1-10", 3), ("11-20", 3)]
    assert histogram([], 5) == []


def test_languages_that_nobody_knows_are_said_not_to_be_checked() -> None:
    settings = {"check_languages": True}
    facts = {"languages": ["en-US", "xx"], "settings": settings, "sets": {"train": {}}, "vocabulary": {"size": 300}}
    assert describe_cleaning(facts) == ["The language of xx text was not checked: no such language code is known here."]
    assert describe_cleaning(facts | {"languages": ["en", "oc"]}) == []
