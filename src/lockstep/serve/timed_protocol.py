"""Connections on which a request must arrive in time."""

import asyncio
import json
from collections.abc import Callable

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

LINGER_SECONDS = 2.0
"""How long a refused connection is read before it is closed."""


class TimedProtocol(H11Protocol):
    """Closes connections that are slow to send a request, and answers broken ones in JSON."""

    request_seconds = 20.0
    """Time for a request to arrive completely, from its first byte or the beginning of the connection."""
    deadline: asyncio.TimerHandle | None = None
    is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline(self.request_seconds, self._end)

    def data_received(self, data: bytes) -> None:
        if not self.is_refused:
            super().data_received(data)
        if self.is_refused:
            return
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._clear_deadline()
        elif self.deadline is None:
            self._set_deadline(self.request_seconds, self._end)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "The request is not valid HTTP.")

    def _set_deadline(self, seconds: float, action: Callable[[], None]) -> None:
        self._clear_deadline()
        self.deadline = self.loop.call_later(seconds, action)

    def _clear_deadline(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def _end(self) -> None:
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(408, f"The request did not arrive within {self.request_seconds:g} seconds.")
        else:
            self.transport.close()

    def _refuse(self, status: int, sentence: str) -> None:
        """Answers, then reads on for a moment: closing with unread data would reset the connection, and the client might
        lose the answer."""
        self.is_refused = True
        body = json.dumps({"error": sentence}).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Connection", "close")]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status]),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.write_eof()
        self._set_deadline(LINGER_SECONDS, self.transport.close)


def make_protocol(request_seconds: float) -> type[TimedProtocol]:
    """Returns the class for connections with this time for a request. uvicorn makes the objects, so it is no argument."""
    return type("TimedConnection", (TimedProtocol,), {"request_seconds": request_seconds})
