"""The wait queue: on how many connections, and where waiters poll instead."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import pytest
from django.core import mail
from django.db import close_old_connections, connections, transaction

from django_distlock import InvalidLockBackendError, lock, locks
from django_distlock.backends.table import wait_queue
from django_distlock.testing.taps import tap
from tests.backends.tools import (
    LIMIT,
    SERVERS,
    Elsewhere,
    database_alias,
    lock_alias,
    one_value,
    sessions,
    table,
)
from tests.backends.wait_queues import (
    connected,
    eventually,
    inside,
    taken,
    taken_elsewhere,
    wait_queues,
    waiter,
)

on_servers = pytest.mark.parametrize("store", SERVERS)


@on_servers
def test_however_many_wait_the_connections_are_few(
    store: str, quiet: dict[str, Any], name: str
) -> None:
    """Of thirty waiters for ten names, six names' have no connection and poll: all are served."""
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
        assert len(wait_queues(alias)._queue_connections._all) == 4
        # Each thread may have its own, too.
        assert len(sessions(store) - before) <= 30 + 4
        for lease in held:
            lease.release()


def test_one_wait_queue_is_enough(store: str, name: str) -> None:
    with (
        lock_alias("narrow", LOCATION=store, WAIT=LIMIT, OPTIONS={"QUEUE_CONNECTIONS": 1}) as alias,
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
    monkeypatch.setattr(wait_queue, "IDLE", 0.2)
    monkeypatch.setattr(wait_queue, "LOOK", 0.1)
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
    """Also that of one who waits at the queue connection, and goes on by polling."""
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


def test_closing_ends_a_wait_at_the_queue_connection(alias: str, store: str, name: str) -> None:
    with lock_alias("twin", LOCATION=store, WAIT=LIMIT) as twin:
        first = taken(name, alias)
        keeper = waiter(name, alias)
        eventually(lambda: inside(alias) == 1)
        taken(f"{name}:twin", twin).release()
        thread = waiter(name, twin)
        eventually(lambda: connected(twin) == 1)
        started = time.monotonic()
        table(twin).close()
        assert time.monotonic() - started < LIMIT / 2
        assert connected(twin) == 0
        first.release()
        keeper.result()
        thread.result()


def test_inside_a_transaction_waiters_poll(alias: str, name: str) -> None:
    first = taken_elsewhere(name, alias)
    assert Elsewhere(lambda: lock(name, using=alias).acquire(wait=0)).start().result() is None
    assert wait_queues(alias).is_busy(table(alias).key(name))
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


@pytest.mark.parametrize("options", [{"WAITING": "poll"}, {"WAITING": "queue"}, {}], ids=str)
def test_waiters_queue_unless_told_to_poll(store: str, name: str, options: dict[str, str]) -> None:
    """Either way they are served."""
    queues = options.get("WAITING") != "poll"
    with lock_alias("told", LOCATION=store, OPTIONS=options, WAIT=LIMIT) as alias:
        first = taken_elsewhere(name, alias)
        with tap(table(alias), "queue") as queued, tap(table(alias), "try_acquire") as looks:
            thread = Elsewhere(lambda: taken(name, alias).release()).start()
            eventually(lambda: looks.answered >= 3)  # the first in a wait queue looks often, too
            assert table(alias).notifies == queues
            first.release()
            thread.result()
        assert (queued.begun > 0) == queues


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
        ({"QUEUE_CONNECTIONS": 0}, "from 1 to 1000"),
        ({"QUEUE_CONNECTIONS": True}, "from 1 to 1000"),
    ],
)
def test_wrong_options_are_refused(store: str, options: dict[str, Any], said: str) -> None:
    with (
        lock_alias("wrong", LOCATION=store, OPTIONS=options) as alias,
        pytest.raises(InvalidLockBackendError, match=said),
    ):
        locks[alias].held()
