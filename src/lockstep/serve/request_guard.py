"""ASGI middleware around the application: reads requests within limits, and ends work that nobody waits for."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockstep.serve.api_error import ApiError
from lockstep.serve.limits import Limits

CLOSE = {"Connection": "close"}


class RequestGuard:
    """Passes a request on when its body has arrived completely. Cancels it when the client goes away, or when the answer
    takes too long."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read_body(scope, receive)
            if body is not None:
                await self._answer(scope, body, receive, send)
        except ApiError as error:
            await error.to_response()(scope, receive, send)

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Returns the body, or None if the client is gone. Of a body that is too large nothing is kept, but the rest is
        read: many clients look for an answer only when they have sent everything."""
        seconds, most = self._limits.body_seconds, self._limits.body_bytes
        headers = dict(scope["headers"])
        too_large = ApiError(413, f"The body has more than {most:,} bytes.", CLOSE)
        is_too_large = int(headers.get(b"content-length", 0)) > most
        if is_too_large and b"expect" in headers:
            raise too_large
        body, has_more = bytearray(), True
        try:
            async with asyncio.timeout(seconds):
                while has_more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    has_more = message.get("more_body", False)
                    is_too_large = is_too_large or len(body) > most
                    if is_too_large:
                        body.clear()
        except TimeoutError:
            if not is_too_large:
                raise ApiError(408, f"The body did not arrive within {seconds:g} seconds.", CLOSE) from None
        if is_too_large:
            raise too_large
        return bytes(body)

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Runs the application until it has answered, the client is gone or the time is over."""
        is_answered = False
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await asyncio.shield(gone)

        async def pass_on(message: Message) -> None:
            nonlocal is_answered
            is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        gone = asyncio.ensure_future(receive())
        work = asyncio.ensure_future(self._app(scope, replay, pass_on))
        try:
            await asyncio.wait({gone, work}, timeout=self._limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if work.done() or is_answered:
                await work
                return
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
            if not gone.done():
                raise ApiError(504, f"The translation was not done within {self._limits.seconds:g} seconds.")
        finally:
            gone.cancel()
            work.cancel()


class AccessLog:
    """Writes a line for every request: method, path, status and milliseconds. No query, text or key appears in it."""

    def __init__(self, app: ASGIApp, write: Callable[[str], None]) -> None:
        self._app, self._write = app, write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 0

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        finally:
            path = scope.get("raw_path", b"").decode("ascii", "replace")
            shown = status or "closed"
            self._write(f"{scope['method']} {path} {shown} {1000 * (time.perf_counter() - begin):.1f} ms")
