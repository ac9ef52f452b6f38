"""ARCHITECTURE.md is true, names are unique, and the words of the code are those of the field."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from test_imports import ALLOWED, PACKAGES

import lockstep

SOURCE = Path(lockstep.__file__).parent
ROOT = Path(__file__).parents[2]
MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
MODULES = sorted(SOURCE.rglob("*.py"))

OLD_CLASSES = {
    "Link",
    "Calm",
    "Rest",
    "Ahead",
    "Local",
    "Part",
    "Peers",
    "Company",
    "Apart",
    "Together",
    "Hollow",
    "Desk",
    "DeskEnd",
    "Wire",
    "Saved",
    "Holder",
    "Ledger",
    "Member",
    "Meeting",
    "Members",
    "Unit",
    "Tables",
    "Saving",
    "Talk",
    "Show",
    "Board",
}
OLD_MODULES = {
    "chatter",
    "parent",
    "counterfactual",
    "rundir",
    "saved",
    "records",
    "company",
    "ahead",
    "peers",
    "apart",
    "holder",
    "hollow",
    "part",
    "units",
    "link",
    "ledger",
    "joined",
    "groups",
    "member",
    "together",
    "catalogs",
    "recipe",
    "pictures",
    "places",
    "uncompiled",
    "adamw",
    "sgd",
    "claims",
    "agreement",
    "spans",
}
OLD_FUNCTIONS = {
    "left_out",
    "quiesce",
    "leave_after",
    "signed",
    "listed",
    "chosen",
    "understood",
    "settled",
    "party",
    "free_port_or",
    "product_peak",
}
UNCLEAR_NAMES = {"told", "held", "said", "found", "whole", "kept"}


def section(title: str) -> str:
    """Returns the text of a section of ARCHITECTURE.md."""
    return MAP.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def first_cells(title: str) -> list[list[str]]:
    """Returns the cells of the rows of a section's table, without its head."""
    rows = [line.strip("|").split("|") for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def identifiers(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


@cache
def defined(kind: type[ast.ClassDef] | type[ast.FunctionDef]) -> tuple[tuple[str, Path], ...]:
    nodes = ((node, path) for path in MODULES for node in ast.walk(tree(path)))
    return tuple((node.name, path) for node, path in nodes if isinstance(node, kind))


def test_every_path_of_the_map_exists() -> None:
    paths = set(re.findall(r"`((?:[a-z_]+/)+[\w.-]*\.?\w*)`", MAP))
    assert len(paths) > 40
    missing = [path for path in paths if not ((ROOT / path).exists() or (SOURCE / path).exists())]
    assert missing == []


def test_the_arrows_of_the_map_are_those_that_the_tests_keep() -> None:
    rows = {room.strip("`"): imports for room, _, imports in first_cells("Rooms")}
    assert set(rows) == set(PACKAGES)
    for room, imports in rows.items():
        names = set() if imports == "-" else set(PACKAGES) if imports == "all" else set(imports.split(", "))
        assert names == ALLOWED[room], room


def test_the_glossary_is_short_and_its_words_are_used() -> None:
    words = [word for word, _ in first_cells("Glossary")]
    assert len(words) == len(set(words)) <= 25
    text = "\n".join(path.read_text(encoding="utf-8") for path in MODULES)
    assert [word for word in words if not re.search(rf"\b{word}\b", text)] == []


@pytest.mark.parametrize(("title", "most"), [("All-reduce", 5), ("Parameter server", 8)])
def test_a_gradient_crosses_few_files(title: str, most: int) -> None:
    steps = (
        section("Follow one gradient").partition(f"\n{title}, {most} files:\n\n")[2].partition("\n\n")[0].splitlines()
    )
    assert 0 < len(steps) <= most
    for step in steps:
        assert re.match(r"\d\. `[\w/]+\.py`", step)


def test_no_class_or_module_name_exists_twice() -> None:
    classes = Counter(name for name, _ in defined(ast.ClassDef))
    modules = Counter(path.parent.name if path.stem == "__init__" else path.stem for path in MODULES)
    assert [name for name, count in (classes + modules).items() if count > 1] == []


def test_old_names_are_gone() -> None:
    assert {name for name, _ in defined(ast.ClassDef)} & OLD_CLASSES == set()
    assert {path.stem for path in MODULES} & OLD_MODULES == set()
    assert {name for name, _ in defined(ast.FunctionDef)} & OLD_FUNCTIONS == set()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_variables_say_what_they_are(path: Path) -> None:
    assert UNCLEAR_NAMES.intersection(identifiers(path)) == set()


def test_the_loop_can_be_read_in_one_sitting() -> None:
    assert len((SOURCE / "train" / "loop.py").read_text(encoding="utf-8").splitlines()) < 300


def test_functions_outside_the_commands_are_short() -> None:
    nodes = ((node, path) for path in MODULES for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef))
    long = [
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"
        for node, path in nodes
        if (node.end_lineno or 0) - node.lineno >= 60 and path.parent.name != "cli"
    ]
    assert long == []


def test_environment_variables_are_read_in_one_module() -> None:
    """Others may pass their environment on to processes that they start, or set variables."""
    readers = [
        str(path.relative_to(SOURCE))
        for path in MODULES
        if re.search(r"environ\.get\(|environ\[[^]]*\](?! =)|in os\.environ|getenv", path.read_text(encoding="utf-8"))
    ]
    assert sorted(readers) == ["run/environment_variables.py"]
