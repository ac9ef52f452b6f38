"""A real HTTP server with the faults of real ones: cut connections, no ranges, other content, slowness."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

BLOCK_BYTES = 1 << 14


@dataclass
class Served:
    """One file and how it is served."""

    content: bytes
    ranges: bool = True
    tag: bool = True
    cuts: list[int] = field(default_factory=list)
    """The next answers end after this many bytes of their body."""
    failures: list[int] = field(default_factory=list)
    """The next answers are these status codes."""
    pause_seconds: float = 0.0
    """After every block."""


class FileServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, Served] = {}
        self.asked: list[tuple[str, str]] = []
        """Path and range of every request."""
        self.sent_bytes = 0

    def serve(self, name: str, content: bytes) -> Served:
        self.files[f"/{name}"] = Served(content)
        return self.files[f"/{name}"]

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"

    def ranges(self, name: str) -> list[str]:
        return [asked for path, asked in self.asked if path == f"/{name}"]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = cast(FileServer, self.server)
        wanted = self.headers.get("Range", "")
        server.asked.append((self.path, wanted))
        served = server.files.get(self.path)
        if served is None or served.failures:
            self.send_error(served.failures.pop(0) if served else 404)
            return
        tag = f'"{sha256(served.content).hexdigest()[:16]}"'
        same = self.headers.get("If-Range", tag) == tag
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and served.ranges and same else 0
        if start >= len(served.content) and start:
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(served.content) - 1}/{len(served.content)}")
        if served.tag:
            self.send_header("ETag", tag)
        body = served.content[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = served.cuts.pop(0) if served.cuts else None
        self._send(server, served, body[:cut])
        self.close_connection = cut is not None

    def _send(self, server: FileServer, served: Served, body: bytes) -> None:
        for start in range(0, len(body), BLOCK_BYTES):
            try:
                self.wfile.write(body[start : start + BLOCK_BYTES])
            except OSError:  # the other side is gone
                return
            server.sent_bytes += len(body[start : start + BLOCK_BYTES])
            time.sleep(served.pause_seconds)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def file_server() -> Iterator[FileServer]:
    with FileServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
