"""`lockstep config`: the settings of a config file, and the meaning of every setting."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lockstep.config import SectionFacts, SettingFacts

app = typer.Typer(help="Show the settings of a config, or explain settings.", no_args_is_help=True)


@app.command()
def show(
    config: Annotated[list[str], typer.Argument(help="A config file, then settings to change, as `train.steps=2000`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of YAML.")] = False,
) -> None:
    """Print all settings of a config, with the defaults of those that it leaves out."""
    from lockstep.cli.common import print_json, print_text, read_config

    settings = read_config(config)
    if as_json:
        print_json(settings.model_dump(mode="json"))
    else:
        print_text(settings.to_yaml(), end="")


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
        typer.Argument(help="A section such as batch, or a setting such as batch.words. Default: the sections."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Explain all settings.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the sections of a config, or explain the settings of one: meaning, type and default."""
    from lockstep.cli.common import print_json
    from lockstep.config import describe, list_sections
    from lockstep.errors import LockstepError

    if key is not None and everything:
        raise LockstepError(f"--all explains all settings, not only {key}.", "Give either a name or --all.", code=2)
    if key is None and not everything:
        sections = list_sections()
        if as_json:
            print_json(sections)
        else:
            _print_sections(sections)
        return
    settings = describe(key)
    if as_json:
        print_json(settings)
        return
    for place, setting in enumerate(settings):
        if place:
            print()
        _print_setting(setting)


def _print_sections(sections: "list[SectionFacts]") -> None:
    from rich import box
    from rich.table import Table

    from lockstep.safe_console import SafeConsole

    table = Table(box=box.SIMPLE)
    table.add_column("section", no_wrap=True)
    table.add_column("settings", justify="right", no_wrap=True)
    table.add_column("what it sets")
    for section in sections:
        table.add_row(section["section"], str(section["settings"]), section["text"])
    console = SafeConsole(highlight=False)
    console.print(table)
    print("`lockstep config explain SECTION` explains its settings.")
    print("`lockstep config explain --all` explains all of them.")


def _print_setting(setting: "SettingFacts") -> None:
    """The name, type and default of a setting, and its meaning below. Lines end between words."""
    import textwrap

    from lockstep.config import as_yaml
    from lockstep.safe_console import SafeConsole

    wrapper = textwrap.TextWrapper(SafeConsole().width, break_on_hyphens=False, break_long_words=False)
    wrapper.initial_indent = wrapper.subsequent_indent = " " * 4
    fixed = ". A resumed run cannot change it" if setting["fixed"] else ""
    facts = f"{setting['type']}; default: {as_yaml(setting['default'])}{fixed}"
    print(setting["key"])
    print(wrapper.fill(setting["text"]))
    print(wrapper.fill(facts))
