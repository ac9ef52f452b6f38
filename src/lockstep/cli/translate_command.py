"""`lockstep translate`."""

import io
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, TextIO

import typer

if TYPE_CHECKING:
    from lockstep.translate.translator import TranslatedLine, Translator

LINES_AT_ONCE = 4096
MOST_NUMBERS = 5
"""Line numbers that a warning lists."""


def translate(
    run: Annotated[
        str, typer.Argument(help="A run folder or address, a checkpoint, a model folder or an exported model.")
    ],
    text: Annotated[
        list[str] | None, typer.Argument(help="A sentence to translate; default: --input or stdin.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--input", "-i", help="Text file with one sentence per line, also .gz, .xz, .zst or .bz2; default: stdin."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write to; default: stdout.")] = None,
    checkpoint: Annotated[
        Literal["best", "last"], typer.Option(help="Which checkpoint of the run: with the best score, or the newest.")
    ] = "best",
    average: Annotated[int, typer.Option(min=1, help="Average the weights of the N best or N last checkpoints.")] = 1,
    beam: Annotated[int | None, typer.Option(min=1, help="Beam size; default: search.beam of the run.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(min=0.0, help="Length penalty; default: search.length_penalty of the run.")
    ] = None,
    n_best: Annotated[
        int,
        typer.Option(min=1, help="Print the N best translations of every line as `number ||| translation ||| score`."),
    ] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, with source and translation.")
    ] = False,
) -> None:
    """Translate text with a trained model: a sentence, a file with one sentence per line, or what you type.

    Every line of the input gives one line, in the same order. A line that is longer than any sentence of the training text
    is translated sentence by sentence, and a warning says so.

    `lockstep translate runs/demo "The dog sleeps."`

    `lockstep translate runs/demo -i news.en -o news.de`
    """
    from lockstep.errors import LockstepError

    _check_files(text or [], source, output)
    from lockstep.cli.common import share_cores

    share_cores()
    from lockstep.data.text.compressed import open_unpacked
    from lockstep.translate.load_model import load_translator

    if n_best > 1 and beam is None:
        beam = max(n_best, 5)
    overrides: dict[str, object] = {"beam": beam, "length_penalty": length_penalty}
    search = {name: value for name, value in overrides.items() if value is not None}
    translator = load_translator(run, checkpoint=checkpoint, average=average, search=search)
    partial = _find_partial(output)
    with ExitStack() as files:
        try:
            read: BinaryIO = sys.stdin.buffer if source is None else files.enter_context(open_unpacked(source))
            write = sys.stdout if partial is None else files.enter_context(partial.open("w", encoding="utf-8"))
        except OSError as error:
            raise LockstepError(
                f"{error.filename} cannot be opened: {error.strerror}.", "Check the path.", code=2
            ) from None
        if text:
            read = io.BytesIO(f"{' '.join(text)}\n".encode(errors="surrogateescape"))
        try:
            _translate_lines(translator, read, write, as_json, n_best, source)
            write.flush()
        except BrokenPipeError:  # for example `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            what = output or "The output"
            raise LockstepError(
                f"{what} cannot be written: {error.strerror}.", "Check the disk and try again."
            ) from None
        except LockstepError as error:
            write.flush()
            if partial is None or partial == output:
                raise
            if partial.stat().st_size == 0:
                partial.unlink()
                raise
            raise LockstepError(error.message, f"{error.remedy} The lines before it are in {partial}.") from None
    if partial is not None and output is not None:
        partial.replace(output)


def _find_partial(output: Path | None) -> Path | None:
    """The file to write to until all lines are translated: an existing output must survive bad input. A device or pipe is
    written to directly."""
    if output is None or (output.exists() and not output.is_file()):
        return output
    return output.with_name(f"{output.name}.partial")


def _check_files(text: list[str], source: Path | None, output: Path | None) -> None:
    from lockstep.errors import LockstepError

    if text and source is not None:
        raise LockstepError("There is a sentence and an --input.", "Give one of them.", code=2)
    if len(text) == 1 and os.path.isfile(text[0]):  # false for a sentence that no file name can be
        raise LockstepError(f"{text[0]} is a file.", f"To translate its lines: --input {text[0]}", code=2)
    if source is not None and not source.exists():
        raise LockstepError(f"{source} does not exist.", "Check the path.", code=2)
    if source is not None and output is not None and output.exists() and output.samefile(source):
        raise LockstepError(f"{output} is the input as well.", "Choose another --output.", code=2)


def _translate_lines(
    translator: "Translator", read: BinaryIO, write: TextIO, as_json: bool, n_best: int, source: Path | None
) -> None:
    """Translates every line of `read`, and warns once at the end about lines that were too long; after each line if a
    person types. A file or pipe gets every character, a terminal only those that it does not obey."""
    from lockstep.notices import warn
    from lockstep.terminal_text import strip_controls

    is_interactive, is_shown = read.isatty(), write.isatty()
    if is_interactive:
        print("Type a sentence and press Enter; Ctrl-D ends.", file=sys.stderr)
    long_lines = _LongLines(translator.limit)
    with _FileProgress(read, write, source is not None) as progress:
        chunk = 1 if is_interactive else LINES_AT_ONCE
        results = translator.stream(_decode(read, str(source or "The input")), chunk, progress.add_bytes, n_best)
        for number, (line, translation) in enumerate(results, start=1):
            for shown in _format(number, line, translation, as_json, n_best):
                print(strip_controls(shown) if is_shown else shown, file=write)
            long_lines.add(number, translation)
            progress.add_line(translation.pieces)
            if is_interactive:
                write.flush()
                for sentence in long_lines.describe():
                    warn(sentence)
                long_lines = _LongLines(translator.limit)
    for sentence in long_lines.describe():
        warn(sentence)
    progress.print_speed()


def _format(number: int, source: str, translation: "TranslatedLine", as_json: bool, n_best: int) -> Iterator[str]:
    """Yields the lines to print for a line of the input."""
    import json

    if as_json:
        result: dict[str, object] = {"source": source, "translation": translation.text}
        if n_best > 1:
            result["translations"] = [{"text": one.text, "score": one.score} for one in translation.candidates]
        yield json.dumps(result, ensure_ascii=False)
    elif n_best > 1:
        yield from (f"{number} ||| {one.text} ||| {one.score:.4f}" for one in translation.candidates)
    else:
        yield translation.text


def _decode(read: BinaryIO, name: str) -> Iterator[str]:
    from lockstep.errors import LockstepError

    for number, line in enumerate(read, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            remedy = "Convert it, for example with iconv."
            raise LockstepError(f"{name} is not UTF-8 text: see line {number:,}.", remedy) from None


@dataclass
class _LongLines:
    """The lines that were too long for the model, for one warning about all of them."""

    limit: int
    split: list[int] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    copied: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    cut_sentences: int = 0
    copied_words: int = 0

    def add(self, number: int, translation: "TranslatedLine") -> None:
        for numbers, happened in (
            (self.split, translation.parts > 1),
            (self.cut, translation.cut_sentences > 0 and translation.parts > 1),
            (self.copied, translation.copied_words > 0),
            (self.missing, translation.is_missing),
        ):
            if happened:
                numbers.append(number)
        self.cut_sentences += translation.cut_sentences if translation.parts > 1 else 0
        self.copied_words += translation.copied_words

    def describe(self) -> Iterator[str]:
        if self.split:
            were = "was" if len(self.split) == 1 else "were"
            what = f"longer than the model translates at once ({self.limit:,} pieces)"
            yield f"{_list_lines(self.split)} {were} {what} and {were} translated sentence by sentence."
        if self.cut:
            sentences, were = _count(self.cut_sentences, "sentence")
            yield f"{_list_lines(self.cut)}: {sentences} {were} too long as well and {were} divided at commas or words."
        if self.copied:
            words, were = _count(self.copied_words, "word")
            yield f"{_list_lines(self.copied)}: {words} {were} too long to translate and {were} copied."
        if self.missing:
            yield f"{_list_lines(self.missing)}: the model translated a part to nothing."


def _count(number: int, noun: str) -> tuple[str, str]:
    return (f"1 {noun}", "was") if number == 1 else (f"{number:,} {noun}s", "were")


def _list_lines(numbers: list[int]) -> str:
    """`Line 3`, `Lines 3, 5 and 9`, `1,200 lines (3, 5, 9, 10, 12, ...)`."""
    names = [f"{number:,}" for number in numbers[:MOST_NUMBERS]]
    if len(numbers) > MOST_NUMBERS:
        return f"{len(numbers):,} lines ({', '.join(names)}, ...)"
    return f"Line {names[0]}" if len(names) == 1 else f"Lines {', '.join(names[:-1])} and {names[-1]}"


class _FileProgress:
    """A bar on stderr while a file is translated, unless the translations go to the same terminal."""

    def __init__(self, read: BinaryIO, write: TextIO, is_named: bool) -> None:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        from lockstep.safe_console import SafeConsole

        size = _measure_file(read)
        self._is_file = size is not None or is_named  # the size of compressed text is not known
        columns = (
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.description}", markup=False),
            TimeRemainingColumn(),
        )
        is_hidden = not self._is_file or size == 0 or not sys.stderr.isatty() or write.isatty()
        self._bar = Progress(*columns, console=SafeConsole(stderr=True), transient=True, disable=is_hidden)
        self._task = self._bar.add_task("starting", total=size)
        self._begin, self._lines, self._pieces = time.monotonic(), 0, 0

    def __enter__(self) -> "_FileProgress":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def add_bytes(self, count: int) -> None:
        self._bar.advance(self._task, count)

    def add_line(self, pieces: int) -> None:
        self._lines += 1
        self._pieces += pieces
        rate = self._lines / (time.monotonic() - self._begin)
        self._bar.update(self._task, advance=1, description=f"{self._lines:,} lines, {rate:,.0f} lines/s")

    def print_speed(self) -> None:
        """Prints how fast a file was translated."""
        if self._is_file:
            seconds = time.monotonic() - self._begin
            rate = f"{self._pieces / seconds:,.0f} target pieces/s"
            print(
                f"Translated {self._lines:,} line{'s' * (self._lines != 1)} in {seconds:.1f} s: {rate}.",
                file=sys.stderr,
            )


def _measure_file(read: BinaryIO) -> int | None:
    """Returns the bytes of a file; None if it is not a file, such as a pipe."""
    try:
        facts = os.fstat(read.fileno())
    except OSError:  # the input is a sentence
        return None
    return facts.st_size if stat.S_ISREG(facts.st_mode) else None
