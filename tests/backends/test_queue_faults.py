"""The wait queue when processes die or hang in it, and when the server is gone for a while."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager

import pytest
from django.core.management import call_command
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import OperationalError

from django_distlock import Lease, LockBackendError, lock
from django_distlock.backends.table import wait_queue
from django_distlock.core.flow import QUEUE_LIMIT
from django_distlock.testing.processes import Process
from django_distlock.testing.taps import tap
from tests.backends.outages import COMMAND, Place
from tests.backends.tools import (
    LIMIT,
    SERVERS,
    STORES,
    Elsewhere,
    database_alias,
    lock_alias,
    one_value,
    table,
)
from tests.backends.wait_queues import (
    connected,
    eventually,
    in_local_queue,
    inside,
    is_taken,
    left,
    noting,
    taken,
    waiter,
)
from tests.servers import DATABASES, ByStore, watcher

MARGIN = 5.0
"""Seconds that a busy machine may take for what is done at once."""


# -- other processes -------------------------------------------------------------------------------

where_they_queue = pytest.mark.parametrize(
    "store", [*SERVERS, *(store for store in STORES if store == "sqlite")]
)


async def until_taken(store: str, name: str, *, taken: bool = True) -> None:
    """Wait until somebody, or nobody, is inside."""
    while await asyncio.to_thread(is_taken, store, name) != taken:
        await asyncio.sleep(0.005)


async def until_in_local_queue(alias: str) -> None:
    """Wait until somebody of this process is in line."""
    while in_local_queue(alias) == 0:
        await asyncio.sleep(0.005)


@asynccontextmanager
async def one_in_the_wait_queue(
    alias: str, store: str, name: str, **options: float
) -> AsyncIterator[tuple[Lease, Process]]:
    """Hold the lock, and have another process wait in its queue; nobody may be left there."""
    first = await lock(name, using=alias).aacquire()
    assert first is not None
    async with Process("sync", store) as other:
        other.tell("acquire", name=name, wait=LIMIT, options=options)
        await until_taken(store, name)
        yield first, other
    await until_taken(store, name, taken=False)


@where_they_queue
def test_a_killed_keeper_of_the_wait_queue_holds_nobody_up(
    alias: str, store: str, name: str
) -> None:
    async def main() -> None:
        async with one_in_the_wait_queue(alias, store, name, ttl=2.0) as (first, other):
            await first.arelease()
            await asyncio.to_thread(other._read)  # it has the lock, and is inside
            waiting = asyncio.create_task(lock(name, using=alias).aacquire())
            await until_in_local_queue(alias)
            await other.kill()
            killed = time.monotonic()
            lease = await waiting
            assert lease is not None
            assert time.monotonic() - killed < 2.0 + MARGIN
            await lease.arelease()

    asyncio.run(main())


@where_they_queue
def test_a_killed_waiter_leaves_the_wait_queue(alias: str, store: str, name: str) -> None:
    async def main() -> None:
        async with one_in_the_wait_queue(alias, store, name) as (first, other):
            waiting = asyncio.create_task(lock(name, using=alias).aacquire())
            await until_in_local_queue(alias)
            await other.kill()
            while inside(alias) == 0:  # this process is who has moved up
                await asyncio.sleep(0.005)
            await first.arelease()
            lease = await waiting
            assert lease is not None
            await lease.arelease()

    asyncio.run(main())


@where_they_queue
def test_a_stopped_keeper_of_the_wait_queue_holds_nobody_up(
    alias: str, store: str, name: str
) -> None:
    async def main() -> None:
        async with one_in_the_wait_queue(alias, store, name, ttl=2.0) as (first, other):
            watcher.freeze(other.pid)
            try:
                waiting = asyncio.create_task(lock(name, using=alias).aacquire())
                await until_in_local_queue(alias)
                await first.arelease()
                freed = time.monotonic()
                lease = await waiting
                assert lease is not None
                assert time.monotonic() - freed < QUEUE_LIMIT + MARGIN
                await lease.arelease()
            finally:
                os.kill(other.pid, signal.SIGCONT)
            assert await asyncio.to_thread(other._read) is not None

    asyncio.run(main())


# -- the server --------------------------------------------------------------------------------


@pytest.fixture
def place(own: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """The alias "own", whose server may be disturbed."""
    monkeypatch.setattr(wait_queue, "CLOSED_FOR", 0.2)
    yield own
    eventually(lambda: left("own"))


def test_waiters_outlive_their_sessions(place: Place, name: str) -> None:
    """Those of the wait queue, and their own."""
    first = taken(name, "own")
    served: list[int] = []
    with ExitStack() as stack:
        for number in range(3):
            stack.callback(waiter(name, "own", noting(served, number), wait=LIMIT).result)
        eventually(lambda: inside("own") == 1)
        place.end_sessions()
        first.release()
    assert sorted(served) == [0, 1, 2]


def test_after_a_restart_the_wait_queue_is_used_again(place: Place, name: str) -> None:
    first = taken(name, "own")
    one = waiter(name, "own", wait=LIMIT)
    eventually(lambda: inside("own") == 1)
    place.server.kill()
    with pytest.raises(LockBackendError):  # as when it polls
        one.result()
    place.server.start()
    first.release()
    second = taken(name, "own")
    another = waiter(name, "own", wait=LIMIT)
    eventually(lambda: inside("own") == 1)
    second.release()
    another.result()
    eventually(lambda: not is_taken("own", name))


def test_a_wait_in_the_wait_queue_ends_in_time_when_the_server_hangs(
    place: Place, name: str
) -> None:
    first = taken(name, "own")

    def work() -> float:
        started = time.monotonic()
        with pytest.raises(LockBackendError):
            lock(name, using="own").acquire(wait=1.2)
        return time.monotonic() - started

    thread = Elsewhere(work).start()
    eventually(lambda: inside("own") == 1)
    place.server.pause()
    try:
        assert thread.result() < 1.2 + COMMAND + MARGIN
    finally:
        place.server.resume()
    first.release()


@pytest.mark.parametrize("store", SERVERS)
def test_without_a_connection_left_waiters_poll(
    store: str, name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the wait queue fails, and when there is a connection again it is used."""
    monkeypatch.setattr(wait_queue, "CLOSED_FOR", 0.2)
    most = ByStore(postgresql=["-c", "max_connections=12"], mariadb=["--max-connections=12"])
    connected_already, go = threading.Event(), threading.Event()

    def work() -> None:
        one_value("full", "id")
        connected_already.set()
        assert go.wait(LIMIT)
        taken(name, "full", wait=LIMIT).release()

    with (
        DATABASES[store](options=most[store]) as server,
        database_alias("full", server.create_database("crowded")),
        lock_alias("full", LOCATION="full"),
    ):
        call_command("migrate", database="full", verbosity=0)
        first = taken(name, "full")
        thread = Elsewhere(work).start()
        assert connected_already.wait(LIMIT)
        guests = list(all_connections("full"))
        with tap(table("full"), "try_acquire") as calls:
            go.set()
            eventually(lambda: calls.answered >= 4)
        assert "No wait queue" in caplog.text
        assert connected("full") == 0
        for guest in guests:
            guest.close()
        eventually(lambda: inside("full") == 1)
        first.release()
        thread.result()


def all_connections(database: str) -> Iterator[BaseDatabaseWrapper]:
    """Connect until the server has no connection left."""
    with contextlib.suppress(OperationalError):
        while True:
            guest = connections[database].copy()
            guest.ensure_connection()
            yield guest
