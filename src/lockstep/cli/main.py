"""The `lockstep` command. Heavy imports happen inside the commands, so that help comes at once."""

import sys
from typing import Annotated

import typer

from lockstep import __version__
from lockstep.cli import (
    board_command,
    classify_command,
    config_command,
    data_command,
    demo_command,
    evaluate_command,
    plan_command,
    prove_command,
    rehearse_command,
    report_command,
    runs_command,
    study_command,
    train_command,
    translate_command,
)
from lockstep.errors import LockstepError
from lockstep.notices import print_error

app = typer.Typer(
    name="lockstep",
    help="Trains translators and image classifiers in parallel and explains every run.",
    epilog="Start with `lockstep demo`: two workers, no download, a few minutes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo_command.demo)
app.command()(data_command.prepare)
app.command()(train_command.train)
app.command()(evaluate_command.evaluate)
app.command()(translate_command.translate)
app.command()(classify_command.classify)
app.command()(report_command.report)
app.command()(prove_command.prove)
app.command()(rehearse_command.rehearse)
app.command()(plan_command.plan)
app.command()(board_command.board)
app.add_typer(study_command.app, name="study")
app.add_typer(runs_command.app, name="runs")
app.add_typer(data_command.app, name="data")
app.add_typer(config_command.app, name="config")


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
        print_error(error)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(130)
