"""`lockstep translate`."""

import io
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer


def translate(
    run: Annotated[str, typer.Argument(help="A run folder or address, a checkpoint folder or a model folder.")],
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help="Text file with one sentence per line; default: stdin.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write to; default: stdout.")] = None,
    checkpoint: Annotated[
        Literal["best", "last"], typer.Option(help="Which checkpoint of the run: with the best score, or the newest.")
    ] = "best",
    beam: Annotated[int | None, typer.Option(min=1, help="Beam size; default: search.beam of the run.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(min=0.0, help="Length penalty; default: search.length_penalty of the run.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, with source and translation.")
    ] = False,
) -> None:
    """Translate text with a trained model, one sentence per line. Without --input, type sentences and press Enter."""
    import contextlib
    import json

    from lockstep.cli.common import find_model_folder
    from lockstep.errors import LockstepError
    from lockstep.remote.fetch_run import fetch_model
    from lockstep.team import pick_device
    from lockstep.translate.translator import Translator

    overrides: dict[str, object] = {"beam": beam, "length_penalty": length_penalty}
    search = {name: value for name, value in overrides.items() if value is not None}
    translator = Translator.load(
        find_model_folder(fetch_model(run, checkpoint), checkpoint), search, str(pick_device("auto", 0))
    )
    with contextlib.ExitStack() as files:
        if source is not None and output is not None and output.exists() and output.samefile(source):
            raise LockstepError(f"{output} is the input as well.", "Choose another --output.", code=2)
        try:
            if isinstance(sys.stdin, io.TextIOWrapper):
                sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict", newline="\n")
            read = sys.stdin if source is None else files.enter_context(source.open(encoding="utf-8-sig", newline="\n"))
            write = sys.stdout if output is None else files.enter_context(output.open("w", encoding="utf-8"))
        except OSError as error:
            raise LockstepError(
                f"{error.filename} cannot be opened: {error.strerror}.", "Check the path.", code=2
            ) from None
        interactive = source is None and read.isatty()
        if interactive:
            print("Type a sentence and press Enter; Ctrl-D ends.", file=sys.stderr)
        try:
            for text, translation in translator.stream(read, 1 if interactive else 512):
                result = {"source": text, "translation": translation}
                print(json.dumps(result, ensure_ascii=False) if as_json else translation, file=write, flush=interactive)
        except BrokenPipeError:  # for example `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            what = output or "The output"
            raise LockstepError(
                f"{what} cannot be written: {error.strerror}.", "Check the disk and try again."
            ) from None
        except UnicodeDecodeError:
            raise LockstepError(
                f"{source or 'The input'} is not UTF-8 text.", "Convert it, for example with iconv."
            ) from None
