"""`lockstep config`: what can be set, and what is set."""

from typing import Annotated

import typer

app = typer.Typer(help="Show, explain and describe settings.", no_args_is_help=True)


@app.command()
def show(
    config: Annotated[list[str], typer.Argument(help="A config file, then any `key=value` settings to change.")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON instead of YAML.")] = False,
) -> None:
    """Print the whole configuration of a run, defaults filled in."""
    from lockstep.cli.common import print_json, read_config

    settings = read_config(config)
    if as_json:
        print_json(settings.model_dump(mode="json"))
    else:
        print(settings.to_yaml(), end="")


@app.command()
def schema() -> None:
    """Print the JSON schema of a config file, for editors that complete and check YAML."""
    from lockstep.cli.common import print_json
    from lockstep.config import RunConfig

    print_json(RunConfig.model_json_schema())


@app.command()
def explain(
    key: Annotated[str | None, typer.Argument(help="A setting such as batch.words, or a group such as batch.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Say what a setting means, its type and its default; without KEY, all of them."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from lockstep.cli.common import print_json
    from lockstep.config import describe

    found = describe(key)
    if as_json:
        print_json(found)
        return
    if len(found) == 1:
        setting = found[0]
        kept = "; a resumed run keeps it" if setting["fixed"] else ""
        print(f"{setting['key']}: {setting['text']}\n  {setting['type']}, default {setting['default']}{kept}")
        return
    table = Table(box=box.SIMPLE)
    for heading in ("setting", "type", "default", "meaning"):
        table.add_column(heading, no_wrap=heading == "setting")
    for setting in found:
        table.add_row(setting["key"], setting["type"], str(setting["default"]), setting["text"])
    Console().print(table)
