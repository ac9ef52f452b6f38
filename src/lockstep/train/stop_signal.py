"""Being told to stop."""

import signal
from types import FrameType


class StopSignal:
    """Remembers SIGTERM, SIGINT and SIGHUP (unless nohup hides it), so that the loop can stop at the next step
    boundary, together with the others."""

    def __init__(self) -> None:
        self.name: str | None = None
        heard = [n for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._remember) for number in heard}

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name
