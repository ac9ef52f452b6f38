"""From dirty text to a translated sentence in three commands, in every format."""

import json
import unicodedata
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
import yaml

from conftest import lockstep
from lockstep.demo_corpus import generate_pairs

QUICK = ("train.steps=4", "schedule.warmup=2", "watch.probe=false", "search.beam=1")


def make_pairs(count: int = 150) -> list[tuple[str, str]]:
    """Pairs of the built-in grammar with what real text has: entities, NFD, duplicates, swapped and empty sides, control
    characters and a very long line."""
    pairs = list(islice(generate_pairs(1, "train"), count))
    english, german = pairs[0]
    return [
        *pairs,
        pairs[1],
        (f"{english} &amp; more", f"{german} &amp; mehr"),
        (english, unicodedata.normalize("NFD", f"Schöne Grüße: {german}")),
        ("", german),
        (english, ""),
        (german, english),
        (f"{english} \x07", german),
        (english * 1500, german * 1500),
    ]


def write_lines(folder: Path) -> list[str]:
    """Two files with CRLF, a byte order mark, and a line that is not UTF-8."""
    for name, side in (("english.txt", 0), ("german.txt", 1)):
        lines = [pair[side].encode() for pair in make_pairs()]
        lines.append(b"Das kostet f\xfcnf Euro." if side else b"This costs five euros.")
        mark = b"\xef\xbb\xbf" if side else b""
        (folder / name).write_bytes(mark + b"".join(line + b"\r\n" for line in lines))
    return ["english.txt", "german.txt"]


def write_table(folder: Path) -> list[str]:
    rows = "".join(f"{source}\t{target}\n" for source, target in make_pairs())
    (folder / "pairs.tsv").write_bytes(rows.encode() + b"caf\xe9\tdas Caf\xe9\nonly one column\n")
    return ["pairs.tsv"]


def write_csv(folder: Path) -> list[str]:
    rows = "".join(f'"{source}";"{target}"\r\n' for source, target in make_pairs())
    (folder / "pairs.csv").write_text(f"en;de\r\n{rows}", encoding="utf-8", newline="")
    return ["pairs.csv"]


def write_memory(folder: Path) -> list[str]:
    units = "".join(
        f'<tu><tuv xml:lang="en-US"><seg>{escape(source)}</seg></tuv>'
        f'<tuv xml:lang="de-DE"><seg>{escape(target)}</seg></tuv></tu>\n'
        for source, target in make_pairs()
        if "\x07" not in source
    )
    text = f'<?xml version="1.0" encoding="utf-8"?>\n<tmx version="1.4"><header/><body>\n{units}</body></tmx>\n'
    (folder / "memory.tmx").write_text(text, encoding="utf-8")
    return ["memory.tmx"]


def write_catalogue(folder: Path) -> list[str]:
    head = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    messages = "".join(
        f"\nmsgid {json.dumps(a)}\nmsgstr {json.dumps(b)}\n" for a, b in make_pairs() if a and "\x07" not in a
    )
    (folder / "app.po").write_text(head + messages, encoding="utf-8")
    return ["app.po"]


@pytest.mark.parametrize("write", [write_lines, write_table, write_memory, write_catalogue])
def test_three_commands_lead_from_dirty_text_to_a_translation(
    write: Callable[[Path], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    facts = json.loads(lockstep("init", *write(tmp_path), "--json").stdout)
    assert facts["languages"] == ["en", "de"]
    assert facts["sets"]["train"]["duplicates"] >= 1
    assert facts["next"] == "lockstep train lockstep.yaml"
    config = Path("lockstep.yaml").read_text(encoding="utf-8")
    assert "validation and test text is split off: about 3 pairs each" in config
    trained = lockstep("train", "lockstep.yaml", *QUICK)
    assert "lockstep translate runs/lockstep" in trained.stdout
    Path("in.txt").write_text("The man sees the house .\n", encoding="utf-8")
    translated = lockstep("translate", "runs/lockstep", "-i", "in.txt")
    assert len(translated.stdout.splitlines()) == 1


def test_lines_that_cannot_be_decoded_are_left_out_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = lockstep("init", *write_lines(tmp_path)).stdout
    assert "1 line with invalid UTF-8" in said
    assert "iconv -f WINDOWS-1252" in said
    assert yaml.safe_load(Path("lockstep.yaml").read_text())["data"]["bad_lines"] == "skip"


def test_a_very_long_line_makes_no_other_lines_be_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place, code in enumerate(("en", "de")):
        lines = [pair[place] for pair in islice(generate_pairs(1, "train"), 60)]
        Path(f"a.{code}").write_text("\n".join([*lines, "word " * 6000]) + "\n")
    assert "1 line of far too many characters" in lockstep("init", "a.en", "a.de").stdout
    assert "bad_lines" not in Path("lockstep.yaml").read_text()
    assert lockstep("prepare", "lockstep.yaml").returncode == 0


def test_a_config_that_names_only_its_text_is_prepared_and_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for place, code in enumerate(("en", "de")):
        Path(f"a.{code}").write_text("".join(f"{pair[place]}\n" for pair in islice(generate_pairs(1, "train"), 60)))
    Path("least.yaml").write_text("data: {languages: [en, de], folder: ., train: [a]}\n")
    assert json.loads(lockstep("prepare", "least.yaml", "--json").stdout)["vocabulary"]["size"] < 1000
    lockstep("train", "least.yaml", *QUICK)
    recorded = yaml.safe_load(Path("runs/least/config.yaml").read_text())
    assert recorded["batch"]["words"] == 1024
    assert recorded["model"]["width"] == 128
    shown = json.loads(lockstep("config", "show", "least.yaml", "--json").stdout)
    assert shown["model"] == recorded["model"]
    lockstep("train", "least.yaml", "train.steps=5")
    assert yaml.safe_load(Path("runs/least/config.yaml").read_text())["train"]["steps"] == 5


def test_a_config_is_not_overwritten_without_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lockstep.yaml").write_text("precious\n")
    files = write_csv(tmp_path)
    refused = lockstep("init", *files, code=2)
    assert "lockstep.yaml exists already" in refused.stderr
    assert Path("lockstep.yaml").read_text() == "precious\n"
    lockstep("init", *files, "--force")
    assert "pairs.csv" in Path("lockstep.yaml").read_text()


def test_files_elsewhere_are_named_so_that_the_config_works_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    files = write_lines(there)
    monkeypatch.chdir(here)
    lockstep("init", *(there / name for name in files), "--to", "my.yaml")
    assert yaml.safe_load(Path("my.yaml").read_text())["data"]["folder"] == str(there)
    assert json.loads(lockstep("prepare", "my.yaml", "--json").stdout)["sets"]["train"]["lines"] > 100


def test_languages_are_names_or_codes_and_doubts_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = write_lines(tmp_path)
    facts = json.loads(lockstep("init", *files, "--source", "English", "--target", "deutsch", "--json").stdout)
    assert facts["languages"] == ["en", "de"]
    assert not any("look like" in note or "known" in note for note in facts["notes"])
    doubted = lockstep("init", *files, "--source", "fr", "--target", "xx", "--force").stdout
    assert "does not look like fr and xx, but like en and de" in doubted
    assert "xx is not a language code that is known here" in doubted
    assert "no folder nowhere" in lockstep("init", *files, "--to", "nowhere/l.yaml", code=2).stderr


def test_a_table_of_another_encoding_with_line_breaks_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f'"{source}\nQuite so.","{target}\nSchön für Jürgen."\r\n' for source, target in make_pairs()[:150])
    Path("pairs.csv").write_bytes(f"en,de\r\n{rows}".encode("cp1252"))
    refused = lockstep("init", "pairs.csv", code=2).stderr
    assert "pairs.csv is not UTF-8" in refused
    assert "> converted.csv" in refused
