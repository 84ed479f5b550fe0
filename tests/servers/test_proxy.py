"""The proxy does what it is told, to the bytes it is told, and nothing else."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tests.proxy import Proxy


class Echo(socketserver.BaseRequestHandler):
    """Answers each line with itself, in capitals."""

    def handle(self) -> None:
        with self.request.makefile("rb") as lines:
            for line in lines:
                said.append(line)
                self.request.sendall(line.upper())


said: list[bytes] = []


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Return a proxy before a server that echoes."""
    said.clear()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with Proxy(server.server_address[1]) as proxy:
            yield proxy
        server.shutdown()
        thread.join()


def connect(proxy: Proxy) -> socket.socket:
    """Connect, with a limit of 5 s on all that follows."""
    return socket.create_connection((proxy.host, proxy.port), 5)


def ask(link: socket.socket, line: bytes) -> bytes:
    """Say a line and return what comes back."""
    link.sendall(line)
    return link.recv(100)


def test_it_passes_on(proxy: Proxy) -> None:
    with connect(proxy) as one, connect(proxy) as two:
        assert ask(one, b"hello\n") == b"HELLO\n"
        assert ask(two, b"there\n") == b"THERE\n"
        assert (proxy.open, proxy.accepted) == (2, 2)


def test_an_answer_is_lost(proxy: Proxy) -> None:
    with connect(proxy) as link, connect(proxy) as other:
        lost = proxy.fault(b"hello")
        assert ask(link, b"before\n") == b"BEFORE\n"
        with pytest.raises(ConnectionResetError):
            ask(link, b"hello\n")
        lost.wait()
        assert b"hello\n" in said
        assert ask(other, b"hello\n") == b"HELLO\n"  # once only, and that link only


def test_an_answer_is_swallowed_and_nothing_else(proxy: Proxy) -> None:
    with connect(proxy) as link:
        proxy.fault(b"hello", then="go on")
        link.sendall(b"hello\n")
        link.settimeout(0.2)
        with pytest.raises(TimeoutError):
            link.recv(100)
        assert ask(link, b"again\n") == b"AGAIN\n"


def test_half_an_answer(proxy: Proxy) -> None:
    with connect(proxy) as link:
        proxy.fault(b"hello", keep=2, then="close")
        assert ask(link, b"hello\n") == b"HE"
        assert link.recv(100) == b""


def test_a_reset_in_the_middle_of_a_request(proxy: Proxy) -> None:
    with connect(proxy) as link:
        broken = proxy.fault(b"hello", to="request", keep=3)
        with pytest.raises(ConnectionResetError):
            ask(link, b"hello\n")
        broken.wait()
        assert b"hello\n" not in said


def test_a_connection_that_hangs(proxy: Proxy) -> None:
    with connect(proxy) as link:
        hung = proxy.fault(b"hello", to="request", then="hang")
        link.settimeout(0.2)
        with pytest.raises(TimeoutError):
            ask(link, b"hello\n")
        hung.wait()
        with connect(proxy) as other:
            assert ask(other, b"hello\n") == b"HELLO\n"
        proxy.mend()
        assert link.recv(100) == b""


def test_cut_and_mended(proxy: Proxy) -> None:
    with connect(proxy) as link:
        assert ask(link, b"hello\n") == b"HELLO\n"
        proxy.cut()
        assert link.recv(100) == b""
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
    proxy.mend()
    with connect(proxy) as link:
        assert ask(link, b"hello\n") == b"HELLO\n"


def test_reset_and_half_closed(proxy: Proxy) -> None:
    with connect(proxy) as link:
        assert ask(link, b"hello\n") == b"HELLO\n"
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            link.recv(100)
    with connect(proxy) as link:
        assert ask(link, b"hello\n") == b"HELLO\n"
        proxy.half_close()
        assert link.recv(100) == b""
        link.sendall(b"still heard\n")
        deadline = time.monotonic() + 5
        while b"still heard\n" not in said and time.monotonic() < deadline:
            time.sleep(0.01)
        assert b"still heard\n" in said


def test_silence_keeps_what_is_said(proxy: Proxy) -> None:
    with connect(proxy) as link:
        assert ask(link, b"hello\n") == b"HELLO\n"
        proxy.silence()
        link.settimeout(0.2)
        with pytest.raises(TimeoutError):
            ask(link, b"later\n")
        proxy.mend()
        link.settimeout(5)
        assert link.recv(100) == b"LATER\n"


def test_answers_come_later(proxy: Proxy) -> None:
    with connect(proxy) as link:
        proxy.delay(0.2)
        asked = time.monotonic()
        assert ask(link, b"hello\n") == b"HELLO\n"
        assert time.monotonic() - asked >= 0.2


def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Proxy(port) as proxy, connect(proxy) as link:
        assert link.recv(100) == b""
