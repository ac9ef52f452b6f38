"""The list of removed pairs, and the commands that show it."""

import hashlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lockstep.cli.data_command import IMAGE_CONFIGS, app
from lockstep.data.corpus import prepare as prepare_module
from lockstep.data.corpus.binary_corpus import Corpus
from lockstep.data.corpus.prepare import prepare
from lockstep.data.corpus.removed_pairs import read_rows
from lockstep.data.data_settings import DataSettings
from lockstep.errors import LockstepError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("removed")
    pairs = [(f"a b {n}", f"x y {n}") for n in range(60)]
    pairs[5:5] = [
        ("", "empty"),
        ("one \\ two", "z " * 30),
        ("held out", "x"),
        ("a b 0", "x y 0"),
        ("long " * 70, "y " * 70),
    ]
    for side, language in enumerate(("en", "de")):
        (folder / f"train.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
        (folder / f"val.{language}").write_text("held out\n")
    values = {
        "folder": folder,
        "train": ["train"],
        "validation": ["val"],
        "vocabulary": {"size": 279},
        "max_pieces": 60,
        "check_languages": False,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare_module, "SHARD_LINES", 7)
        return prepare(DataSettings.model_validate(values | {"corpus": folder / "c"}))


def run(*words: object) -> str:
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_every_removed_pair_is_listed_with_reason_file_and_line(corpus: Corpus) -> None:
    rows = list(read_rows(corpus.folder))
    assert [(row.reason, row.line) for row in rows] == [
        ("empty", 6),
        ("ratio", 7),
        ("held_out", 8),
        ("duplicate", 9),
        ("pieces", 10),
    ]
    assert {Path(row.file).name for row in rows} == {"train.en"}
    assert rows[1].source == "one \\\\ two"
    assert rows[4].source == ("long " * 70)[:200] + "…"
    assert sum(corpus.facts["sets"]["train"]["removed"].values()) == len(rows)


def test_the_list_is_checked_but_not_part_of_the_digest(corpus: Corpus) -> None:
    content = dict(corpus.facts["content"])
    assert content.pop("removed.tsv.zst")["bytes"] > 0
    assert corpus.digest == hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def test_the_command_shows_counts_and_examples(corpus: Corpus) -> None:
    output = run("removed", corpus.folder)
    assert "5 of 65 training pairs were removed" in output
    assert "train.en, line 7" in output
    only = run("removed", corpus.folder, "--reason", "ratio")
    assert "line 7" in only
    assert "line 6" not in only
    shown = json.loads(run("removed", corpus.folder, "--json", "--all", "--reason", "duplicate"))
    assert shown["removed"]["held_out"] == 1
    assert [pair["source"] for pair in shown["pairs"]] == ["a b 0"]
    with pytest.raises(LockstepError, match="no reason nonsense"):
        run("removed", corpus.folder, "--reason", "nonsense")


def test_describe_skips_what_is_not_a_corpus(corpus: Corpus) -> None:
    folder = corpus.folder.parent
    paths = sorted(folder.glob("[!.]*"))
    assert [path.name for path in paths if path.name.endswith(".lock")] == []
    output = run("describe", *paths)
    assert corpus.digest in output
    assert len(json.loads(run("describe", "--json", *paths))) == 1
    with pytest.raises(LockstepError, match="neither a corpus nor a run"):
        run("describe", folder / "train.en", folder)


def test_each_image_corpus_has_a_config_of_its_own() -> None:
    for name, config in IMAGE_CONFIGS.items():
        assert f"corpora/{name}" in (Path(__file__).parents[2] / config).read_text()
