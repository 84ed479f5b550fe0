"""The wait queue: who waits in it, in which order, and who leaves it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from asgiref.sync import sync_to_async

from django_distlock import Lease, lock
from django_distlock.backends.table import TableBackend, wait_queue
from django_distlock.backends.table.queue_server import wait_queue_of
from django_distlock.backends.table.sql import MARIADB, POSTGRESQL
from django_distlock.core.names import key_of
from django_distlock.testing.taps import tap
from tests.backends.tools import (
    LIMIT,
    Elsewhere,
    lock_alias,
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
    taken_elsewhere,
    waiter,
)


def test_waiters_are_served_in_the_order_of_their_coming(
    alias: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the wait is so long that they look at the row meanwhile."""
    monkeypatch.setattr(table(alias), "queue_limit", 0.05)
    first = taken(name, alias)
    assert left(alias), "without contention the wait queue is not entered"
    served: list[int] = []
    with ExitStack() as stack:
        for number in range(5):
            stack.callback(waiter(name, alias, noting(served, number)).result)
        with tap(table(alias), "try_acquire") as calls:
            eventually(lambda: calls.answered >= 10)
        monkeypatch.setattr(table(alias), "queue_limit", LIMIT)
        time.sleep(0.3)  # from now on only the first looks, for who holds has not come through
        first.release()
    assert served == [0, 1, 2, 3, 4]


def test_processes_take_turns(alias: str, store: str, name: str) -> None:
    """Each line stands at the end again after a grant; here each alias has a line of its own."""
    served: list[int] = []

    def turn(number: int) -> Callable[[Lease], object]:
        def take(lease: Lease) -> None:
            served.append(number)
            time.sleep(0.1)  # in which the one before is back in line

        return take

    with lock_alias("twin", LOCATION=store, WAIT=LIMIT) as twin:
        first = taken(name, alias)
        taken(f"{name}:twin", twin).release()  # opens it
        with ExitStack() as stack:
            for number in range(4):
                using = (alias, alias, twin, twin)[number]
                stack.callback(waiter(name, using, turn(number)).result)
                if number == 0:
                    eventually(lambda: inside(alias) == 1)
                if number == 2:
                    eventually(lambda: connected(twin) == 1)
                    time.sleep(0.1)  # it is asking for the wait queue by now
            first.release()
        eventually(lambda: left(twin))
    assert served == [0, 2, 1, 3]


def test_who_came_through_the_wait_queue_wakes_exactly_the_next(alias: str, name: str) -> None:
    first = taken(name, alias)
    go = threading.Event()
    holding = threading.Event()

    def keep(_: Lease) -> None:
        holding.set()
        assert go.wait(LIMIT)

    with tap(table(alias), "try_acquire") as calls:
        one = waiter(name, alias, keep)
        first.release()
        assert holding.wait(LIMIT)
        others = [waiter(name, alias) for _ in range(3)]
        asked = calls.begun
        time.sleep(0.3)
        assert calls.begun == asked, "nobody polls while one who came through the wait queue holds"
        go.set()
        for thread in (one, *others):
            thread.result()
        assert calls.begun - asked == len(others)


def test_who_gives_up_leaves_its_local_queues_place_to_the_next(alias: str, name: str) -> None:
    first = taken(name, alias)
    brief = [Elsewhere(lambda: lock(name, using=alias).acquire(wait=2)) for _ in range(3)]
    for thread in brief:
        thread.start()
    eventually(lambda: in_local_queue(alias) == 3)
    patient = waiter(name, alias)
    assert [thread.result() for thread in brief] == [None] * 3
    assert in_local_queue(alias) == 1
    assert inside(alias) == 1, "the wait queue was not left"
    first.release()
    patient.result()


def test_a_wait_that_ends_leaves_the_wait_queue(alias: str, store: str, name: str) -> None:
    first = taken(name, alias)
    started = time.monotonic()
    assert Elsewhere(lambda: lock(name, using=alias).acquire(wait=0.3)).start().result() is None
    assert 0.3 <= time.monotonic() - started < 6
    eventually(lambda: not is_taken(store, name, alias))
    first.release()


def test_a_lost_or_forgotten_lease_leaves_the_wait_queue(
    alias: str, store: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_queue, "LOOK", 0.1)
    first = taken(name, alias)
    lease: list[Lease] = []
    options = {"ttl": 0.4, "renew": False}
    thread = Elsewhere(lambda: lease.append(taken(name, alias, **options))).start()
    eventually(lambda: inside(alias) == 1)
    first.release()
    thread.result()
    assert inside(alias) == 1
    eventually(lambda: lease[0].lost)
    eventually(lambda: in_local_queue(alias) == 0)
    eventually(lambda: not is_taken(store, name, alias))


def test_a_renewed_lease_stays_inside(
    alias: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_queue, "LOOK", 0.05)
    first = taken(name, alias)

    def hold(lease: Lease) -> None:
        time.sleep(2.6)
        assert not lease.lost
        assert inside(alias) == 1

    thread = waiter(name, alias, hold, ttl=2.0)
    eventually(lambda: inside(alias) == 1)
    first.release()
    thread.result()


def test_a_cancelled_task_leaves_its_place_to_the_next(
    alias: str, store: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableBackend, "queue_limit", LIMIT)  # a look of its own would come too late

    async def main() -> None:
        first = await lock(name, using=alias).aacquire()
        assert first is not None
        tasks = []
        for number in range(3):
            tasks.append(asyncio.create_task(lock(name, using=alias).aacquire()))
            while in_local_queue(alias) <= number:
                await asyncio.sleep(0.005)
        for task in tasks[:2]:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert in_local_queue(alias) == 1
        await first.arelease()
        freed = time.monotonic()
        lease = await tasks[2]
        assert time.monotonic() - freed < LIMIT / 2, "it was woken, and not by its own look"
        assert lease is not None
        await lease.arelease()

    asyncio.run(main())
    eventually(lambda: not is_taken(store, name, alias))


def test_a_cancelled_task_that_was_alone_leaves_nothing(alias: str, store: str, name: str) -> None:
    """Its queue connection is given up when its turn comes."""

    async def main() -> None:
        task = asyncio.create_task(lock(name, using=alias).aacquire())
        while in_local_queue(alias) == 0:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert in_local_queue(alias) == 0

    with lock_alias("twin", LOCATION=store, WAIT=LIMIT) as twin:
        first = taken_elsewhere(name, twin)
        keeper = waiter(name, twin)
        eventually(lambda: inside(twin) == 1)
        table(alias).statements()
        asyncio.run(main())
        first.release()
        keeper.result()
        eventually(lambda: left(twin))
    eventually(lambda: left(alias))
    eventually(lambda: not is_taken(store, name, alias))


def test_tasks_wait_on_no_thread_of_djangos_or_asyncios(alias: str, name: str) -> None:
    async def use() -> None:
        async with lock(name, using=alias):
            pass

    async def main() -> None:
        first = await lock(name, using=alias).aacquire()
        assert first is not None
        waiting = [asyncio.create_task(use()) for _ in range(12)]
        while in_local_queue(alias) < len(waiting):
            await asyncio.sleep(0.005)
        # Both are free for others while twelve wait.
        took = []
        for _ in range(3):  # the fastest of them: the machine may be busy
            begun = time.monotonic()
            await sync_to_async(time.sleep, thread_sensitive=True)(0.01)
            await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.01) for _ in range(4)))
            took.append(time.monotonic() - begun)
        assert min(took) < 0.9
        names = [thread.name for thread in threading.enumerate()]
        assert sum(each == "distlock-queue" for each in names) <= 4
        await first.arelease()
        await asyncio.gather(*waiting)

    asyncio.run(main())


def test_each_database_and_name_has_a_wait_queue_of_its_own() -> None:
    """The locks of a server are its own, not its databases'; MariaDB's have short names."""
    for text in (POSTGRESQL, MARIADB):
        assert text.wait_queue is not None
        names = ["a", "A", "a ", "x" * 200, "x" * 201]
        digests = [wait_queue_of(database, key_of("", each)) for database in "ab" for each in names]
        called = {str(text.wait_queue.parameters(each, 1.0)["wait_queue"]) for each in digests}
        assert len(called) == len(digests)
        assert max(map(len, called)) <= 64
