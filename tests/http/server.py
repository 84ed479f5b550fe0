"""An HTTP server in this process, which answers as a test tells it to."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from django_distlock.http import Endpoint

__all__ = ["HTTPServer", "serving"]


class HTTPServer(ThreadingHTTPServer):
    """Counts connections and requests; paths tell it how to behave."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, tls: tuple[str, str] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.accepted = 0
        self.paths: list[str] = []
        self.bodies: list[bytes] = []
        self.seen_headers: list[dict[str, str]] = []
        self.status = 200
        self.go_on = threading.Event()
        self.tls = tls is not None
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def get_request(self) -> Any:
        self.accepted += 1
        return super().get_request()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that a test cut."""

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens."""
        return Endpoint("127.0.0.1", self.server_address[1], self.tls)


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    server: HTTPServer
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answer, or do what the path says."""
        length = int(self.headers.get("Content-Length", 0))
        self.server.bodies.append(self.rfile.read(length))
        self.server.seen_headers.append(dict(self.headers))
        self.server.paths.append(self.path)
        if self.path == "/lines":
            self._lines()
            return
        if self.path == "/hang":
            self.server.go_on.wait(10)
        if self.path == "/cut":
            self.close_connection = True
            return
        if self.path == "/half":
            self._head({"Content-Length": "100"})
            self.wfile.write(b"half")
            self.close_connection = True
            return
        body = b'{"path": "%s"}' % self.path.encode()
        last = {"Connection": "close"} if self.path == "/last" else {}
        self._head({"Content-Length": str(len(body)), "X-Index": "7"} | last)
        self.wfile.write(body)
        if self.path == "/silently-closed":
            self.close_connection = True

    do_PUT = do_GET

    def _head(self, headers: dict[str, str]) -> None:
        self.send_response(self.server.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _lines(self) -> None:
        self._head({"Transfer-Encoding": "chunked"})
        for part in (b"one\ntw", b"o\n\n", b"three\n"):
            self._chunk(part)
            time.sleep(0.01)
        self.server.go_on.wait(10)
        self._chunk(b"last\n")
        self._chunk(b"")
        self.close_connection = True

    def _chunk(self, part: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(tls: tuple[str, str] | None = None) -> Iterator[HTTPServer]:
    """Serve until the end of the block."""
    with HTTPServer(tls) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.go_on.set()
            server.shutdown()
            thread.join()
