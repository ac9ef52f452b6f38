"""The `lockstep` command. Heavy imports happen inside the commands, so that help comes at once."""

import sys
from typing import Annotated

import typer

from lockstep import __version__
from lockstep.cli import (
    board,
    classify,
    config,
    data,
    demo,
    evaluate,
    plan,
    prove,
    rehearse,
    report,
    runs,
    study,
    train,
    translate,
)
from lockstep.errors import LockstepError, tell

app = typer.Typer(
    name="lockstep",
    help="Trains translators and image classifiers in parallel and explains every run.",
    epilog="Start with `lockstep demo`: two workers, no download, a few minutes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo.demo)
app.command()(data.prepare)
app.command()(train.train)
app.command()(evaluate.evaluate)
app.command()(translate.translate)
app.command()(classify.classify)
app.command()(report.report)
app.command()(prove.prove)
app.command()(rehearse.rehearse)
app.command()(plan.plan)
app.command()(board.board)
app.add_typer(study.app, name="study")
app.add_typer(runs.app, name="runs")
app.add_typer(data.app, name="data")
app.add_typer(config.app, name="config")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"lockstep {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Trains translators and image classifiers in parallel and explains every run."""


def main() -> None:
    """Runs the command; the one place where an error becomes a sentence and an exit code."""
    try:
        app()
    except LockstepError as error:
        tell(error)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(130)
