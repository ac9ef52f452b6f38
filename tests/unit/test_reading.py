"""CSV files, names without ending, encodings, bad lines and very long lines."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from lockstep.data.corpus.prepare import prepare
from lockstep.data.data_settings import DataSettings
from lockstep.data.text import compressed, parallel_text
from lockstep.data.text.encodings import guess_encoding
from lockstep.data.text.line_reader import read_line_blocks
from lockstep.data.text.look import look, read_sample, read_sample_lines
from lockstep.data.text.parallel_text import read_set
from lockstep.data.text.survey import survey
from lockstep.errors import LockstepError

Pair = tuple[str, str]
GERMAN = "Die Männer gehen über die große Straße und hören schöne Musik"
RUSSIAN = "Мужчина в синей рубашке стоит на лестнице и моет окно"


def make(folder: Path, **more: Any) -> DataSettings:
    return DataSettings.model_validate({"folder": folder, "train": ["train"], "max_characters": 100} | more)


def read(folder: Path, name: str, **more: Any) -> tuple[list[Pair], dict[int, str]]:
    """The pairs that are not bad, and what is wrong with the others, by line."""
    settings, pairs, bad = make(folder, **more), list[Pair](), dict[int, str]()
    for block in parallel_text.read_file_blocks(settings, name, lines=3):
        source, target, faults = block.decode(settings.line_limit, settings.skips_bad_lines)
        for number, pair in enumerate(zip(source.split("\n")[:-1], target.split("\n")[:-1], strict=True)):
            if number in faults:
                bad[block.first + number] = faults[number]
            else:
                pairs.append((pair[0].strip(), pair[1].strip()))
    return pairs, bad


def refuse(folder: Path, name: str, **more: Any) -> str:
    with pytest.raises(LockstepError) as caught:
        read(folder, name, **more)
    return str(caught.value)


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("header", ["", "de{0}en", "id{0}en{0}note{0}de-DE", "Source{0}Target"])
def test_csv_is_read_with_quotes_delimiters_and_headers(tmp_path: Path, delimiter: str, header: str) -> None:
    pairs = [('say "yes", please; now', "sag ja"), ("one", "eins, zwei"), ("two\nlines", "zwei"), ("last", "letzte")]
    wanted = {"de{0}en": (1, 0), "id{0}en{0}note{0}de-DE": (None, 0, None, 1)}.get(header, (0, 1))
    rows = [[header.format(delimiter)]] if header else []
    for pair in pairs:
        cells = ["n" if side is None else pair[side] for side in wanted]
        rows.append(['"' + cell.replace('"', '""') + '"' for cell in cells])
    (tmp_path / "pairs.csv").write_text("\r\n".join(delimiter.join(row) for row in rows))
    expected = [(source.replace("\n", " "), target) for source, target in pairs]
    assert read(tmp_path, "pairs.csv") == (expected, {})
    assert read(tmp_path, "pairs") == (expected, {})


def test_a_csv_header_with_other_languages_is_named(tmp_path: Path) -> None:
    """It said that a line had three columns instead of two."""
    (tmp_path / "p.csv").write_text("id,en,fr\n1,one,un\n")
    message = refuse(tmp_path, "p.csv")
    assert f"The header of {tmp_path / 'p.csv'} names en, fr, but data.languages is [en, de]." in message
    assert "data.languages=[en,fr]" in message


def test_csv_rows_with_wrong_columns_are_refused_or_skipped(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("a,b\nonly one\nc,d\ne,f,g\n")
    assert f"Line 2 of {tmp_path / 'p.csv'} has 1 column instead of two" in (message := refuse(tmp_path, "p.csv"))
    assert "data.bad_lines=skip" in message
    assert read(tmp_path, "p.csv", bad_lines="skip") == ([("a", "b"), ("c", "d")], {2: "columns", 4: "columns"})


@pytest.mark.parametrize(("row", "columns"), [("2,two", 2), ("2,one, two,eins,zwei", 5), ('2,"two', 2)])
def test_csv_rows_that_do_not_fit_the_header_are_refused_or_skipped(tmp_path: Path, row: str, columns: int) -> None:
    (tmp_path / "p.csv").write_text(f"id,de,en\n1,eins,one\n{row}\n3,drei,three,,\n")
    message = refuse(tmp_path, "p.csv")
    closed = f"Line 3 of {tmp_path / 'p.csv'} has {columns} columns, but its header has 3."
    assert ("Line 3 of" in message and "not closed" in message) if '"' in row else closed in message
    pairs, bad = read(tmp_path, "p.csv", bad_lines="skip")
    assert pairs == [("one", "eins"), ("three", "drei")]
    assert list(bad.values()) == ["columns"]


@pytest.mark.parametrize("after", [60, 200])
def test_a_quotation_mark_that_is_not_closed_costs_one_line(tmp_path: Path, after: int) -> None:
    rows = [f"{number},Zeile {number}" for number in range(after)]
    (tmp_path / "p.csv").write_text("\n".join(["en,de", *rows, 'open,"offen', *rows, '"in\ntwo",zwei', ""]))
    message = refuse(tmp_path, "p.csv")
    assert f"Line {after + 2} of {tmp_path / 'p.csv'} opens a quotation mark that is not closed" in message
    pairs, bad = read(tmp_path, "p.csv", bad_lines="skip")
    assert len(pairs) == 2 * after + 1
    assert pairs[-1] == ("in two", "zwei")
    assert bad == {after + 1: "columns"}


def test_an_undecodable_csv_row_with_line_breaks_stays_one_pair(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_bytes(b'en,de\none,eins\n"two\nlines, caf\xe9","zwei\nZeilen"\nthree,drei\n,leer\n')
    assert f"Line 4 of {tmp_path / 'p.csv'} is not valid UTF-8" in refuse(tmp_path, "p.csv")
    pairs, bad = read(tmp_path, "p.csv", bad_lines="skip")
    assert pairs == [("one", "eins"), ("three", "drei"), ("", "leer")]
    assert bad == {2: "undecodable"}
    settings = make(tmp_path, bad_lines="skip")
    (block,) = parallel_text.read_file_blocks(settings, "p.csv")
    source, target, _ = block.decode(100, skip_bad=True)
    assert (source.split("\n")[1], target.split("\n")[1]) == ("two lines, caf\ufffd", "zwei Zeilen")


def test_empty_pairs_and_undecodable_lines_are_counted_apart(tmp_path: Path) -> None:
    rows = [b"a b c %d\tx y z %d\n" % (n, n) for n in range(30)] + [b"only\t\n"] * 10 + [b"caf\xe9\tx\n"] * 4
    (tmp_path / "train.tsv").write_bytes(b"".join(rows))
    counted = survey(make(tmp_path), "train", 1000)
    assert (counted.empty, counted.bad["undecodable"], counted.duplicates) == (10, 4, 0)


def test_a_name_stands_for_the_only_file_that_fits(tmp_path: Path) -> None:
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(b"one\teins\n"))
    assert read(tmp_path, "b")[0] == [("one", "eins")]
    (tmp_path / "b.csv").write_text("two,zwei\n")
    assert "b.tsv.gz, b.csv" in refuse(tmp_path, "b")
    (tmp_path / "b.en").write_text("three\n")
    assert "b.de does not exist" in refuse(tmp_path, "b")
    (tmp_path / "b.de").write_text("drei\n")
    assert read(tmp_path, "b")[0] == [("three", "drei")]


@pytest.mark.parametrize(("content", "kind"), [("one\teins\ntwo\tzwei\n", "tsv"), ('one,"eins"\ntwo,zwei\n', "csv")])
def test_a_table_without_ending_is_recognized(tmp_path: Path, content: str, kind: str) -> None:
    (tmp_path / "pairs").write_text(content)
    assert read(tmp_path, "pairs")[0] == [("one", "eins"), ("two", "zwei")]
    assert look(tmp_path / "pairs").format == kind


def test_a_file_of_one_language_in_place_of_a_table_is_explained(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Hello there.\nHow are you, my friend?\nGood.\n")
    assert "has one sentence per line" in refuse(tmp_path, "text")
    assert "text.en and text.de" in refuse(tmp_path, "text")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("text", [GERMAN, RUSSIAN, "一个男人在街上走路"])
@pytest.mark.parametrize("size", [3, 1 << 20])
def test_unicode_encodings_are_read(
    tmp_path: Path, encoding: str, text: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "BLOCK_BYTES", size)
    (tmp_path / "train.en").write_bytes("".join(f"{n} {text}\n" for n in range(5)).encode(encoding))
    (tmp_path / "train.de").write_text("x\n" * 5)
    assert read(tmp_path, "train")[0] == [(f"{n} {text}", "x") for n in range(5)]
    assert look(tmp_path / "train.en").is_readable


@pytest.mark.parametrize(("text", "encoding"), [(GERMAN, "cp1252"), (RUSSIAN, "cp1251"), (RUSSIAN, "koi8-r")])
def test_the_advice_for_another_encoding_is_a_guess_from_the_bytes(tmp_path: Path, text: str, encoding: str) -> None:
    assert guess_encoding(text.encode(encoding)) == encoding
    (tmp_path / "train.en").write_bytes(f"first\n{text}\n".encode(encoding))
    (tmp_path / "train.de").write_text("x\n" * 2)
    message = refuse(tmp_path, "train")
    assert "Line 2" in message
    assert f"{encoding.replace('cp', 'WINDOWS-').upper()}, which is only a guess" in message
    assert "data.bad_lines=skip" in message
    assert read(tmp_path, "train", bad_lines="skip") == ([("first", "x")], {2: "undecodable"})
    assert not look(tmp_path / "train.en").is_readable


def test_table_lines_with_wrong_columns_are_skipped_if_wanted(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_bytes(b"a\tb\nnone\nc\td\te\nf\tg\nh\xff\ti\n")
    bad = {2: "columns", 3: "columns", 5: "undecodable"}
    assert read(tmp_path, "p.tsv", bad_lines="skip") == ([("a", "b"), ("f", "g")], bad)


LONG = "word " * 5000


@pytest.mark.parametrize("size", [64, 4096, 1 << 20])
@pytest.mark.parametrize("kind", ["lines", "tsv", "csv", "tmx", "po"])
def test_very_long_lines_are_cut_and_marked(
    tmp_path: Path, kind: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "BLOCK_BYTES", size)
    pairs = [("one", "eins"), (LONG, "lang"), ("two", "zwei"), ("long", f"ä{LONG}"), ("three", "drei")]
    if kind == "lines":
        for side, language in enumerate(("en", "de")):
            (tmp_path / f"p.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    else:
        row = {"tsv": "{}\t{}\n", "csv": '"{}","{}"\n', "po": 'msgid "{}"\nmsgstr "{}"\n'}.get(
            kind, "<tu><tuv lang='en'><seg>{}</seg></tuv><tuv lang='de'><seg>{}</seg></tuv></tu>"
        )
        text = "".join(row.format(*pair) for pair in pairs)
        (tmp_path / f"p.{kind}").write_text(f"<tmx>{text}</tmx>" if kind == "tmx" else text)
    good = [pair for pair in pairs if max(map(len, pair)) < 100]
    assert read(tmp_path, "p") == (good, {2: "characters", 4: "characters"})


@pytest.mark.parametrize("size", [1, 5, 100])
def test_cut_lines_keep_whole_characters_and_the_count(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "BLOCK_BYTES", size)
    (tmp_path / "t").write_text("ääääääääää\nb\n\n€€€€€€€€€€\nshort\nc" + "ä" * 50)
    lines = b"".join(read_line_blocks(tmp_path / "t", 8)).decode().split("\n")
    assert lines == ["ääää", "b", "", "€€", "short", "cäää"]


def test_a_very_long_line_of_validation_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "val.en").write_text(f"a\n{LONG}\n")
    (tmp_path / "val.de").write_text("A\nB\n")
    with pytest.raises(LockstepError, match=r"Line 2 of .*val\.en or of its translation has more than 100 characters"):
        list(read_set(make(tmp_path, validation=["val"]), "validation"))
    assert list(read_set(make(tmp_path, validation=["val"], bad_lines="skip"), "validation")) == [("a", "A")]


def test_bad_lines_are_counted_by_preparation(tmp_path: Path) -> None:
    good = "".join(f"a b {n}\tx y {n}\n" for n in range(50))
    (tmp_path / "train.tsv").write_bytes(good.encode() + b"none\nh\xff\ti\n" + f"{LONG}\tz\n".encode())
    (tmp_path / "val.tsv").write_bytes(b"one\teins\nnone\n")
    values = {"validation": ["val"], "bad_lines": "skip", "corpus": tmp_path / "c", "vocabulary": {"size": 275}}
    corpus = prepare(make(tmp_path, **values))
    train, validation = corpus.facts["sets"]["train"], corpus.facts["sets"]["validation"]
    assert train["removed"] == {"undecodable": 1, "columns": 1, "characters": 1}
    assert train["read"] == 53
    assert (validation["read"], validation["lines"], validation["removed"]) == (2, 1, {"columns": 1})


def test_text_that_was_never_translated_is_called_identical(tmp_path: Path) -> None:
    (tmp_path / "x.en").write_text("".join(f"this is the sentence number {n}\n" for n in range(9)))
    with pytest.raises(LockstepError, match=r"only 0 different source sentences .*9 identical"):
        prepare(make(tmp_path, train=[["x.en", "x.en"]], corpus=tmp_path / "c"))


def test_a_look_tells_format_compression_languages_and_pairs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv.gz"
    path.write_bytes(gzip.compress(b"id,en,de\n1,one,eins\n2,,\n3,two,zwei\n"))
    file = look(path)
    assert (file.format, file.encoding, file.compression, file.languages) == ("csv", "utf-8", ".gz", ("en", "de"))
    assert read_sample(file, ("en", "de")) == [("one", "eins"), ("two", "zwei")]
    (tmp_path / "m.tmx").write_text(
        "<tmx><tu><tuv xml:lang='en-US'><seg>a</seg></tuv><tuv xml:lang='fr'></tuv></tu></tmx>"
    )
    assert look(tmp_path / "m.tmx").languages == ("en-US", "fr")
    (tmp_path / "plain.en").write_text("one\ntwo\nthree\n")
    assert look(tmp_path / "plain.en").format == "lines"
    assert read_sample_lines(tmp_path / "plain.en", 2) == ["one", "two"]
