"""Signals that stop a run."""

import signal
from types import FrameType


class StopSignal:
    """Notes SIGTERM, SIGINT and SIGHUP (unless nohup ignores it), so that all workers stop at the next step boundary."""

    def __init__(self) -> None:
        self.name: str | None = None
        handled = [n for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._note) for number in handled}

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name
