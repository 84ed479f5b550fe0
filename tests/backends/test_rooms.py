"""The waiting room: who waits in it, in which order, on how many connections."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core import mail
from django.db import close_old_connections, connections, transaction

from django_distlock import InvalidLockBackendError, Lease, lock, locks
from django_distlock.backends.table import room
from django_distlock.testing.taps import tap
from tests.backends.rooms import (
    connected,
    eventually,
    in_line,
    inside,
    is_taken,
    left,
    noting,
    rooms,
    taken,
    taken_elsewhere,
    waiter,
)
from tests.backends.tools import (
    LIMIT,
    SERVERS,
    STORES,
    Elsewhere,
    database_alias,
    lock_alias,
    one_value,
    sessions,
    table,
)


@pytest.fixture(params=[*SERVERS, *(store for store in STORES if store == "sqlite")])
def store(request: pytest.FixtureRequest) -> str:
    """Each database of this run that has a queue."""
    return str(request.param)


on_servers = pytest.mark.parametrize("store", SERVERS)


@pytest.fixture
def alias(store: str) -> Iterator[str]:
    """An alias of the test's own; at its end nothing is left of those who waited."""
    with lock_alias(f"{store}-rooms", LOCATION=store, WAIT=LIMIT) as opened:
        yield opened
        eventually(lambda: left(opened))


# -- the order -----------------------------------------------------------------------------------


def test_waiters_are_served_in_the_order_of_their_coming(
    alias: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the wait is so long that they look at the row meanwhile."""
    monkeypatch.setattr("django_distlock.flow.QUEUE_LIMIT", 0.05)
    first = taken(name, alias)
    assert left(alias), "without contention the room is not entered"
    served: list[int] = []
    with ExitStack() as stack:
        for number in range(5):
            stack.callback(waiter(name, alias, noting(served, number)).result)
        with tap(table(alias), "try_acquire") as calls:
            eventually(lambda: calls.answered >= 10)
        monkeypatch.setattr("django_distlock.flow.QUEUE_LIMIT", LIMIT)
        time.sleep(0.3)  # from now on only the first looks, for who holds has not come through
        first.release()
    assert served == [0, 1, 2, 3, 4]


def test_processes_take_turns(alias: str, store: str, name: str) -> None:
    """Each line stands at the end again after a grant; here each alias has a line of its own."""
    served: list[int] = []
    with lock_alias("twin", LOCATION=store, WAIT=LIMIT) as twin:
        first = taken(name, alias)
        taken(f"{name}:twin", twin).release()  # opens it
        with ExitStack() as stack:
            for number in range(4):
                using = (alias, alias, twin, twin)[number]
                stack.callback(waiter(name, using, noting(served, number)).result)
                if number == 0:
                    eventually(lambda: inside(alias) == 1)
                if number == 2:
                    eventually(lambda: connected(twin) == 1)
                    time.sleep(0.1)  # it is asking for the room by now
            first.release()
        eventually(lambda: left(twin))
    assert served == [0, 2, 1, 3]


def test_who_came_through_the_room_wakes_exactly_the_next(alias: str, name: str) -> None:
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
        assert calls.begun == asked, "nobody polls while one who came through the room holds"
        go.set()
        for thread in (one, *others):
            thread.result()
        assert calls.begun - asked == len(others)


def test_who_gives_up_leaves_its_lines_place_to_the_next(alias: str, name: str) -> None:
    first = taken(name, alias)
    brief = [Elsewhere(lambda: lock(name, using=alias).acquire(wait=0.3)) for _ in range(3)]
    for thread in brief:
        thread.start()
    eventually(lambda: in_line(alias) == 3)
    patient = waiter(name, alias)
    assert [thread.result() for thread in brief] == [None] * 3
    assert in_line(alias) == 1
    assert inside(alias) == 1, "the room was not left"
    first.release()
    patient.result()


def test_a_wait_that_ends_leaves_the_room(alias: str, store: str, name: str) -> None:
    first = taken(name, alias)
    started = time.monotonic()
    assert Elsewhere(lambda: lock(name, using=alias).acquire(wait=0.3)).start().result() is None
    assert 0.3 <= time.monotonic() - started < 1.0
    eventually(lambda: not is_taken(store, name, alias))
    first.release()


# -- connections -----------------------------------------------------------------------------------


@on_servers
def test_however_many_wait_the_connections_are_few(
    store: str, quiet: dict[str, Any], name: str
) -> None:
    """Of thirty waiters for ten names, six names' are at no door and poll: all are served."""
    with (
        database_alias("own", quiet),
        lock_alias("own", LOCATION="own", WAIT=LIMIT) as alias,
        ExitStack() as stack,
    ):
        held = [taken(f"{name}{number}", alias) for number in range(10)]
        before = sessions(store)
        for number in range(30):
            stack.callback(waiter(f"{name}{number % 10}", alias).result)
        eventually(lambda: connected(alias) == 4)
        assert len(rooms(alias)._doors._all) == 4
        # Each thread may have its own, too.
        assert len(sessions(store) - before) <= 30 + 4
        for lease in held:
            lease.release()


def test_one_room_is_enough(store: str, name: str) -> None:
    with (
        lock_alias("narrow", LOCATION=store, WAIT=LIMIT, OPTIONS={"ROOMS": 1}) as alias,
        ExitStack() as stack,
    ):
        held = [taken(f"{name}{number}", alias) for number in range(3)]
        for number in range(6):
            stack.callback(waiter(f"{name}{number % 3}", alias).result)
        assert connected(alias) <= 1
        for lease in held:
            lease.release()


def test_connections_are_closed_when_nobody_waits_any_more(
    alias: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "IDLE", 0.2)
    monkeypatch.setattr(room, "LOOK", 0.1)
    first = taken(name, alias)
    thread = waiter(name, alias)
    first.release()
    thread.result()
    assert connected(alias) == 1
    close_old_connections()  # Django's, of which ours are none
    assert connected(alias) == 1
    eventually(lambda: connected(alias) == 0)


@on_servers
def test_closing_the_alias_ends_all_sessions(store: str, quiet: dict[str, Any], name: str) -> None:
    """Also that of one who waits at the door, and goes on by polling."""
    with database_alias("own", quiet), lock_alias("own", LOCATION="own", WAIT=LIMIT) as alias:
        first = taken(name, alias)
        mine = one_value("own", "id")
        thread = waiter(name, alias)
        eventually(lambda: inside(alias) == 1)
        backend = table(alias)
        backend.close()
        assert connected(alias) == 0
        first.release()
        thread.result()
        eventually(lambda: sessions(store) <= {mine})


def test_closing_ends_a_wait_at_the_door(alias: str, store: str, name: str) -> None:
    with lock_alias("twin", LOCATION=store, WAIT=LIMIT) as twin:
        first = taken(name, alias)
        keeper = waiter(name, alias)
        eventually(lambda: inside(alias) == 1)
        taken(f"{name}:twin", twin).release()
        thread = waiter(name, twin)
        eventually(lambda: connected(twin) == 1)
        started = time.monotonic()
        table(twin).close()
        assert time.monotonic() - started < 1.0
        assert connected(twin) == 0
        first.release()
        keeper.result()
        thread.result()


# -- leases that were lost -----------------------------------------------------------------------


def test_a_lost_or_forgotten_lease_leaves_the_room(
    alias: str, store: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "LOOK", 0.1)
    first = taken(name, alias)
    lease: list[Lease] = []
    options = {"ttl": 0.4, "renew": False}
    thread = Elsewhere(lambda: lease.append(taken(name, alias, **options))).start()
    eventually(lambda: inside(alias) == 1)
    first.release()
    thread.result()
    assert inside(alias) == 1
    eventually(lambda: lease[0].lost)
    eventually(lambda: in_line(alias) == 0)
    eventually(lambda: not is_taken(store, name, alias))


def test_a_renewed_lease_stays_inside(
    alias: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "LOOK", 0.05)
    first = taken(name, alias)

    def hold(lease: Lease) -> None:
        time.sleep(1.0)
        assert not lease.lost
        assert inside(alias) == 1

    thread = waiter(name, alias, hold, ttl=0.6)
    eventually(lambda: inside(alias) == 1)
    first.release()
    thread.result()


# -- tasks -----------------------------------------------------------------------------------------


def test_a_cancelled_task_leaves_its_place_to_the_next(alias: str, store: str, name: str) -> None:
    async def main() -> None:
        first = await lock(name, using=alias).aacquire()
        assert first is not None
        tasks = []
        for number in range(3):
            tasks.append(asyncio.create_task(lock(name, using=alias).aacquire()))
            while in_line(alias) <= number:
                await asyncio.sleep(0.005)
        for task in tasks[:2]:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert in_line(alias) == 1
        await first.arelease()
        freed = time.monotonic()
        lease = await tasks[2]
        assert time.monotonic() - freed < 0.9, "it was woken, and not by its own look"
        assert lease is not None
        await lease.arelease()

    asyncio.run(main())
    eventually(lambda: not is_taken(store, name, alias))


def test_a_cancelled_task_that_was_alone_leaves_nothing(alias: str, store: str, name: str) -> None:
    """Its place at the door is given up when its turn comes."""

    async def main() -> None:
        task = asyncio.create_task(lock(name, using=alias).aacquire())
        while in_line(alias) == 0:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert in_line(alias) == 0

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
        while in_line(alias) < len(waiting):
            await asyncio.sleep(0.005)
        # Both are free for others while twelve wait.
        begun = time.monotonic()
        await sync_to_async(time.sleep, thread_sensitive=True)(0.01)
        await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.01) for _ in range(4)))
        assert time.monotonic() - begun < 0.9
        names = [thread.name for thread in threading.enumerate()]
        assert sum(each == "distlock-room" for each in names) <= 4
        await first.arelease()
        await asyncio.gather(*waiting)

    asyncio.run(main())


# -- where waiters poll ----------------------------------------------------------------------------


def test_inside_a_transaction_waiters_poll(alias: str, name: str) -> None:
    first = taken_elsewhere(name, alias)
    assert Elsewhere(lambda: lock(name, using=alias).acquire(wait=0)).start().result() is None
    assert rooms(alias).is_busy(table(alias).key(name))
    with tap(table(alias), "queue") as calls, transaction.atomic(using=table(alias).database):
        assert lock(name, using=alias).acquire(wait=0.15) is None
    assert calls.begun == 0
    first.release()


def test_under_djangos_test_runner_waiters_poll(alias: str, name: str) -> None:
    first = taken_elsewhere(name, alias)
    mail.outbox = []  # as setup_test_environment() does
    try:
        with tap(table(alias), "queue") as calls:
            assert lock(name, using=alias).acquire(wait=0.15) is None
    finally:
        del mail.outbox
    assert calls.begun == 0
    first.release()


def test_portable_waiters_poll(store: str, name: str) -> None:
    with lock_alias("portable", LOCATION=store, OPTIONS={"SQL": "portable"}) as alias:
        first = taken_elsewhere(name, alias)
        with tap(table(alias), "queue") as calls:
            assert lock(name, using=alias).acquire(wait=0.15) is None
        assert calls.begun == 0
        assert not table(alias).notifies
        first.release()


@pytest.mark.parametrize("waiting", [None, "queue"])
@pytest.mark.parametrize("how", ["pooler", "pool"])
def test_behind_a_pooler_waiters_poll_unless_told(
    store: str, quiet: dict[str, Any], name: str, waiting: str | None, how: str
) -> None:
    settings: dict[str, Any] = {"DISABLE_SERVER_SIDE_CURSORS": True}
    if how == "pool" and store == "postgresql":
        settings = {"OPTIONS": {"pool": {"min_size": 1, "max_size": 2, "timeout": 3}}}
    options = {"WAITING": waiting} if waiting else {}
    with (
        database_alias("pooled", quiet | settings),
        lock_alias("pooled", LOCATION="pooled", OPTIONS=options) as alias,
    ):
        first = taken_elsewhere(name, alias)
        with tap(table(alias), "queue") as calls:
            assert lock(name, using=alias).acquire(wait=0.15) is None
        assert (calls.begun > 0) == (waiting is not None)
        assert table(alias).notifies == (waiting is not None)
        first.release()
        pooled: Any = connections["pooled"]
        pooled.close()
        if "OPTIONS" in settings:
            pooled.close_pool()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"WAITING": "listen"}, "'queue' or 'poll' is expected"),
        ({"WAITING": True}, "'queue' or 'poll' is expected"),
        ({"WAITING": "queue", "SQL": "portable"}, "the portable SQL has no queue"),
        ({"ROOMS": 0}, "from 1 to 1000"),
        ({"ROOMS": True}, "from 1 to 1000"),
    ],
)
def test_wrong_options_are_refused(store: str, options: dict[str, Any], said: str) -> None:
    with (
        lock_alias("wrong", LOCATION=store, OPTIONS=options) as alias,
        pytest.raises(InvalidLockBackendError, match=said),
    ):
        locks[alias].held()
