"""The `lockstep` command. Commands import torch and other large packages only when they run, so that `--help` is fast."""

import sys
from typing import Annotated

import typer

from lockstep import __version__
from lockstep.cli import (
    board_command,
    checkpoint_command,
    classify_command,
    config_command,
    data_command,
    demo_command,
    doctor_command,
    evaluate_command,
    export_command,
    init_command,
    jobs_command,
    launch_command,
    plan_command,
    prove_command,
    rehearse_command,
    report_command,
    runs_command,
    serve_command,
    study_command,
    train_command,
    translate_command,
)
from lockstep.errors import LockstepError, missing
from lockstep.notices import print_error

app = typer.Typer(
    name="lockstep",
    help="Train translation models and image classifiers in parallel, and explain every run.",
    epilog="Start with `lockstep demo`: two workers, a few minutes, no download. "
    "For your own text: `lockstep init FILES`, then `lockstep train lockstep.yaml`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo_command.demo)
app.command()(init_command.init)
app.command()(data_command.prepare)
app.command()(train_command.train)
app.command()(evaluate_command.evaluate)
app.command()(translate_command.translate)
app.command()(export_command.export)
app.command()(serve_command.serve)
app.command()(classify_command.classify)
app.command()(report_command.report)
app.command()(prove_command.prove)
app.command()(rehearse_command.rehearse)
app.command()(plan_command.plan)
app.command()(doctor_command.doctor)
app.command()(launch_command.launch)
app.command()(board_command.board)
app.add_typer(study_command.app, name="study")
app.add_typer(runs_command.app, name="runs")
app.add_typer(jobs_command.app, name="jobs")
app.add_typer(checkpoint_command.app, name="checkpoint")
app.add_typer(data_command.app, name="data")
app.add_typer(config_command.app, name="config")


TRAIN_MODULES = ("torch", "safetensors", "tensorboard", "plotly", "jinja2", "psutil", "pynvml")
EDGE_MODULES = (
    "ctranslate2",
    "fastapi",
    "uvicorn",
    "python_multipart",
    "py3langid",
    "sacremoses",
    "onnxruntime",
    "PIL",
)
EXTRAS = dict.fromkeys(TRAIN_MODULES, "train") | dict.fromkeys(EDGE_MODULES, "edge")
"""The extra that brings a module which the base installation does not have."""


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"lockstep {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train translation models and image classifiers in parallel, and explain every run."""


def main() -> None:
    """Runs the command. A LockstepError becomes a sentence on stderr and an exit code."""
    try:
        app()
    except LockstepError as error:
        print_error(error)
        sys.exit(error.code)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in EXTRAS:
            raise
        print_error(missing("This command", name, EXTRAS[name]))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
