"""Progress of a run: a progress bar on a terminal, or a line every few seconds in a log file."""

import time
from pathlib import Path
from typing import TextIO

from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from lockstep.notices import terminal
from lockstep.safe_console import SafeConsole
from lockstep.terminal_text import strip_controls
from lockstep.watch.eta import Eta

LINE_EVERY_SECONDS = 15.0


class ConsoleProgress:
    """Shows the progress of a run on the terminal and in `console.log`."""

    def __init__(self, log: Path, eta: Eta, start: int, unit: str = "words") -> None:
        self._log: TextIO = log.open("a", encoding="utf-8")
        self._console = SafeConsole(file=terminal())  # stdout is for results
        self._eta, self._reached, self._unit = eta, start, unit
        self._rate = 0.0  # units per second, smoothed
        self._last_line = time.monotonic()
        self._bar: Progress | None = None
        self._task = TaskID(0)
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("step {task.completed:,}/{task.total:,}"),
                BarColumn(bar_width=24),
                TextColumn("{task.description}", markup=False),
                console=self._console,
                refresh_per_second=4,
            )
            self._task = self._bar.add_task("starting", total=eta.steps, completed=start)
            self._bar.start()

    def step(self, step: int, loss: float | None, units_per_second: float, seconds: float) -> None:
        """Updates the progress after a step. It is cheap: another thread redraws the terminal."""
        self._eta.step(step, seconds)
        self._rate = units_per_second if not self._rate else 0.95 * self._rate + 0.05 * units_per_second
        self._reached = step
        if self._bar is None and not self._is_line_due():
            return
        loss_text = "loss   -  " if loss is None else f"loss {loss:.3f}"
        text = f"{loss_text}  {self._rate:,.0f} {self._unit}/s  ETA {self._eta.describe()}"
        if self._bar is not None:
            self._bar.update(self._task, completed=step, description=text)
        self._print_if_due(text)

    def _is_line_due(self) -> bool:
        return time.monotonic() - self._last_line > LINE_EVERY_SECONDS

    def _print_if_due(self, text: str) -> None:
        """Writes a line to the log every few seconds, and to the terminal if there is no bar."""
        if not self._is_line_due():
            return
        self._last_line = time.monotonic()
        line = f"step {self._reached:,}/{self._eta.steps:,}  {text}"
        if self._bar is None:
            self._console.print(line, highlight=False)
        self._write(line)

    def evaluating(self, done: int, total: int, unit: str) -> None:
        """Updates the progress during an evaluation."""
        text = f"evaluating {done:,}/{total:,} {unit}"
        if self._bar is not None:
            self._bar.update(self._task, description=text)
        self._print_if_due(text)

    def expect_longer_evaluations(self, seconds: float) -> None:
        """Says how much longer than the one that has just ended later evaluations will take."""
        self._eta.growth_seconds = seconds

    def print_line(self, message: str, style: str = "") -> None:
        """Prints a line above the progress bar."""
        self._console.print(Text(message, style=style))
        self._write(strip_controls(message))

    def _write(self, line: str) -> None:
        self._log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")
        self._log.flush()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._log.close()
