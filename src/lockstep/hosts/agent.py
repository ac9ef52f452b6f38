"""The end of a channel on a host: `python -m lockstep.hosts.agent`.

Requests come on stdin and answers go to stdout, one JSON object per line; each request runs in a thread of its own. The
agent ends, with everything it has started, when stdin ends: then the command is gone, or the connection to it. A cable that
is cut ends nothing, so a command that starts programs also tells the agent how long it may hear nothing.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TextIO

from pydantic import JsonValue

from lockstep import __version__
from lockstep.errors import LockstepError
from lockstep.hosts.agent_actions import ACTIONS
from lockstep.hosts.agent_programs import Programs
from lockstep.hosts.process_tree import adopt_orphans
from lockstep.process import describe_exception

HELLO = "lockstep agent"
Action = Callable[..., object]
"""Returns what JSON can say."""


class Agent:
    """Answers requests until the channel ends."""

    def __init__(self, answers: TextIO, actions: Mapping[str, Action]) -> None:
        self._programs = programs = Programs(self.send)
        own: dict[str, Action] = {
            "start": programs.start,
            "signal": programs.signal,
            "end children": programs.end_children,
            "end after": self.end_after,
        }
        self._answers, self._actions, self._lock = answers, dict(actions) | own, threading.Lock()
        self._heard_at, self._is_limited = time.monotonic(), False

    def send(self, facts: Mapping[str, object]) -> None:
        with self._lock:
            print(json.dumps(facts), file=self._answers, flush=True)

    def answer(self, request: Mapping[str, JsonValue]) -> None:
        """Carries a request out, and says what became of it."""
        number, name, arguments = request["id"], request["do"], request["with"]
        try:
            assert isinstance(name, str)
            assert isinstance(arguments, dict)
            self.send({"id": number, "result": self._actions[name](**arguments)})
        except LockstepError as error:
            self.send({"id": number, "error": error.message, "remedy": error.remedy})
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            self.send({"id": number, "error": f"{where}{error.strerror or error}", "remedy": ""})
        except Exception as error:
            self.send({"id": number, "error": describe_exception(error), "remedy": ""})

    def end_after(self, silence: float) -> JsonValue:
        """Ends the agent when no request has arrived for this many seconds."""

        def watch() -> None:
            while time.monotonic() - self._heard_at < silence:
                time.sleep(silence / 20)
            self.end()

        if not self._is_limited:
            self._is_limited = True
            threading.Thread(target=watch, daemon=True).start()
        return None

    def end(self) -> None:
        """Ends this process with all that it has started."""
        try:
            self._programs.end()
        finally:
            os.killpg(0, signal.SIGKILL)

    def run(self, requests: TextIO) -> None:
        """Answers requests until they end."""
        self.send({"hello": HELLO, "version": __version__, "host": socket.gethostname()})
        for line in requests:
            self._heard_at = time.monotonic()
            threading.Thread(target=self.answer, args=(json.loads(line),), daemon=True).start()


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not come between the answers
    with suppress(OSError):  # it leads one already
        os.setpgid(0, 0)
    adopt_orphans()
    agent = Agent(answers, ACTIONS)
    try:
        agent.run(sys.stdin)
    finally:
        agent.end()


if __name__ == "__main__":
    main()
