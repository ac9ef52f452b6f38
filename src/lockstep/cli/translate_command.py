"""`lockstep translate`."""

import io
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer


def translate(
    run: Annotated[str, typer.Argument(help="A run folder, a checkpoint or a model folder; also an address.")],
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help="Text to translate, a sentence a line; default: stdin.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write; default: stdout.")] = None,
    checkpoint: Annotated[
        Literal["best", "last"], typer.Option(help="Which checkpoint, when a run folder is given.")
    ] = "best",
    beam: Annotated[int | None, typer.Option(min=1, help="Beam size; default: as the model was configured.")] = None,
    length_penalty: Annotated[float | None, typer.Option(min=0.0, help="Length penalty; likewise.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object with source and translation a line.")] = False,
) -> None:
    """Translate text, sentence by sentence. On a terminal without --input it asks for sentences."""
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
            raise LockstepError(f"{output} is the input as well.", "Write to another file.", code=2)
        try:
            if isinstance(sys.stdin, io.TextIOWrapper):
                sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict", newline="\n")
            read = sys.stdin if source is None else files.enter_context(source.open(encoding="utf-8-sig", newline="\n"))
            write = sys.stdout if output is None else files.enter_context(output.open("w", encoding="utf-8"))
        except OSError as error:
            raise LockstepError(f"{error.filename}: {error.strerror}.", "Check the path.", code=2) from None
        interactive = source is None and read.isatty()
        if interactive:
            print("A sentence and Enter; Ctrl-D ends.", file=sys.stderr)
        try:
            for text, translation in translator.stream(read, 1 if interactive else 512):
                result = {"source": text, "translation": translation}
                print(json.dumps(result, ensure_ascii=False) if as_json else translation, file=write, flush=interactive)
        except BrokenPipeError:  # the reader of our output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            raise LockstepError(f"{output or 'The output'}: {error.strerror}.", "Make room and start again.") from None
        except UnicodeDecodeError:
            raise LockstepError(f"{source or 'The input'} is not UTF-8 text.", "Convert it to UTF-8.") from None
