"""What becomes of kept connections, hosts with several addresses, and large answers."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from django_distlock.http import Answer, Endpoint, Full, Http, HttpError
from tests.http.server import HTTPServer
from tests.http.tools import LIMIT, Open, get

MODES = pytest.mark.parametrize("mode", ["sync", "async"])


def ask_each(http: Http, mode: str, *paths: str, between: Any = lambda: None) -> list[Answer]:
    """Ask one after the other, over the same connection if that is kept."""
    if mode == "sync":
        answers = []
        for path in paths:
            answers.append(http.ask(get(path), LIMIT))
            between()
        return answers

    async def main() -> list[Answer]:
        answers = []
        for path in paths:
            answers.append(await http.aask(get(path), LIMIT))
            between()
            await asyncio.sleep(0)
        return answers

    return asyncio.run(main())


@MODES
def test_a_connection_that_was_idle_for_long_is_not_used_again(
    mode: str, server: HTTPServer, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall may have forgotten it, and says nothing of that."""
    http = opened(server.endpoint)
    monkeypatch.setattr("django_distlock.http.connections.FRESH", 0.02)
    ask_each(http, mode, "/1", "/2", between=lambda: time.sleep(0.04))
    assert server.accepted == 2


@MODES
def test_who_is_turned_away_is_told_so(mode: str, server: HTTPServer, opened: Open) -> None:
    """By a server that closes a new connection, and not by one that had answered on it before."""
    http = opened(server.endpoint)
    assert not http.answered
    with pytest.raises(HttpError) as new:
        ask_each(http, mode, "/cut")
    assert not http.answered
    with pytest.raises(HttpError) as half:
        ask_each(http, mode, "/half")
    with pytest.raises(HttpError) as refused:
        ask_each(opened(Endpoint("127.0.0.1", 1)), mode, "/")
    assert [each.value.turned_away for each in (new, half, refused)] == [True, False, False]
    ask_each(http, mode, "/1")
    assert http.answered


@MODES
def test_nothing_waits_in_a_server_that_turns_away(
    mode: str, server: HTTPServer, opened: Open
) -> None:
    """For a while: what waits keeps connections, which others of the process need."""
    http = opened(server.endpoint)
    waiting = get("/1", wait=1.0)
    ask = http.ask if mode == "sync" else lambda *given: asyncio.run(http.aask(*given))
    ask(waiting, LIMIT)
    http.close_idle()
    with pytest.raises(HttpError, match="closed"):
        ask(get("/cut", again=False), LIMIT)
    with pytest.raises(Full, match="turned"):
        ask(waiting, LIMIT)
    ask(get("/1"), LIMIT)


class Talkative:
    """Sends an answer that nobody asked for behind each one, at once or when it is told to."""

    def __init__(self, *, at_once: bool) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint("127.0.0.1", self._listener.getsockname()[1])
        self._at_once = at_once
        self._open: list[socket.socket] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with suppress(OSError):  # it was dropped, as it has to be
            while data := client.recv(65536):
                path = data.split()[1]
                said = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(path), path)
                client.sendall(said + (STRAY if self._at_once else b""))

    def stray(self) -> None:
        """Send what was not asked for, and see it arrive."""
        if not self._at_once:
            self._open[-1].sendall(STRAY)
            time.sleep(0.05)

    def close(self) -> None:
        for each in (self._listener, *self._open):
            each.close()


STRAY = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 5\r\n\r\nstray"


@pytest.mark.parametrize("at_once", [False, True])
@MODES
def test_an_answer_that_nobody_asked_for_is_nobodys(mode: str, at_once: bool, opened: Open) -> None:
    server = Talkative(at_once=at_once)
    try:
        http = opened(server.endpoint)
        answers = ask_each(http, mode, "/1", "/2", "/3", between=server.stray)
        assert [answer.body for answer in answers] == [b"/1", b"/2", b"/3"]
    finally:
        server.close()


@contextmanager
def silent(port: int) -> Iterator[str]:
    """Give an address at which connecting hangs: the queue of those not accepted is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.2", port))
        listener.listen(0)
        fill = []
        for _ in range(4):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            fill.append(client)
        try:
            yield "127.0.0.2"
        finally:
            for client in fill:
                client.close()


@MODES
def test_a_host_with_several_addresses_of_which_some_are_dead(
    mode: str, server: HTTPServer, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them share the limit, and the one that answers is found within it."""
    port = server.endpoint.port
    with silent(port) as address:
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        real = socket.getaddrinfo

        def resolved(host: Any, *args: Any, **kwargs: Any) -> list[Any]:
            if host != "several.example":
                return list(real(host, *args, **kwargs))
            return [(*kind, (address, port)), (*kind, ("127.0.0.1", port))]

        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        http = opened(Endpoint("several.example", port))
        started = time.monotonic()
        if mode == "sync":
            answer = http.ask(get("/x"), 6.0)
        else:
            answer = asyncio.run(http.aask(get("/x"), 6.0))
        assert answer.status == 200
        assert time.monotonic() - started < 6.0


@MODES
def test_a_resolver_that_hangs_keeps_to_the_limit(
    mode: str, server: HTTPServer, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked on a thread of ours, on one for all who wait for the same name."""
    over = threading.Event()
    asked: list[str] = []
    real = socket.getaddrinfo

    def resolved(host: Any, *args: Any, **kwargs: Any) -> list[Any]:
        if host == "silent.example":
            asked.append(host)
            over.wait(LIMIT)
            host = "127.0.0.1"
        return list(real(host, *args, **kwargs))

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    http = opened(Endpoint("silent.example", server.endpoint.port))

    def ask(limit: float) -> Answer:
        if mode == "sync":
            return http.ask(get("/x"), limit)
        return asyncio.run(http.aask(get("/x"), limit))

    for _ in range(2):
        started = time.monotonic()
        with pytest.raises(HttpError, match=r"did not answer within 0\.[0-3]\d* s"):
            ask(0.3)
        assert time.monotonic() - started < LIMIT / 2
    assert asked == ["silent.example"]
    over.set()
    assert ask(LIMIT).status == 200


@MODES
def test_a_large_answer(mode: str, server: HTTPServer, opened: Open) -> None:
    path = "/" + "x" * 60_000
    (answer,) = ask_each(opened(server.endpoint), mode, path)
    assert answer.body == b'{"path": "%s"}' % path.encode()
