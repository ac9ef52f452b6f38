"""What the name of a text file says: its language, and whether it is for training, validation or test."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from lockstep.data.text.compressed import strip_compression
from lockstep.data.text.languages import find_code

SetName = Literal["train", "validation", "test"]
_VALIDATION = re.compile(r"(valid|validation|val|dev|devel|newsdev)\d*")
_TEST = re.compile(r"(test|tst|newstest|devtest|testset)\d*")


def split_language(path: Path) -> tuple[str, str | None]:
    """The path without the language in its name, and that language: (`news.`, `en`) for news.en."""
    parts, place, code = _find_language(path)
    if code is None:
        return str(path), None
    return str(path.with_name("".join([*parts[:place], *parts[place + 1 :]]) or "*")), code


def replace_language(path: Path, code: str) -> str:
    """The name of the file in another language, without compression."""
    parts, place, _ = _find_language(path)
    return "".join([*parts[:place], code, *parts[place + 1 :]])


def _find_language(path: Path) -> tuple[list[str], int, str | None]:
    """The parts of a file name, and which of them is a language."""
    parts = re.split(r"([._-])", strip_compression(path.name))
    for place in reversed(range(0, len(parts), 2)):
        if (code := find_code(parts[place])) is not None:
            return parts, place, code
    return parts, 0, None


def find_roles(paths: Sequence[Path]) -> list[SetName]:
    """What each text is for, from its name."""
    roles: list[SetName] = [_find_role(path) for path in paths]
    news = sorted(
        path.name for path, role in zip(paths, roles, strict=True) if role == "test" and "newstest" in path.name
    )
    if "validation" not in roles and len(news) > 1:  # as is usual, the earlier news is for validation
        roles = ["validation" if path.name == news[0] else role for path, role in zip(paths, roles, strict=True)]
    return roles


def _find_role(path: Path) -> SetName:
    for word in re.split(r"[^a-z0-9]+", path.name.lower()):
        if _TEST.fullmatch(word):
            return "test"
        if _VALIDATION.fullmatch(word):
            return "validation"
    return "train"
