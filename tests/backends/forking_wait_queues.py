"""A program that forks while threads of it wait in the wait queue; see `forking`."""

from __future__ import annotations

import gc
import threading
import time
from typing import TYPE_CHECKING, cast

from django.db import connections

from django_distlock import lock, locks
from tests.backends.forking_tools import NAME, child, ended_well, taken

if TYPE_CHECKING:
    from django_distlock.backends.table import TableBackend
    from django_distlock.backends.table.wait_queue import WaitQueues


def wait_queues(store: str) -> WaitQueues:
    """Return the wait queues that this process has a foot in."""
    found = cast("TableBackend", locks[store])._wait_queues
    assert found is not None
    return found


def in_wait_queues(store: str) -> tuple[int, int]:
    """Return how many threads of this process queue, and how many of them are inside."""
    local_queues = wait_queues(store)._local_queues.values()
    return len(wait_queues(store)._entries), sum(local_queue.inside for local_queue in local_queues)


def eventually(store: str, *, waiting: int = 0, inside: int = 0) -> None:
    """Wait until as many threads queue and are inside."""
    end = time.monotonic() + 30
    while (now := in_wait_queues(store))[0] < waiting or now[1] < inside:
        assert time.monotonic() < end, f"{now} are waiting and inside"
        time.sleep(0.005)


def session_of(store: str) -> object:
    """Return the connection that the first place to wait has, if it needs one."""
    return getattr(wait_queues(store)._queue_connections._all[0], "connection", None)


def in_the_wait_queue(store: str) -> None:
    """A child has no part in its parent's queueing, and does not end it."""
    lease = taken(store)
    served: list[int] = []

    def wait(number: int) -> None:
        with lock(NAME, using=store, wait=90):
            served.append(number)
        connections.close_all()

    waiters = [threading.Thread(target=wait, args=(number,)) for number in range(2)]
    for number, waiter in enumerate(waiters):
        waiter.start()
        eventually(store, waiting=number + 1)
    eventually(store, inside=1)
    theirs = session_of(store)

    def work() -> None:
        assert lock(NAME, using=store, wait=0.2).acquire() is None
        assert in_wait_queues(store) == (0, 0)
        assert theirs is None or session_of(store) is not theirs
        gc.collect()

    for clean in (True, False):
        ended_well(child(work, clean=clean))
        assert in_wait_queues(store)[1] == 1
    lease.release()
    for waiter in waiters:
        waiter.join(30)
    assert sorted(served) == [0, 1]
    assert session_of(store) is theirs
    assert not wait_queues(store)._closed_until, "the queueing went on without an error"
