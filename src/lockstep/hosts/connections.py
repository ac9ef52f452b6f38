"""Whether one host reaches another one, how quickly, and how much a connection carries."""

import errno
import secrets
import socket
import struct
import threading
import time
from statistics import median

from pydantic import JsonValue

CONNECT_SECONDS = 4.0
CLOSE_SECONDS = 2.0
WAIT_SECONDS = 60.0
"""How long a listener waits for its peer."""
ECHOES = 20
MOST_BYTES, MOST_SECONDS = 64_000_000, 0.7
BLOCK = bytes(65_536)
TOKEN_BYTES = 16


def listen(address: str, port: int = 0) -> JsonValue:
    """Waits for one peer at an address of this host, in the background. Returns the port and the word that the peer must
    say."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind(listener, address, port)
        listener.listen(4)
    except OSError:
        listener.close()
        raise
    listener.settimeout(WAIT_SECONDS)
    token = secrets.token_bytes(TOKEN_BYTES)
    threading.Thread(target=_serve, args=(listener, token), daemon=True).start()
    return {"port": int(listener.getsockname()[1]), "token": token.hex()}


def _bind(listener: socket.socket, address: str, port: int) -> None:
    """Binds to a port, as soon as the listener for the peer before has closed it."""
    deadline = time.monotonic() + CLOSE_SECONDS
    while True:
        try:
            listener.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _serve(listener: socket.socket, token: bytes) -> None:
    """Returns a peer's echoes, then counts what it sends and says when all has arrived. Strangers are sent away."""
    deadline = time.monotonic() + WAIT_SECONDS
    with listener:
        while time.monotonic() < deadline:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                peer.settimeout(CONNECT_SECONDS)
                try:
                    if _receive(peer, TOKEN_BYTES) == token:
                        _answer(peer)
                        return
                except OSError:
                    continue


def _answer(peer: socket.socket) -> None:
    peer.settimeout(WAIT_SECONDS)
    for _ in range(ECHOES):
        peer.sendall(_receive(peer, 1))
    count = 0
    while block := peer.recv(1 << 20):
        count += len(block)
    peer.sendall(struct.pack("!Q", count))


def _receive(peer: socket.socket, length: int) -> bytes:
    content = b""
    while len(content) < length:
        block = peer.recv(length - len(content))
        if not block:
            raise ConnectionError("the other end closed the connection")
        content += block
    return content


def connect(address: str, port: int, token: str, most_seconds: float = MOST_SECONDS) -> JsonValue:
    """Connects to a listener of another host. Returns the address from which, the seconds of a round trip, and the bits a
    second that were received there, which is 0 if `most_seconds` is 0."""
    with socket.create_connection((address, port), timeout=CONNECT_SECONDS) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.settimeout(WAIT_SECONDS)
        peer.sendall(bytes.fromhex(token))
        echoes = []
        for _ in range(ECHOES):
            begin = time.perf_counter()
            peer.sendall(b".")
            _receive(peer, 1)
            echoes.append(time.perf_counter() - begin)
        begin, sent = time.perf_counter(), 0
        while sent < MOST_BYTES and time.perf_counter() - begin < most_seconds:
            peer.sendall(BLOCK)
            sent += len(BLOCK)
        peer.shutdown(socket.SHUT_WR)
        (arrived,) = struct.unpack("!Q", _receive(peer, 8))
        seconds = time.perf_counter() - begin
        return {"from": str(peer.getsockname()[0]), "seconds": median(echoes), "bits_per_second": 8 * arrived / seconds}
