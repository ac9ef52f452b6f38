"""`lockstep config`: the settings of a config file, and the meaning of every setting."""

from typing import Annotated

import typer

app = typer.Typer(help="Show the settings of a config, or explain settings.", no_args_is_help=True)


@app.command()
def show(
    config: Annotated[list[str], typer.Argument(help="A config file, then settings to change, as `train.steps=2000`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of YAML.")] = False,
) -> None:
    """Print all settings of a config, with the defaults of those that it leaves out."""
    from lockstep.cli.common import print_json, read_config

    settings = read_config(config)
    if as_json:
        print_json(settings.model_dump(mode="json"))
    else:
        print(settings.to_yaml(), end="")


@app.command()
def schema() -> None:
    """Print the JSON schema of config files, with which editors complete and check YAML."""
    from lockstep.cli.common import print_json
    from lockstep.config import RunConfig

    print_json(RunConfig.model_json_schema())


@app.command()
def explain(
    key: Annotated[
        str | None,
        typer.Argument(help="A setting such as batch.words, or a group such as batch. Default: all settings."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain a setting, a group of settings, or all: meaning, type and default."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from lockstep.cli.common import print_json
    from lockstep.config import as_yaml, describe

    settings = describe(key)
    if as_json:
        print_json(settings)
        return
    if len(settings) == 1:
        setting = settings[0]
        fixed = ". A resumed run cannot change it" if setting["fixed"] else ""
        print(f"{setting['key']}: {setting['text']}")
        print(f"  {setting['type']}; default: {as_yaml(setting['default'])}{fixed}")
        return
    table = Table(box=box.SIMPLE)
    for heading in ("setting", "type", "default", "meaning"):
        table.add_column(heading, no_wrap=heading == "setting")
    for setting in settings:
        table.add_row(setting["key"], setting["type"], as_yaml(setting["default"]), setting["text"])
    Console().print(table)
