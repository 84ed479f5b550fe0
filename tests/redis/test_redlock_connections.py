"""Redlock's connections: sockets that are full, slow or closed, TLS, and redis-py's own parser."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import connection as redis_connection
from redis import exceptions as kinds

from django_distlock import Lock, lock, locks
from django_distlock.backends.redis.location import locate
from django_distlock.backends.redlock.connection import SLICE, NodeConnection
from django_distlock.backends.redlock.nodes import Node
from tests.backends.tools import lock_alias
from tests.proxy import Proxy
from tests.redlock import NODES
from tests.servers import Redis

BACKEND = "django_distlock.backends.redlock.RedlockBackend"
ROOT = Path(__file__).resolve().parents[2]
NAME = "on a connection"


# -- a connection, with each way to read it --------------------------------------------------------

WAYS = ["hiredis", "redis-py", "tls"]


@pytest.fixture(scope="module")
def encrypted() -> Iterator[list[Redis]]:
    """Start three servers that speak TLS only."""
    with ExitStack() as stack:
        yield [stack.enter_context(Redis(tls=True, persistent=False)) for _ in range(3)]


@pytest.fixture(params=WAYS)
def connection(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[NodeConnection]:
    """Give an open connection, read in one of the ways."""
    how = request.param
    server = request.getfixturevalue("encrypted")[0] if how == "tls" else NODES[0]
    made = NodeConnection(Node(0, locate("test", server.url(), {})), 5.0)
    if how == "redis-py":  # as where hiredis is not installed
        kind: Any = redis_connection
        monkeypatch.setitem(sys.modules, "hiredis", None)
        made._connection._redis = kind.Connection(
            host=server.host, port=server.port, protocol=2, parser_class=kind._RESP2Parser
        )
    made.connect(5.0)
    yield made
    made.drop()


def packed(connection: NodeConnection, *commands: tuple[Any, ...]) -> bytes:
    """Return commands as they are sent."""
    return connection.pack(commands)


def test_answers_and_errors(connection: NodeConnection) -> None:
    commands = (("ECHO", "x"), ("EVALSHA", "0" * 40, 0), ("ECHO", "y"))
    connection.send(packed(connection, *commands), 3)
    assert connection.owed == 3
    first, error, last = connection.receive(5.0)
    assert (first, last, connection.owed) == (b"x", b"y", 0)
    assert isinstance(error, kinds.NoScriptError)


def test_what_is_owed_is_read_before_the_next(connection: NodeConnection) -> None:
    connection.send(packed(connection, ("BLPOP", "nobody writes here", 0.2), ("ECHO", "x")), 2)
    for limit in (SLICE, 0.01):
        with pytest.raises(kinds.TimeoutError):
            connection.receive(limit)
    assert connection.silent_for > 0
    connection.send(packed(connection, ("ECHO", "y")), 1)
    assert connection.owed == 3
    assert connection.receive(5.0) == [b"y"]
    assert connection.silent_for == 0


def test_a_wait_whose_note_cannot_be_written(connection: NodeConnection) -> None:
    """A hint is lost by that, and nothing else; a wait that is no wait is an error."""
    connection.wait(packed(connection, ("NO SUCH",), ("BLPOP", "nobody writes here", 0.01)), 5.0)
    with pytest.raises(kinds.ResponseError):
        connection.wait(packed(connection, ("ECHO", "x"), ("NO SUCH",)), 5.0)


# -- locks over such connections -------------------------------------------------------------------


def use(guard: Lock) -> list[int]:
    """Take a lock, wait for it in a thread, and take it in a task; return the tokens."""
    tokens = []

    def take() -> None:
        with guard as lease:
            lease.renew()
            tokens.append(lease.fencing_token)

    with guard as lease:
        tokens.append(lease.fencing_token)
        waiter = threading.Thread(target=take)
        waiter.start()
        waiter.join(0.1)
        assert waiter.is_alive()
        assert [info.fencing_token for info in locks["own"].held(NAME)] == tokens
    waiter.join(20)
    assert not waiter.is_alive()

    async def main() -> None:
        async with guard as lease:
            await lease.arenew()
            tokens.append(lease.fencing_token)

    asyncio.run(main())
    return tokens


@contextmanager
def on(urls: list[str], **options: Any) -> Iterator[Lock]:
    """Give the lock of these tests, on these servers."""
    with lock_alias("own", BACKEND=BACKEND, LOCATION=urls, PREFIX="connections", OPTIONS=options):
        yield lock(NAME, using="own", ttl=20.0, wait=20.0)


def test_locks_over_tls(encrypted: list[Redis]) -> None:
    # Each connection takes 25 ms of computing here, and as much there.
    patient = {"NODE_TIMEOUT": 5.0, "COMMAND_TIMEOUT": 10.0}
    with on([node.url() for node in encrypted], **patient) as guard:
        tokens = use(guard)
    assert len(tokens) == 3
    assert tokens == sorted(set(tokens))


def test_locks_where_hiredis_is_not_installed() -> None:
    program = """
import sys
sys.modules["hiredis"] = None
import django
django.setup()
from tests.redis.test_redlock_connections import on, use
with on(sys.argv[1:]) as guard:
    tokens = use(guard)
    assert len(tokens) == 3 and tokens == sorted(set(tokens)), tokens
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *(node.url() for node in NODES[:3])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# -- waiting while the node goes ------------------------------------------------------------------


@pytest.fixture
def between() -> Iterator[list[Proxy]]:
    """Stand before three of the servers."""
    with ExitStack() as stack:
        yield [stack.enter_context(Proxy(node.port)) for node in NODES[:3]]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("what", ["reset", "hang"])
def test_the_node_that_is_waited_at_goes(between: list[Proxy], mode: str, what: str) -> None:
    """Be granted the lock all the same, by the others' votes."""
    urls = [f"redis://{proxy.host}:{proxy.port}/0" for proxy in between]
    with on(urls) as guard:

        async def in_a_task() -> None:
            async with guard:
                pass

        def in_a_thread() -> None:
            with guard:
                pass

        work: Callable[[], None] = {
            "sync": in_a_thread,
            "async": lambda: asyncio.run(in_a_task()),
        }[mode]
        with guard:
            faults = [
                proxy.fault(b"BLPOP", then="reset" if what == "reset" else "hang")
                for proxy in between
            ]
            waiter = threading.Thread(target=work)
            waiter.start()
            while not any(fault.happened.is_set() for fault in faults):
                time.sleep(0.01)
                assert waiter.is_alive()
        waiter.join(15)
        assert not waiter.is_alive()
        assert not guard.locked()
