"""Reads the sentence pairs of parallel text as a stream.

| name | what is read |
|---|---|
| `news` | two files, `news.en` and `news.de`; line n of one is the translation of line n of the other |
| `[english.txt, german.txt]` | these two files, in the same way |
| `pairs.tsv` | one file, two columns separated by a tab |
| `pairs.csv` | one file, two columns separated by commas or semicolons (see `csv_table.py`) |
| `memory.tmx` | a translation memory (see `tmx.py`) |
| `app.po`, `app.mo` | a gettext catalogue (see `gettext.py`) |

Each file may be compressed. Only a line feed ends a line, so U+2028 and other separators inside a sentence never shift
one side against the other. At most one block of a file is in memory.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import cast

from lockstep.data.data_settings import DataSettings, TextName
from lockstep.data.text import csv_table, gettext, tmx
from lockstep.data.text.clean import Reason
from lockstep.data.text.find_files import Format, find_files
from lockstep.data.text.line_reader import TAKE_BYTES, LineReader, count_limit_bytes
from lockstep.data.text.text_block import SKIP, TextBlock, pack_pairs
from lockstep.errors import LockstepError

READ_LINES = 4096


def read_blocks(settings: DataSettings, name: str, lines: int) -> Iterator[TextBlock]:
    """Yields a set (train, validation or test) in blocks of `lines` lines. Blocks with very long lines and the last block
    of a file may be shorter."""
    if settings.grammar is not None:
        from lockstep import demo_corpus

        every_pair = demo_corpus.generate_pairs(settings.grammar.seed, cast(demo_corpus.Split, name))
        pairs = islice(every_pair, getattr(settings.grammar, name))
        in_order = pairs if settings.languages == ("en", "de") else ((german, english) for english, german in pairs)
        yield from pack_pairs(Path("grammar"), in_order, lines, TAKE_BYTES)
        return
    for base in getattr(settings, name):
        yield from read_file_blocks(settings, base, lines)


def read_file_blocks(settings: DataSettings, name: TextName, lines: int = READ_LINES) -> Iterator[TextBlock]:
    """Yields the blocks of the files that one name stands for."""
    kind, paths = find_files(settings, name)
    yield from read_found_blocks(settings, kind, paths, lines)


def read_found_blocks(settings: DataSettings, kind: Format, paths: tuple[Path, ...], lines: int) -> Iterator[TextBlock]:
    """Yields the blocks of files whose format is known."""
    limit, languages, skip_bad = settings.line_limit, settings.languages, settings.skips_bad_lines
    path = paths[0]
    match kind:
        case "lines":
            yield from _read_two_files(path, paths[1], lines, count_limit_bytes(limit))
        case "tsv":
            yield from _read_table(path, lines, 2 * count_limit_bytes(limit))
        case "csv":
            yield from pack_pairs(path, csv_table.read(path, languages, limit, skip_bad), lines, TAKE_BYTES)
        case "tmx":
            yield from pack_pairs(path, tmx.read(path, languages, limit), lines, TAKE_BYTES)
        case "po" | "mo":
            pairs = gettext.read(path, languages, limit, compiled=kind == "mo")
            yield from pack_pairs(path, pairs, lines, TAKE_BYTES)


def read_set(settings: DataSettings, name: str, removed: Counter[Reason] | None = None) -> Iterator[tuple[str, str]]:
    """Yields the sentence pairs of validation or test, without whitespace around them. An empty or too long sentence is an
    error. With data.bad_lines=skip, bad lines are left out and counted in `removed`."""
    skip_bad, limit = settings.skips_bad_lines, settings.line_limit
    for block in read_blocks(settings, name, READ_LINES):
        source, target, bad = block.decode(limit, skip_bad)
        sides = (map(str.strip, text.split("\n")[:-1]) for text in (source, target))
        for number, pair in enumerate(zip(*sides, strict=True)):
            if (reason := bad.get(number)) is not None:
                if not skip_bad:
                    what = f"Line {block.first + number} of {block.paths[0]} or of its translation"
                    remedy = (
                        "Every line of validation and test text is scored: remove it, or raise data.max_characters."
                    )
                    raise LockstepError(f"{what} has more than {limit:,} characters.", f"{remedy} {SKIP}")
                if removed is not None:
                    removed[reason] += 1
                continue
            if not all(pair):
                raise LockstepError(
                    f"Line {block.first + number} of {block.paths[0] if not pair[0] else block.paths[-1]} is empty.",
                    "Every line of validation and test text is scored: fill it in, or remove it on both sides.",
                )
            yield pair


def _read_two_files(source_path: Path, target_path: Path, lines: int, limit_bytes: int) -> Iterator[TextBlock]:
    source, target = LineReader(source_path, limit_bytes), LineReader(target_path, limit_bytes)
    while True:
        before = source.count
        parts = source.take(lines, TAKE_BYTES), target.take(max(1, source.count - before))
        if source.count != target.count:
            raise LockstepError(
                f"{source_path} has {source.count_all()} lines but {target_path} has {target.count_all()}.",
                "Line n of one file must be the translation of line n of the other: align them first.",
            )
        if not parts[0]:
            return
        yield TextBlock((source_path, target_path), before + 1, parts)


def _read_table(path: Path, lines: int, limit_bytes: int) -> Iterator[TextBlock]:
    table = LineReader(path, limit_bytes)
    while True:
        first = table.count + 1
        if not (part := table.take(lines, TAKE_BYTES)):
            return
        yield TextBlock((path,), first, (part,))
