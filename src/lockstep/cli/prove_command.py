"""`lockstep prove`."""

from pathlib import Path
from typing import Annotated

import typer


def prove(
    run: Annotated[Path, typer.Argument(help="The folder of a run that has begun.")],
    steps: Annotated[int, typer.Option(min=10, help="Steps of each trial; the first five are warm-up.")] = 30,
    rounds: Annotated[int, typer.Option(min=1, help="How often each trial is repeated, in turns.")] = 3,
    link: Annotated[
        str | None,
        typer.Option(help="Put every worker behind an emulated link of this rate, such as 1gbit (Linux, root)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the proof as JSON.")] = False,
) -> None:
    """Show what holds a run back by doing without it.

    Trains the same job for a few steps as it is, without communication, with input that costs nothing, and with one
    worker alone, on this machine. What a step gains is what the thing costs. The proof is kept as proof.json in the run's
    folder, where the report finds it. The run itself is not touched; it should not be training meanwhile.
    """
    from rich.console import Console

    from lockstep.cli.common import print_json
    from lockstep.lab.prove import prove

    console = Console(stderr=True)
    proof = prove(run, steps, rounds, link, lambda text: console.print(text, style="dim"))
    if as_json:
        print_json(proof.as_dict())
        return
    Console().print(f"[bold]{proof.bottleneck}[/bold]: {proof.sentence}.", highlight=False)
