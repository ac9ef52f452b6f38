"""The arrows between packages go one way, and the command starts fast."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lockstep

ROOT = Path(lockstep.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
ALLOWED: dict[str, set[str]] = {
    "run": set(),
    "remote": {"run"},
    "run_service": {"run"},
    "demo_corpus": set(),
    "data": {"run", "remote", "demo_corpus"},
    "models": set(),
    "parallel": {"run"},
    "watch": {"run"},
    "launch": {"run"},
    "hosts": {"launch", "remote", "run"},
    "doctor": {"hosts"},
    "jobs": {"doctor", "explain", "hosts", "lab", "launch", "remote", "run"},
    "translate": {"models", "data", "remote", "run"},
    "serve": {"translate", "data", "run"},
    "tasks": {"data", "models", "translate", "run"},
    "train": {"tasks", "models", "parallel", "watch", "remote", "run_service", "run"},
    "explain": {"watch", "run"},
    "lab": {"launch", "explain", "watch", "run", "tasks", "models"},
    "examples": {"lab", "explain"},
    "config": {"data", "models", "parallel", "train", "translate", "watch", "run"},
    "cli": set(PACKAGES),
}
CONFIG_READERS = {"train", "cli", "lab", "config"}
"""The config imports the settings of every package, so a module that imports it depends on all of them."""
TOP_LEVEL: dict[str, set[str]] = {
    "__main__.py": {"cli"},
    "api.py": {"data", "remote", "translate"},
    "api_images.py": {"data", "remote", "tasks", "translate"},
    "api_info.py": {"data", "translate"},
    "api_places.py": {"remote"},
    "api_report.py": {"explain", "remote"},
    "api_runs.py": {"cli", "explain", "remote"},
}
"""Packages that modules beside the packages may import, besides `run`."""


def dotted(path: Path) -> str:
    parts = ["lockstep", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, text: str | None = None) -> Iterator[str]:
    """The dotted names that a module imports from lockstep, at any depth, also for type checking only."""
    package = dotted(path) if path.name == "__init__.py" else dotted(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8") if text is None else text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "lockstep")


def targets(path: Path, text: str | None = None) -> set[str]:
    """The packages and top-level modules that a module imports."""
    return {name.split(".")[1] for name in imports(path, text) if "." in name}


def owner(path: Path) -> str | None:
    """The package that a module belongs to; None for one beside the packages."""
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else None


def test_every_package_has_its_arrows_written_down() -> None:
    assert set(PACKAGES) <= set(ALLOWED)


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_module_imports_only_what_its_package_may(path: Path) -> None:
    package = owner(path)
    allowed = TOP_LEVEL.get(path.name, set()) | {"run"} if package is None else ALLOWED[package] | {package}
    assert (targets(path) & set(PACKAGES)) - allowed - {"config"} == set()


def test_only_train_cli_and_lab_read_the_whole_config() -> None:
    readers = {owner(path) or path.name for path in MODULES if "config" in targets(path)}
    assert readers <= CONFIG_READERS


def test_config_reads_settings_only() -> None:
    names = {name for path in (ROOT / "config").glob("*.py") for name in imports(path)}
    inside = {tuple(name.split(".")[1:3]) for name in names if name.split(".")[1] in PACKAGES}
    assert all(module.endswith("_settings") for package, module in inside if package not in ("run", "config"))


@pytest.mark.parametrize("path", [path for path in MODULES if path.name.endswith("settings.py")], ids=dotted)
def test_settings_import_only_the_base_of_settings(path: Path) -> None:
    assert targets(path) <= {"settings"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from lockstep import faults", {"faults"}),
        ("import lockstep.train.loop", {"train"}),
        ("from ..train import loop", {"train"}),
        ("from .. import team", {"team"}),
        ("from . import clean", {"data"}),
        ("from .clean import clean", {"data"}),
        ("def f():\n    from lockstep.cli.main import main", {"cli"}),
        ("import os, torch", set()),
    ],
)
def test_every_way_of_importing_is_seen(text: str, expected: set[str]) -> None:
    assert targets(ROOT / "data" / "data_settings.py", text) == expected


def test_the_command_starts_without_heavy_imports() -> None:
    heavy = ["torch", "numpy", "pydantic", "sentencepiece"]
    program = f"import sys, lockstep.cli.main\nprint([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
