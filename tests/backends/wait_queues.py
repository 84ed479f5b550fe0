"""What the tests of the wait queue share: who is in it, and threads that wait in it."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import connections

from django_distlock import Lease, lock, locks
from django_distlock.backends.table import queue_server, wait_queue
from tests.backends.tools import LIMIT, Elsewhere, elsewhere, table

TAKEN = {
    "postgresql": "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
    " AND (classid::bigint << 32) + objid::bigint = %(wait_queue)s",
    "mysql": "SELECT IS_USED_LOCK(%(wait_queue)s) IS NOT NULL",
}


def eventually(ask: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + LIMIT
    while not ask():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.005)


def taken(name: str, alias: str, **options: Any) -> Lease:
    """Take a lock, which is free."""
    lease: Lease | None = lock(name, using=alias, **options).acquire()
    assert lease is not None
    return lease


def taken_elsewhere(name: str, alias: str) -> Lease:
    """Take a lock in another thread, so that this one may wait for it."""
    return elsewhere(lambda: taken(name, alias))


def wait_queues(alias: str) -> wait_queue.WaitQueues:
    """Return the wait queues that this process has a foot in."""
    found = table(alias)._wait_queues
    assert found is not None
    return found


def inside(alias: str) -> int:
    """Return how many claims of this process are inside."""
    return sum(
        local_queue.inside for local_queue in list(wait_queues(alias)._local_queues.values())
    )


def in_local_queue(alias: str) -> int:
    """Return how many claims of this process stand in line or are inside."""
    return len(wait_queues(alias)._entries)


def connected(alias: str) -> int:
    """Return how many connections this process has for waiting."""
    return wait_queues(alias)._queue_connections.open()


def left(alias: str) -> bool:
    """Tell whether nothing is left of all that waited."""
    return not wait_queues(alias)._entries and not wait_queues(alias)._local_queues


def is_taken(database: str, name: str, alias: str | None = None) -> bool:
    """Tell whether the server shows that somebody is inside the wait queue."""

    def ask() -> bool:
        connection = connections[database]
        using = alias or database
        if connection.vendor == "sqlite":
            return _is_locked(str(connection.settings_dict["NAME"]), locks[using].key(name))
        digest = queue_server.wait_queue_of(
            str(connection.settings_dict["NAME"]), locks[using].key(name)
        )
        asking = table(using).statements().wait_queue
        assert asking is not None
        with connection.cursor() as cursor:
            cursor.execute(TAKEN[connection.vendor], asking.parameters(digest, 0.0))
            return bool(cursor.fetchone()[0])

    return elsewhere(ask)


def _is_locked(database: str, key: str) -> bool:
    from django_distlock.backends.table.queue_file import SUFFIX, asking

    if not os.path.exists(path := os.path.realpath(database) + SUFFIX):
        return False  # nobody has ever waited
    with open(path, "rb+") as file:
        answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, asking(fcntl.F_WRLCK, key))
    return bool(struct.unpack_from("h", answer)[0] != fcntl.F_UNLCK)


def waiter(
    name: str, alias: str, done: Callable[[Lease], object] = lambda lease: None, **options: Any
) -> Elsewhere[None]:
    """Start a thread that waits for the lock, and is in line when this returns."""
    before = in_local_queue(alias)

    def work() -> None:
        with lock(name, using=alias, **options) as lease:
            done(lease)

    thread = Elsewhere(work).start()
    eventually(lambda: in_local_queue(alias) > before)
    return thread


def noting(served: list[int], number: int) -> Callable[[Lease], object]:
    """Return what notes a waiter's number when it is served."""

    def note(number: int, _: Lease) -> None:
        served.append(number)

    return partial(note, number)
