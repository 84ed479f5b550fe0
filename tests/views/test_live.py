"""A real server and real sockets: what a test client cannot do is to go away."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, StreamingHttpResponse

from django_distlock import lock
from django_distlock.core.worker import close_connections
from django_distlock.testing import expire_lease
from django_distlock.views import locked_view
from tests.backends.tools import elsewhere, soon
from tests.views.site import is_held, page


class Quiet(WSGIRequestHandler):
    """A handler that keeps its log lines to itself."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadedWSGIServer):
    """Django's own server, whose threads leave no connection behind."""

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            close_connections()


@contextlib.contextmanager
def serving(view: Any) -> Iterator[tuple[str, int]]:
    """Serve a view at /1/ on a port of its own; at the end of the block all threads have ended."""
    with page(view):
        server = Server(("127.0.0.1", 0), Quiet)
        server.daemon_threads = False
        server.set_app(get_wsgi_application())
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.05))
        thread.start()
        try:
            yield ("127.0.0.1", server.server_port)
        finally:
            server.shutdown()
            thread.join(10)
            server.server_close()


def ask(address: tuple[str, int]) -> socket.socket:
    """Send a request, and return the socket with the answer to it."""
    client = socket.create_connection(address, timeout=10)
    client.sendall(b"GET /1/ HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    return client


def read_until(client: socket.socket, wanted: bytes) -> bytes:
    """Read until something has come; fail when the connection ends before."""
    read = b""
    while wanted not in read:
        piece = client.recv(4096)
        assert piece, f"the connection ended after {read!r}"
        read += piece
    return read


def read_all(client: socket.socket) -> bytes:
    """Read until the connection ends, in whatever way."""
    pieces = []
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(1 << 18):
            pieces.append(piece)
    return b"".join(pieces)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What the stream waits for after its first piece."""
    gate = threading.Event()
    yield gate
    gate.set()


def export(store: str, name: str, gate: threading.Event, **options: Any) -> Any:
    """Return a view whose stream stops at the gate, and is long."""

    def parts() -> Iterator[bytes]:
        yield b"first piece;"
        assert gate.wait(30)
        for _ in range(200):
            yield b"." * 65536
        yield b"last piece"

    def view(request: HttpRequest, pk: int) -> StreamingHttpResponse:
        return StreamingHttpResponse(parts())

    return locked_view(lambda *_, **__: name, using=store, wait=0, **options)(view)


def test_the_lock_is_held_until_the_client_has_it_all(
    store: str, name: str, gate: threading.Event
) -> None:
    with serving(export(store, name, gate)) as address:
        with ask(address) as client, ask(address) as other:
            # Whichever came first; the other one is told so.
            answers = [client.recv(12), other.recv(12)]
            assert sorted(answers) == [b"HTTP/1.1 200", b"HTTP/1.1 409"]
            winner, loser = (client, other) if answers[0].endswith(b"200") else (other, client)
            assert b"Retry-After: " in read_all(loser)
            read_until(winner, b"first piece")
            assert is_held(name, store)
            gate.set()
            assert read_all(winner).rstrip(b"0\r\n").endswith(b"last piece")
        assert soon(lambda: not is_held(name, store))


def test_a_client_that_goes_away_frees_the_lock(
    store: str, name: str, gate: threading.Event
) -> None:
    with serving(export(store, name, gate)) as address:
        with ask(address) as client:
            read_until(client, b"first piece")
            assert is_held(name, store)
        gate.set()
        assert soon(lambda: not is_held(name, store))
        lease = elsewhere(lock(name, using=store, wait=0).acquire)
        assert lease is not None
        lease.release()


def test_a_lost_lease_cuts_the_connection(store: str, name: str, gate: threading.Event) -> None:
    with serving(export(store, name, gate)) as address, ask(address) as client:
        read_until(client, b"first piece")
        expire_lease(name, using=store)
        gate.set()
        assert not read_all(client).endswith(b"last piece")
