"""Runs the application with uvicorn: address, connections and shutdown."""

import signal
import socket
from collections.abc import Callable
from ipaddress import ip_address
from types import FrameType

import uvicorn
from fastapi import FastAPI

from lockstep.errors import LockstepError
from lockstep.serve.limits import Limits
from lockstep.serve.timed_protocol import make_protocol

HEADERS = [("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer")]
SPARE_SECONDS = 5.0
"""What a shutdown waits longer than any request may take."""


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Returns the family and address of a host name, IPv4 if it has both."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise LockstepError(f"The host {host!r} has no address.", "Check --host.", code=2) from None
    family, _, _, _, address = min(addresses, key=lambda one: one[0] != socket.AF_INET)
    return family, (str(address[0]), port)


def is_loopback(host: str) -> bool:
    """Can only programs on this machine reach the host?"""
    return ip_address(resolve(host, 0)[1][0].partition("%")[0]).is_loopback


def bind(host: str, port: int) -> socket.socket:
    """Reserves an address. Nobody can connect until `run_server` listens there."""
    family, address = resolve(host, port)
    server = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio disables Nagle's algorithm for TCP
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind(address)
    except OSError as error:
        server.close()
        raise _describe_failure(host, port, error) from None
    return server


def _describe_failure(host: str, port: int, error: OSError) -> LockstepError:
    return LockstepError(
        f"Port {port} of {host} cannot be used: {error.strerror}.", "Choose another one with --port.", code=2
    )


def run_server(app: FastAPI, server: socket.socket, limits: Limits, announce: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM, then answers the requests that have begun. `announce` is called with the address when
    clients can connect."""
    config = uvicorn.Config(
        app,
        http=make_protocol(2 * limits.body_seconds),
        ws="none",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        headers=HEADERS,
        timeout_graceful_shutdown=int(limits.seconds + limits.body_seconds + SPARE_SECONDS),
    )
    _Server(config, announce).run(sockets=[server])


class _Server(uvicorn.Server):
    """Announces its address, and ends with exit code 0 after a signal."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[str], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None
        host, port = sockets[0].getsockname()[:2]
        try:
            await super().startup(sockets)
        except OSError as error:  # another program has begun to listen since `bind`
            raise _describe_failure(host, port, error) from None
        if self.started:
            self._announce(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second Ctrl-C ends the server at once."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
