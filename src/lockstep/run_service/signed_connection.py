"""A connection between the service of a run folder and a process of the same job.

Both ends prove that they know the key of the job before either believes anything else. Then they exchange frames: a header
in JSON, and bytes. Every header is signed with a key of this connection and its place in the sequence, so that it can be
neither forged nor repeated. The bytes are not: whoever sends a file says its digest in a header. Every length is checked
before memory is taken for it.
"""

import hashlib
import hmac
import json
import secrets
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

GREETING = b"lockstep run 1\n\0"
NONCE_BYTES = DIGEST_BYTES = 32
HANDSHAKE_SECONDS = 5.0
MOST_HEADER_BYTES = 2**20
MOST_BODY_BYTES = 2**22
_HEAD = struct.Struct(f"<I{DIGEST_BYTES}s")


class Refused(ConnectionError):
    """The other end does not know the key of this job, or does not follow the protocol."""


class SignedConnection:
    """One end, after both have proved who they are."""

    def __init__(self, end: socket.socket, key: bytes, sends_as: str, hears_as: str) -> None:
        self._socket, self._key = end, key
        self._sends_as, self._hears_as = sends_as, hears_as
        self._sent = self._received = 0

    def send(self, header: Mapping[str, Any], body: bytes | memoryview = b"") -> None:
        text = json.dumps({**header, "body": len(body)}, separators=(",", ":")).encode()
        self._socket.sendall(_HEAD.pack(len(text), self._sign(self._sends_as, self._sent, text)) + text)
        self._sent += 1
        if body:
            self._socket.sendall(body)

    def receive(self) -> tuple[dict[str, Any], memoryview]:
        """Returns the next frame. Raises Refused, or OSError when the connection is lost."""
        length, signature = _HEAD.unpack(read_exactly(self._socket, _HEAD.size))
        if not 0 < length <= MOST_HEADER_BYTES:
            raise Refused(f"a header of {length:,} bytes was announced")
        text = read_exactly(self._socket, length)
        if not hmac.compare_digest(signature, self._sign(self._hears_as, self._received, text)):
            raise Refused("a header has no valid signature")
        self._received += 1
        try:
            header = json.loads(bytes(text))
            size = header["body"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Refused("a header is not well-formed") from None
        if type(size) is not int or not 0 <= size <= MOST_BODY_BYTES:
            raise Refused(f"{size!r:.40} bytes were announced")
        return header, read_exactly(self._socket, size)

    def _sign(self, sender: str, number: int, text: bytes | memoryview) -> bytes:
        return _digest(self._key, sender, number.to_bytes(8, "little"), text)

    def set_timeout(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    def close(self) -> None:
        self._socket.close()


def accept(end: socket.socket, key: bytes) -> SignedConnection:
    """The handshake of the service, which must be over within HANDSHAKE_SECONDS. Raises OSError."""
    own = secrets.token_bytes(NONCE_BYTES)
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    end.settimeout(HANDSHAKE_SECONDS)
    end.sendall(GREETING + own)
    answer = bytes(read_exactly(end, NONCE_BYTES + DIGEST_BYTES, deadline))
    nonces = own + answer[:NONCE_BYTES]
    if not hmac.compare_digest(answer[NONCE_BYTES:], _digest(key, "client", nonces)):
        raise Refused("the client does not know the key of this job")
    end.sendall(_digest(key, "service", nonces))
    return SignedConnection(end, _digest(key, "connection", nonces), "service", "client")


def greet(end: socket.socket, key: bytes) -> SignedConnection:
    """The handshake of a client. Raises OSError."""
    greeting = bytes(read_exactly(end, len(GREETING) + NONCE_BYTES))
    if not greeting.startswith(GREETING):
        raise Refused("another program answers there")
    own = secrets.token_bytes(NONCE_BYTES)
    nonces = greeting[len(GREETING) :] + own
    end.sendall(own + _digest(key, "client", nonces))
    proof = bytes(read_exactly(end, DIGEST_BYTES))
    if not hmac.compare_digest(proof, _digest(key, "service", nonces)):
        raise Refused("it does not know the key of this job")
    return SignedConnection(end, _digest(key, "connection", nonces), "client", "service")


def read_exactly(end: socket.socket, size: int, deadline: float | None = None) -> memoryview:
    """Reads so many bytes, before a deadline of the monotonic clock if there is one."""
    content = memoryview(bytearray(size))
    done = 0
    while done < size:
        if deadline is not None:
            end.settimeout(max(0.01, deadline - time.monotonic()))
            if time.monotonic() > deadline:
                raise TimeoutError("the other end did not answer in time")
        count = end.recv_into(content[done:])
        if count == 0:
            raise ConnectionResetError("the connection was closed")
        done += count
    return content


def _digest(key: bytes, purpose: str, *parts: bytes | memoryview) -> bytes:
    made = hmac.new(key, purpose.encode() + b"\0", hashlib.sha256)
    for part in parts:
        made.update(part)
    return made.digest()
