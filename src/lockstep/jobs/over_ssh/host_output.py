"""What the hosts print, on one terminal and in one file: every line begins with the name of its host."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self, TextIO

from lockstep.notices import warn
from lockstep.terminal_text import strip_controls

TORCH_LINE = re.compile(r"\[?[IWE]\d{4} \d\d:\d\d:\d\d")
"""How torch's own log begins a line. It goes to the file only, as does what belongs to it."""
TRACE = "Traceback (most recent call last):"
"""Follows such a line when torchrun ends. One that follows another line is of Lockstep, and is shown."""
RULE = "=" * 20
"""Begins the lines before and after torchrun's summary of failures."""


class HostOutput:
    """Writes lines to the file and, while there is one, to the terminal."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path = path
        self._file = path.open("a", encoding="utf-8", errors="replace", buffering=1)
        path.chmod(0o600)
        self._width = max(map(len, names))
        self._is_quiet = dict.fromkeys(names, False)  # in the middle of torch's own lines
        self._is_summary = dict.fromkeys(names, False)  # in the middle of torchrun's summary
        self._has_terminal = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, host: str, text: str, stream: str = "stderr") -> None:
        """Writes a line of a host."""
        line = f"{host:<{self._width}} | {strip_controls(text)}"
        self._file.write(f"{line}\n")
        if not self._belongs_to_torch(host, text):
            self._show(line, sys.stdout if stream == "stdout" else None)

    def say(self, sentence: str) -> None:
        """Writes a sentence of this command."""
        self._file.write(f"{strip_controls(sentence)}\n")
        self._show(sentence, None)

    def _belongs_to_torch(self, host: str, text: str) -> bool:
        if text.startswith(RULE):
            self._is_summary[host] = not self._is_summary[host]
            return True
        continues = (
            not text or text.startswith((" ", TRACE)) or text.partition(" ")[0].endswith(("Error:", "Exception:"))
        )
        self._is_quiet[host] = bool(TORCH_LINE.match(text)) or (self._is_quiet[host] and continues)
        return self._is_quiet[host] or self._is_summary[host]

    def _show(self, line: str, stream: TextIO | None) -> None:
        """Prints a line, as long as somebody is there to read it."""
        if not self._has_terminal:
            return
        try:
            if stream is None:
                warn(line)
            else:
                print(line, file=stream, flush=True)
        except OSError:  # the terminal is gone: the launch ends in order, without it
            self._has_terminal = False
