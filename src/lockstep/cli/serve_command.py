"""`lockstep serve`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from lockstep.serve.api_keys import ApiKeys
    from lockstep.serve.limits import Limits
    from lockstep.serve.served_models import ServedModels

MEGABYTE = 1e6


def serve(
    models: Annotated[
        list[str], typer.Argument(help="Export folders, runs or their addresses, checkpoints or model folders.")
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on. One that other machines can reach needs --api-key-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0 takes any free one.")] = 5000,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with the accepted API keys, one per line. Without it no key is needed.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Web site whose pages may use the server, such as https://example.org; * for all. Repeatable."
        ),
    ] = None,
    max_characters: Annotated[int, typer.Option(min=1, help="Characters of all texts of a request.")] = 20_000,
    max_texts: Annotated[int, typer.Option(min=1, help="Texts in the list of a request.")] = 256,
    max_alternatives: Annotated[
        int, typer.Option(min=0, help="Alternatives that a request may ask for. A beam of n finds n - 1.")
    ] = 5,
    max_queue: Annotated[
        int, typer.Option(min=1, help="Sentences that may wait for a model. More requests are refused (429).")
    ] = 2048,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to answer a request, then it ends (504).")] = 60.0,
    body_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds in which a request must arrive completely (408).")
    ] = 10.0,
    checkpoint: Annotated[
        Literal["best", "last"], typer.Option(help="Which checkpoint of a run: with the best score, or the newest.")
    ] = "best",
    beam: Annotated[int | None, typer.Option(min=1, help="Beam size; default: that of the model.")] = None,
    log: Annotated[bool, typer.Option("--log", help="Print method, path, status and time of every request.")] = False,
) -> None:
    """Serve translations over HTTP: LibreTranslate's interface for programs, and a page for people.

    One model for each direction. Requests that arrive together are translated together. Ctrl-C answers those that have
    begun, then ends.

    `lockstep serve exports/en-de exports/de-en`
    """
    from lockstep.cli.common import share_cores

    share_cores()
    from lockstep.serve.api_keys import ApiKeys, read_keys
    from lockstep.serve.app import make_app
    from lockstep.serve.http_server import bind, run_server
    from lockstep.serve.limits import Limits

    keys = ApiKeys([]) if api_key_file is None else read_keys(api_key_file)
    _check_reach(host, keys)
    limits = Limits(max_characters, max_texts, max_alternatives, max_queue, timeout, body_timeout)
    with bind(host, port) as server:
        served = _load(models, checkpoint, {} if beam is None else {"beam": beam}, limits)
        app = make_app(served, limits, keys, origins=allow_origin or [], log=_print if log else None)
        run_server(app, server, limits, lambda address: _print(f"Serving at {address} until you press Ctrl-C."))


def _check_reach(host: str, keys: "ApiKeys") -> None:
    """Raises if other machines could use the server without a key."""
    from lockstep.errors import LockstepError
    from lockstep.serve.http_server import is_loopback

    if not keys and not is_loopback(host):
        raise LockstepError(
            f"Other machines can reach {host}, and no API key is required.",
            "Give a file with keys: --api-key-file FILE, one key per line.",
            code=2,
        )


def _load(
    places: list[str], checkpoint: Literal["best", "last"], search: dict[str, object], limits: "Limits"
) -> "ServedModels":
    """Loads the models and prints a line for each."""
    from lockstep.serve.detect_language import guess_language
    from lockstep.serve.served_models import ServedModels
    from lockstep.translate.load_model import load_translator

    served = ServedModels(limits.queue)
    for place in places:
        begin = time.perf_counter()
        translator = load_translator(place, checkpoint=checkpoint, search=search)
        seconds = time.perf_counter() - begin
        served.add(translator, place)
        name = "-".join(translator.languages)
        _print(f"{name}  {_measure(place)}loaded in {seconds:.1f} s  {place}")
    guess_language(["Loads the identifier."], served.languages)
    return served


def _measure(place: str) -> str:
    """Returns the size of an exported model's weights, such as `61 MB, `; nothing for other models."""
    weights = Path(place, "model.bin")
    return f"{weights.stat().st_size / MEGABYTE:,.1f} MB, " if weights.is_file() else ""


def _print(line: str) -> None:
    print(line, flush=True)
