"""Outside the commands, one module prints to stderr."""

import ast
from pathlib import Path

import pytest

import lockstep
from lockstep.errors import LockstepError
from lockstep.notices import print_error, warn

ROOT = Path(lockstep.__file__).parent
ELSEWHERE = {"cli"}


def prints_to_stderr(text: str) -> bool:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name, where = ast.unparse(node.func), {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if name == "print" and where.get("file", "").endswith(("stderr", "terminal()")):
            return True
        if name.endswith(("stderr.write", "stderr.writelines")):
            return True
    return False


def test_one_module_prints_to_stderr() -> None:
    modules = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in ELSEWHERE]
    printing = [path for path in modules if prints_to_stderr(path.read_text(encoding="utf-8"))]
    assert printing == [ROOT / "notices.py"]


@pytest.mark.parametrize("text", ["print(1, file=sys.stderr)", "print(1, file=terminal())", "sys.stderr.write('1')"])
def test_every_way_of_printing_is_seen(text: str) -> None:
    assert prints_to_stderr(text)
    assert not prints_to_stderr("print(1)\nsys.stderr.flush()")


def test_an_error_and_its_remedy_have_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(LockstepError("No room.", "Make some."))
    print_error(LockstepError("No luck."))
    warn("Some room is left.")
    assert capsys.readouterr().err == "Error: No room.\n       Make some.\nError: No luck.\nSome room is left.\n"
