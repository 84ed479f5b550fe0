"""SQLite files that are busy: another connection writes, and the others wait for the file."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_distlock import Lease, LockBackendError, lock
from tests.backends.tools import STORES, Cell, Elsewhere, database_alias, elsewhere, lock_alias


@pytest.fixture(autouse=True, params=[store for store in STORES if store == "sqlite"])
def only_where_sqlite_is_chosen(request: pytest.FixtureRequest) -> None:
    """Give the tests a parameter, so that they are left out where there is none."""


@contextmanager
def busy(seconds: float) -> Iterator[None]:
    """Hold the file's write lock by another connection, for so long from now."""
    writer = connections["sqlite"].copy()
    writer.inc_thread_sharing()
    with writer.cursor() as cursor:
        cursor.execute("BEGIN IMMEDIATE")
    end = threading.Timer(seconds, lambda: writer.connection.rollback())
    end.start()
    try:
        yield
    finally:
        end.join()
        writer.close()


def test_a_waiter_does_not_ask_for_the_files_write_lock_again(name: str) -> None:
    """Else each look of a waiter is in the way of whoever writes, the lock's holder first of all.

    SQLite lets a transaction that has read and now wants to write fail at once, without a wait,
    when somebody else is writing.
    """
    lease = elsewhere(lock(name, using="sqlite", renew=False).acquire)
    assert lease
    assert lock(name, using="sqlite", wait=0).acquire() is None
    with busy(5.5):
        began = time.monotonic()
        assert lock(name, using="sqlite", wait=0.2).acquire() is None
        assert time.monotonic() - began < 4
    lease.release()
    with lock(name, using="sqlite"):
        pass


def test_a_grant_does_not_make_the_waiters_of_its_process_ask_again(name: str) -> None:
    """The name was free for a moment, and somebody else of this process has got it since."""

    def take() -> Lease | None:
        return lock(name, using="sqlite", renew=False).acquire()

    first = elsewhere(take)
    assert first
    assert lock(name, using="sqlite", wait=0).acquire() is None
    first.release()
    second = elsewhere(take)
    assert second
    with CaptureQueriesContext(connections["sqlite"]) as queries:
        assert lock(name, using="sqlite", wait=0).acquire() is None
    assert [query["sql"].split()[0] for query in queries] == ["SELECT"]
    second.release()


def test_waiters_are_not_in_the_way_of_the_holders_transactions(name: str, tmp_path: Path) -> None:
    """On a file as Django makes it by default, without WAL and without IMMEDIATE."""
    settings = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db.sqlite3")}
    over = threading.Event()
    lost = threading.Barrier(5)

    def wait() -> None:
        assert lock(name, using=alias, wait=0.5).acquire() is None
        lost.wait(20)
        while not over.is_set():
            assert lock(name, using=alias, wait=0.05).acquire() is None

    with database_alias("file", settings), lock_alias("file", LOCATION="file") as alias:
        call_command("migrate", database="file", verbosity=0)
        cell = Cell.new("file", name)
        with lock(name, using=alias):
            waiters = [Elsewhere(wait).start() for _ in range(4)]
            lost.wait(20)
            try:
                for number in range(40):
                    with transaction.atomic(using="file"):
                        value = cell.read()
                        time.sleep(0.005)
                        cell.write(value + 1)
                    assert cell.read() == number + 1
            finally:
                over.set()
                for waiter in waiters:
                    waiter.result()


def test_a_file_that_is_busy_for_a_moment(name: str) -> None:
    with busy(0.2):
        lease = lock(name, using="sqlite", wait=5).acquire()
    assert lease
    with busy(0.2):
        lease.renew()
    lease.check()
    with busy(0.2):
        lease.release()
    assert not lock(name, using="sqlite").locked()


@pytest.mark.parametrize("wait", [0, 0.3])
def test_a_file_that_is_busy_for_longer_than_the_wait(name: str, wait: float) -> None:
    with busy(3.0):
        began = time.monotonic()
        with pytest.raises(
            LockBackendError, match=r"database is locked.*transactions short"
        ) as info:
            lock(name, using="sqlite", wait=wait).acquire()
        took = time.monotonic() - began
    assert info.value.name == name
    assert took < 3.0
    with lock(name, using="sqlite", wait=5):
        pass


def test_the_busy_limit_of_the_users_connection_is_put_back(name: str) -> None:
    connection = connections["sqlite"]
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        before = cursor.fetchone()
    with lock(name, using="sqlite", wait=0), connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        assert cursor.fetchone() == before
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        assert cursor.fetchone() == before
