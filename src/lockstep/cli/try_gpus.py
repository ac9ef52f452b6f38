"""The part of `lockstep doctor` that tries the GPUs of this machine."""

from pathlib import Path
from typing import Literal

import typer

STYLES = {True: "green", False: "bold red", None: "dim"}


def check_gpus(device: Literal["cuda", "cpu"], out: str, as_json: bool) -> None:
    """Runs the check and writes its page and its JSON into the folder `out`. The exit code is 1 if something failed."""
    import tempfile

    from lockstep.lab.gpu_check.check_gpus import run_check, write_result
    from lockstep.safe_console import SafeConsole

    folder, console = Path(out).expanduser(), SafeConsole(highlight=False)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lockstep-gpu-check-") as name:
        check = run_check(device, Path(name), lambda *result: None if as_json else _print(console, *result))
    page, facts = write_result(check, folder)
    if as_json:
        print(check.as_json())
    else:
        console.print(f"\n{check.sentence} {page} and {facts} say more.", soft_wrap=True)
    if not check.is_good:
        raise typer.Exit(1)


def _print(console: object, name: str, is_good: bool | None, text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    assert isinstance(console, Console)
    verdict = {True: "pass", False: "fail", None: "skip"}[is_good]
    console.print(Text.assemble((f"{verdict:<5}", STYLES[is_good]), f"{name}: {text}"), soft_wrap=True)
