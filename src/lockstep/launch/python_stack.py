"""Where the Python code of another process is, without its help: py-spy reads its memory."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

SECONDS = 5.0


@dataclass(frozen=True)
class PythonStack:
    """Lines are like `forward (transformer.py:120)`; empty where they are not known."""

    line: str = ""  # the innermost one of the main thread
    holder: str = ""  # the innermost one of the thread that holds the interpreter (GIL)
    holder_name: str = ""  # of that thread; empty if it is the main thread
    is_forbidden: bool = False  # the system does not let this process look (ptrace)


class _Frame(TypedDict):
    name: str
    short_filename: str | None
    filename: str
    line: int


class _Thread(TypedDict):
    pid: int
    os_thread_id: int
    thread_name: str | None
    owns_gil: bool
    frames: list[_Frame]


def read_stack(pid: int) -> PythonStack:
    """Looks at a process with py-spy, where it is installed. The process does not stop meanwhile."""
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if program is None:
        return PythonStack()
    command = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return PythonStack()
    if "ermission" in result.stderr or "not permitted" in result.stderr:
        return PythonStack(is_forbidden=True)
    return parse_stack(result.stdout)


def parse_stack(text: str) -> PythonStack:
    """Reads the output of `py-spy dump --json`."""
    try:
        threads: list[_Thread] = json.loads(text)
        main = next((thread for thread in threads if thread["os_thread_id"] == thread["pid"]), None)
        holder = next((thread for thread in threads if thread["owns_gil"]), None)
        name = "" if holder is None or holder is main else holder["thread_name"] or "without a name"
        return PythonStack(_name_innermost(main), _name_innermost(holder), name)
    except (ValueError, KeyError, TypeError):
        return PythonStack()


def _name_innermost(thread: _Thread | None) -> str:
    if thread is None or not thread["frames"]:
        return ""
    frame = thread["frames"][0]
    file = Path(frame["short_filename"] or frame["filename"]).name
    return f"{frame['name'].rpartition('.')[2]} ({file}:{frame['line']})"
