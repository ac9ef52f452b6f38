"""`lockstep demo`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from lockstep.explain.summary import Summary


def demo(
    run: Annotated[
        str, typer.Option(help="Run folder or address; it must not contain a run of other settings.")
    ] = "runs/demo",
    workers: Annotated[int, typer.Option(min=1, help="Worker processes on this machine.")] = 2,
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings to change, as `train.steps=500`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary and the test scores as JSON.")] = False,
) -> None:
    """Train a small English-German model on this machine in a few minutes, without any download.

    A built-in grammar writes the sentences. The model has to learn gender, case, word order and agreement. No test
    sentence occurs in training.
    """
    from dataclasses import replace

    from lockstep.cli.common import print_json
    from lockstep.cli.evaluate_command import evaluate_run
    from lockstep.cli.train_command import run_training
    from lockstep.config import load
    from lockstep.explain.summary import summarise
    from lockstep.launch.engine import join_engine
    from lockstep.remote.place import working_folder
    from lockstep.safe_console import SafeConsole

    config = load(Path(__file__).with_name("demo.yaml"), overrides or [])
    run_training(config, run, workers, show=False, placement=join_engine())
    summary = replace(summarise(working_folder(run)), run=run)
    test = evaluate_run(run, "test", "best", {})
    if as_json:
        print_json({"summary": summary.as_dict(), "test": test})
    else:
        print_closing(SafeConsole(), run, summary, test)


def print_closing(
    console: "Console", run: str, summary: "Summary", test: dict[str, object], sentences: int = 10
) -> None:
    """Prints translations of test sentences, the summary, and what to do next."""
    from rich.table import Table
    from rich.text import Text

    from lockstep.cli.common import summary_table
    from lockstep.remote.place import working_folder
    from lockstep.run.directory import RunDirectory

    table = Table(title="Sentences the model has never seen", title_justify="left", show_lines=True, expand=True)
    for heading in ("English", "translation", "reference"):
        table.add_column(heading)
    examples = test["examples"]
    assert isinstance(examples, list)
    for source, translation, reference in examples[:sentences]:
        is_right = translation == reference
        shown = Text(translation, style="green" if is_right else "yellow")
        table.add_row(Text(source), shown, "same" if is_right else Text(reference))
    console.print(table)
    report = RunDirectory(working_folder(run)).report
    console.print(summary_table(summary, report if report.exists() else None))
    console.print(
        f"Held-out test: sacreBLEU [bold]{test['sacrebleu']:.2f}[/] on {test['sentences']} sentences.", markup=True
    )
    console.print(Text.assemble("Next: ", (f"lockstep translate {run}", "bold"), " and type a sentence."))
