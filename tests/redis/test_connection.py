"""A connection of a thread's, with each of redis-py's parsers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis import exceptions as kinds

from django_distlock.backends.redis.connection import Connection
from django_distlock.backends.redis.location import locate
from tests.servers import Redis

PARSERS = {"hiredis": "_HiredisParser", "python": "_RESP2Parser"}


@pytest.fixture(params=PARSERS)
def parser(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def to(parser: str) -> Iterator[Callable[[int], Connection]]:
    """Give a function that returns a wire to a port, with one of redis-py's parsers."""
    made: list[Connection] = []

    def make(port: int) -> Connection:
        wire = Connection(locate("test", f"redis://127.0.0.1:{port}/0", {}), 5.0)
        from redis import connection

        kind: Any = connection
        wire._redis = kind.Connection(
            host="127.0.0.1",
            port=port,
            protocol=2,
            socket_timeout=5.0,
            parser_class=getattr(kind, PARSERS[parser]),
        )
        made.append(wire)
        return wire

    yield make
    for wire in made:
        wire.drop()


@pytest.fixture
def wire(server: Redis, to: Callable[[int], Connection]) -> Connection:
    return to(server.port)


def test_an_error_of_the_server_is_raised_and_closes_nothing(wire: Connection) -> None:
    me = wire.ask(("CLIENT", "ID"), 5.0)
    with pytest.raises(kinds.NoScriptError):
        wire.ask(("EVALSHA", "0" * 40, 0), 5.0)
    pong, error, answers = wire.ask_all((("PING",), ("NO SUCH",), ("ECHO", "x")), 5.0)
    assert (pong, answers) == (b"PONG", b"x")
    assert isinstance(error, kinds.ResponseError)
    assert wire.ask(("CLIENT", "ID"), 5.0) == me


def test_an_answer_that_comes_in_many_pieces(wire: Connection) -> None:
    text = "x" * 3_000_000
    assert wire.ask_all((("ECHO", text), ("ECHO", "y")), 5.0) == [text.encode(), b"y"]


def test_no_answer_in_time(server: Redis, wire: Connection) -> None:
    me = wire.ask(("CLIENT", "ID"), 5.0)
    with pytest.raises(kinds.TimeoutError):
        wire.ask(("BLPOP", "nobody writes here", 0), 0.05)
    assert not wire._redis.is_connected
    # Nothing of the answer is left for the next command.
    assert wire.ask(("CLIENT", "ID"), 5.0) > me


def test_a_limit_counts_for_its_own_command(wire: Connection) -> None:
    assert wire.ask(("PING",), 0.05) == b"PONG"
    assert wire.ask(("BLPOP", "nobody writes here", 0.15), 5.0) is None
    with pytest.raises(kinds.TimeoutError):
        wire.ask(("BLPOP", "nobody writes here", 5), 0.05)


def test_the_server_closes_the_connection(server: Redis, wire: Connection) -> None:
    me = wire.ask(("CLIENT", "ID"), 5.0)
    server.execute("CLIENT", "KILL", "ID", str(me))
    with pytest.raises(kinds.ConnectionError):
        wire.ask(("PING",), 5.0)
    assert wire.ask(("PING",), 5.0) == b"PONG"


@pytest.mark.parametrize("said", [b"-LOADING Redis is loading\r\n", b"*1\r\n-LOADING it is\r\n"])
def test_what_redis_py_takes_for_the_end_of_a_connection(
    to: Callable[[int], Connection], said: bytes
) -> None:
    with _server(said) as port:
        wire = to(port)
        with pytest.raises(kinds.BusyLoadingError):
            wire.ask(("PING",), 5.0)
        assert not wire._redis.is_connected


def test_what_is_no_answer_ends_the_connection(to: Callable[[int], Connection]) -> None:
    with _server(b"?what\r\n") as port:
        wire = to(port)
        with pytest.raises(kinds.InvalidResponse):
            wire.ask(("PING",), 5.0)
        assert not wire._redis.is_connected


@contextmanager
def _server(answer: bytes) -> Iterator[int]:
    """Answer a PING so, and OK to all else."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listening.accept()
        with client:
            while said := client.recv(65536):
                # Each command is an array, and begins with a star.
                client.sendall(answer if b"PING" in said else b"+OK\r\n" * said.count(b"*"))

    with listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
    thread.join()
