"""Control characters in texts, names and journals reach neither the terminal nor report.md."""

import ast
import io
import json
from pathlib import Path

import pytest
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text

import lockstep as package
from conftest import lockstep
from lockstep.cli.common import print_json, print_text
from lockstep.errors import LockstepError
from lockstep.notices import print_error
from lockstep.safe_console import SafeConsole
from lockstep.terminal_text import CONTROLS, strip_controls
from madeup import MadeUp

HOSTILE = "a\x1b]0;title\x07\x1b[2J\x9b31m\r\x08\u202eb\u2066\ud800\x00"
STRIPPED = "a]0;title[2J31mb"


def test_only_what_a_terminal_obeys_is_removed() -> None:
    assert strip_controls(HOSTILE) == STRIPPED
    assert strip_controls("zwei\tWörter\n\u200fعربي 👩\u200d👧") == "zwei\tWörter\n\u200fعربي 👩\u200d👧"


def test_tables_texts_and_progress_bars_are_clean() -> None:
    file = io.StringIO()
    console = SafeConsole(file=file, force_terminal=True, color_system="truecolor", width=100)
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE, style="red")
    table.add_row(Text(HOSTILE, style="green"))
    console.print(table, HOSTILE, Text(HOSTILE))
    with Progress(console=console) as bar:
        bar.add_task(HOSTILE, total=1)
    shown = file.getvalue()
    assert shown.count(STRIPPED) >= 6
    assert "\x1b[31m" in shown
    assert not any(part in shown for part in ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\x08", "\u202e", "\ud800", "\x00"))


def test_brackets_and_colons_in_a_text_are_no_markup() -> None:
    text = "a[/]b [bold]c[/bold] [link=x]d :cat: \\["
    file = io.StringIO()
    console = SafeConsole(file=file, force_terminal=True, color_system=None, width=200)
    table = Table(text, title=text)
    table.add_row(text)
    console.print(table, text)
    with Progress(TextColumn("{task.description}", markup=False), console=console) as bar:
        bar.add_task(text, total=1)
    assert file.getvalue().count(text) >= 5


def test_no_progress_bar_reads_markup() -> None:
    for path in Path(package.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert 'TextColumn("{task.description}")' not in source, path
        assert "rich.markup" not in source, path


def test_sentences_and_errors_are_clean(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(LockstepError(f"No {HOSTILE}.", f"Give {HOSTILE}."))
    print_text(HOSTILE, "two")
    output = capsys.readouterr()
    assert output.err == f"Error: No {STRIPPED}.\n       Give {STRIPPED}.\n"
    assert output.out == f"{STRIPPED}\ntwo\n"


def test_json_keeps_every_character(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": HOSTILE + "ü"})
    shown = capsys.readouterr().out
    assert CONTROLS.search(shown) is None
    assert json.loads(shown) == {"text": HOSTILE + "ü"}


@pytest.fixture
def hostile_run(tmp_path: Path) -> Path:
    """A run in whose name, journal, hosts and settings are control characters and markup."""
    text = HOSTILE.replace("\0", "").replace("\ud800", "")
    run = MadeUp(tmp_path / f"run{text}[bold]", hosts=[text])
    text += "[/]"  # rich's mark for the end of a style that never began
    run.data(files=[{"set": "train", "path": text, "bytes": 5000, "sha256": "a" * 64}], languages=[text, "de"])
    run.config(data={"folder": text, "languages": [text, "de"]}, own={text: text})
    scores = {step: {"loss": 1.6, "sacrebleu": 25.0, text: 1.0} for step in (20, 40)}
    run.launch(range(1, 41), scores=scores, metric=text, unit=text, strategy=text, precision=text)
    for rank in range(2):
        run.write(rank, "evaluation", step=40, scores={"loss": 1.0}, seconds=1.0, examples=[[text, text, text]])
    return run.folder


@pytest.mark.parametrize("words", [("report",), ("runs", "list"), ("runs", "follow", "--once"), ("runs", "compare")])
def test_no_command_prints_what_a_run_contains(hostile_run: Path, words: tuple[str, ...]) -> None:
    MadeUp(hostile_run.parent / "other").launch(range(1, 41))
    places = {"list": [hostile_run.parent], "compare": [hostile_run.parent]}.get(words[-1], [hostile_run])
    result = lockstep(*words, *places, code=None)
    assert "Traceback" not in result.stderr
    assert CONTROLS.search(result.stdout + result.stderr) is None
    if words == ("report",):
        assert CONTROLS.search((hostile_run / "report.md").read_text(encoding="utf-8")) is None


def test_every_console_is_a_safe_one() -> None:
    root = Path(package.__file__).parent
    makers = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Console"
    }
    assert makers == set()
