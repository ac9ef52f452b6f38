"""What surrounds the application: the work of clients that are gone ends, and addresses are checked before the start."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from lockstep.errors import LockstepError
from lockstep.serve.api_keys import read_keys
from lockstep.serve.http_server import bind, is_loopback, run_server
from lockstep.serve.limits import Limits
from lockstep.serve.request_guard import RequestGuard

SCOPE: Scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
BODY: Message = {"type": "http.request", "body": b"text", "more_body": False}


def call(guard: RequestGuard, *messages: Message) -> list[Message]:
    """Calls the guard with these messages of a client, who is silent afterwards. Returns what it sends."""
    waiting, sent = list(messages), list[Message]()

    async def receive() -> Message:
        return waiting.pop(0) if waiting else await asyncio.Future()

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(guard(SCOPE, receive, send))
    return sent


def test_work_is_cancelled_when_the_client_goes_away() -> None:
    events = []

    async def work_forever(scope: Scope, receive: Receive, send: Send) -> None:
        events.append((await receive())["body"])
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    sent = call(RequestGuard(work_forever, Limits()), BODY, {"type": "http.disconnect"})
    assert (events, sent) == ([b"text", "cancelled"], [])


def test_nothing_begins_when_the_client_is_gone_before_the_end_of_the_body() -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        pytest.fail("the application was called")

    part: Message = {"type": "http.request", "body": b"te", "more_body": True}
    assert call(RequestGuard(fail, Limits()), part, {"type": "http.disconnect"}) == []


def test_a_body_that_stops_is_answered_with_408() -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        pytest.fail("the application was called")

    part: Message = {"type": "http.request", "body": b"te", "more_body": True}
    start, _ = call(RequestGuard(fail, Limits(body_seconds=0.05)), part)
    assert start["status"] == 408


def test_an_error_of_the_application_is_passed_on() -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        call(RequestGuard(fail, Limits()), BODY)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("localhost", True), ("127.1.2.3", True), ("::1", True), ("0.0.0.0", False)],
)
def test_loopback_is_recognized(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_taken_port_is_refused() -> None:
    with bind("127.0.0.1", 0) as first:
        first.listen()
        with pytest.raises(LockstepError, match="Address already in use"):
            bind("127.0.0.1", first.getsockname()[1])
        assert first.proto == socket.IPPROTO_TCP


def test_a_port_that_is_taken_before_the_server_listens_is_refused() -> None:
    with bind("127.0.0.1", 0) as first, bind("127.0.0.1", first.getsockname()[1]) as second:
        first.listen()
        with pytest.raises(LockstepError, match="Address already in use"):
            run_server(FastAPI(), second, Limits(), lambda address: pytest.fail(address))


def test_keys_are_read_from_lines(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# comment\n\n  one \ntwo\n")
    keys = read_keys(path)
    keys.check("one", None)
    keys.check(None, "Bearer two")
    path.write_bytes(b"\xff")
    with pytest.raises(LockstepError, match="is not UTF-8 text"):
        read_keys(path)


def test_the_server_does_not_import_torch() -> None:
    program = "import sys, lockstep.serve.app, lockstep.serve.http_server\nprint('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
