import bz2
import gzip
import lzma
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from lockstep.data.data_settings import DataSettings
from lockstep.data.text import compressed, parallel_text
from lockstep.data.text.find_files import list_files
from lockstep.data.text.line_reader import read_line_blocks
from lockstep.errors import LockstepError

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".bz2": bz2.compress,
}


def settings(folder: Path) -> DataSettings:
    return DataSettings(folder=folder, train=["train"], validation=["val"])


def pairs(folder: Path, *names: str) -> list[tuple[str, str]]:
    files = (parallel_text.read_file_blocks(settings(folder), name, lines=3) for name in names)
    return [pair for blocks in files for block in blocks for pair in block.pairs()]


def error(folder: Path, name: str = "train") -> LockstepError:
    with pytest.raises(LockstepError) as caught:
        pairs(folder, name)
    assert caught.value.remedy
    return caught.value


def write(folder: Path, source: str | bytes, target: str | bytes, name: str = "train") -> None:
    for language, content in (("en", source), ("de", target)):
        (folder / f"{name}.{language}").write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize("ending", COMPRESS)
def test_two_files_are_read_in_every_compression(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"train.en{ending}").write_bytes(COMPRESS[ending](b"one\ntwo\n"))
    (tmp_path / f"train.de{ending}").write_bytes(COMPRESS[ending](b"eins\nzwei"))
    assert pairs(tmp_path, "train") == [("one", "eins"), ("two", "zwei")]
    assert [path.name for path in list_files(settings(tmp_path), ["train"])] == [
        f"train.en{ending}",
        f"train.de{ending}",
    ]


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.tsv{}"])
def test_tables_are_read_in_every_compression(tmp_path: Path, ending: str, name: str) -> None:
    (tmp_path / f"pairs.tsv{ending}").write_bytes(COMPRESS[ending](b"one \t eins\r\ntwo\tzwei\n"))
    assert pairs(tmp_path, name.format(ending)) == [("one", "eins"), ("two", "zwei")]


def test_names_are_read_one_after_the_other(tmp_path: Path) -> None:
    write(tmp_path, "a\n", "A\n")
    write(tmp_path, "b\n", "B\n", name="more")
    assert pairs(tmp_path, "more", "train") == [("b", "B"), ("a", "A")]


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    write(tmp_path, "a\u2028b\x0bc\x85d\n", "A\rB\r\n")
    assert pairs(tmp_path, "train") == [("a\u2028b\x0bc\x85d", "A\rB")]


def test_byte_order_mark_and_outer_whitespace_are_dropped(tmp_path: Path) -> None:
    write(tmp_path, "\ufeff one \r\n", "\t eins\n")
    assert pairs(tmp_path, "train") == [("one", "eins")]


@pytest.mark.parametrize("size", [1, 2, 7])
def test_blocks_may_cut_lines_and_characters(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "BLOCK_BYTES", size)
    write(tmp_path, "ä\n\nlonger than a block\n", "€\n漢字\n😀")
    assert pairs(tmp_path, "train") == [("ä", "€"), ("", "漢字"), ("longer than a block", "😀")]


def test_files_with_several_compressed_parts_are_read_to_the_end(tmp_path: Path) -> None:
    for ending, compress in COMPRESS.items():
        (tmp_path / f"train.en{ending}").write_bytes(compress(b"a\nb") + compress(b"c\n"))
        assert b"".join(read_line_blocks(tmp_path / f"train.en{ending}", 100)) == b"a\nbc\n"


def test_missing_file_names_the_path_and_similar_files(tmp_path: Path) -> None:
    write(tmp_path, "a\n", "A\n", name="training")
    message = str(error(tmp_path))
    assert str(tmp_path / "train.en") in message
    assert "training.en" in message


def test_missing_folder_is_named(tmp_path: Path) -> None:
    assert f"no folder {tmp_path / 'nowhere'}" in str(error(tmp_path / "nowhere"))


def test_empty_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, "a\n", "")
    assert error(tmp_path).message == f"The text file {tmp_path / 'train.de'} is empty."


@pytest.mark.parametrize(("source", "target"), [(2, 5), (5, 2), (3, 4)])
def test_unequal_line_counts_name_both_files_and_counts(tmp_path: Path, source: int, target: int) -> None:
    write(tmp_path, "x\n" * source, "x\n" * target)
    en, de = tmp_path / "train.en", tmp_path / "train.de"
    assert error(tmp_path).message == f"{en} has {source} lines but {de} has {target}."


@pytest.mark.parametrize("size", [4, 1 << 20])
def test_wrong_encoding_names_file_and_line(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "BLOCK_BYTES", size)
    write(tmp_path, "a\nb\nc\nd\n", "ä\nb\n".encode() + "c\nü".encode("latin-1") + b"\n")
    assert error(tmp_path).message == f"Line 4 of {tmp_path / 'train.de'} is not valid UTF-8."


@pytest.mark.parametrize(("line", "columns"), [("only one", "1 column "), ("a\tb\tc", "3 columns ")])
def test_table_line_without_two_columns_is_named(tmp_path: Path, line: str, columns: str) -> None:
    (tmp_path / "pairs.tsv").write_text(f"one\teins\n{line}\n")
    message = error(tmp_path, "pairs.tsv").message
    assert message.startswith(f"Line 2 of {tmp_path / 'pairs.tsv'} has {columns}")


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst", ".bz2"])
@pytest.mark.parametrize("fault", ["cut", "garbage", "flipped"])
def test_damaged_compressed_file_is_named(tmp_path: Path, ending: str, fault: str) -> None:
    lines = "".join(f"line {number * number}\n" for number in range(5000)).encode()
    intact = COMPRESS[ending](lines)
    flipped = bytearray(intact)
    flipped[len(intact) // 2 : len(intact) // 2 + 40] = b"\xff" * 40
    damaged = {"cut": intact[: len(intact) // 2], "garbage": b"not compressed at all\n", "flipped": bytes(flipped)}
    (tmp_path / f"train.en{ending}").write_bytes(damaged[fault])
    (tmp_path / "train.de").write_bytes(lines)
    assert f"{tmp_path / 'train.en'}{ending} is damaged or cut off" in error(tmp_path).message


def test_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.en").mkdir()
    assert error(tmp_path).message == f"{tmp_path / 'train.en'} is a folder, but a text file is expected there."


@pytest.fixture
def someone_elses_folder() -> Iterator[Path]:
    """A folder with a file that nobody may read. Root becomes an ordinary user, because permissions do not bind root."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        write(Path(name), "a\n", "A\n")
        (Path(name) / "train.en").chmod(0)
        if os.geteuid() == 0:
            os.seteuid(65534)
            yield Path(name)
            os.seteuid(0)
        else:
            yield Path(name)


def test_file_without_permission_is_named(someone_elses_folder: Path) -> None:
    assert error(someone_elses_folder).message == f"{someone_elses_folder / 'train.en'} may not be read by this user."


@pytest.mark.parametrize(("source", "target", "at_fault"), [("a\n\n", "A\nB\n", "en"), ("a\nb\n", "A\n \n", "de")])
def test_empty_line_in_evaluation_text_is_named(tmp_path: Path, source: str, target: str, at_fault: str) -> None:
    write(tmp_path, source, target)
    with pytest.raises(LockstepError, match=f"Line 2 of .*train.{at_fault} is empty"):
        list(parallel_text.read_set(settings(tmp_path), "train"))


@pytest.mark.parametrize("lines", [1, 2, 3, 4, 7, 100])
def test_blocks_have_the_given_number_of_lines_and_know_their_first_line(tmp_path: Path, lines: int) -> None:
    write(tmp_path, "".join(f"{n}\n" for n in range(1, 8)), "\n".join(f"-{n}" for n in range(1, 8)))
    blocks = list(parallel_text.read_file_blocks(settings(tmp_path), "train", lines))
    assert [block.first for block in blocks] == list(range(1, 8, lines))
    assert [pair for block in blocks for pair in block.pairs()] == [(str(n), f"-{n}") for n in range(1, 8)]
    assert all(block.parts[0].count(b"\n") == lines for block in blocks[:-1])
