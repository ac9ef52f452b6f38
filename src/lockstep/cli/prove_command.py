"""`lockstep prove`."""

from pathlib import Path
from typing import Annotated

import typer


def prove(
    run: Annotated[Path, typer.Argument(help="The folder of a run that has trained at least one step.")],
    steps: Annotated[int, typer.Option(min=10, help="Steps of each trial; the first five are warm-up.")] = 20,
    rounds: Annotated[
        int,
        typer.Option(min=1, help="How often each trial is repeated; the trials take turns. One round proves nothing."),
    ] = 6,
    link: Annotated[
        str | None,
        typer.Option(help="Emulate a link of this rate for every worker, such as 1gbit (needs root on Linux)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the proof as JSON.")] = False,
) -> None:
    """Measure what slows a run down by ablation.

    Trains the job of the run for a few steps on this machine: unchanged, without communication, without input, and with
    one worker alone. The time that a step saves is the cost of what was left out. A cost is proven if the rounds agree on
    it, the run's journal does not contradict, and other programs left the machine alone; otherwise the command says what a
    proof would need. The result is written to proof.json in the run folder, and the report includes it. The run itself
    does not change. Do not train it at the same time.
    """
    from rich.text import Text

    from lockstep.cli.common import print_json
    from lockstep.lab.prove import prove
    from lockstep.safe_console import SafeConsole

    console = SafeConsole(stderr=True)
    proof = prove(run, steps, rounds, link, lambda text: console.print(text, style="dim"))
    if as_json:
        print_json(proof.as_dict())
        return
    SafeConsole().print(Text.assemble((proof.verdict, "bold"), f" Ablation: {proof.sentence}."))
