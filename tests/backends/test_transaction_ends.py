"""Hard endings of a transaction: slow commits, failing callbacks, savepoints, no `atomic()`.

What counts is the database's own COMMIT or ROLLBACK, not the block of Python around it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connections, transaction

from django_distlock import UNSET, Lease, LockError, LockInTransactionError, lock, locks
from django_distlock.core.watchdog import worker_of
from django_distlock.signals import lock_released
from tests.backends.conftest import CASES, Case
from tests.backends.tools import (
    SERVERS,
    Cell,
    Elsewhere,
    Undo,
    database_alias,
    elsewhere,
    is_free,
    lock_alias,
    opened,
    soon,
    table,
    undone,
)

SLOW = 0.7  # seconds that a slow COMMIT takes
FREED_SOON = 3.0  # seconds, by far less than the ttl, in which a background thread has released


@pytest.fixture
def hold(case: Case) -> Iterator[str]:
    with case.alias("hold") as alias:
        yield alias


def freed_soon(name: str, alias: str) -> bool:
    """Tell whether another thread gets the lock long before its ttl would have ended."""

    def get() -> bool:
        lease = lock(name, using=alias, wait=FREED_SOON).acquire()
        if lease is not None:
            lease.release()
        return lease is not None

    return elsewhere(get)


# -- slow commits --------------------------------------------------------------------------------


def slow_commit(cell: Cell) -> None:
    """Make the COMMIT of a transaction that wrote the cell take a while, by a deferred trigger."""
    cell.execute(
        "CREATE OR REPLACE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql "
        f"AS $$ BEGIN PERFORM pg_sleep({SLOW}); RETURN NULL; END $$"
    )
    cell.execute("DROP TRIGGER IF EXISTS slow ON cell")
    cell.execute(
        "CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON cell DEFERRABLE INITIALLY DEFERRED "
        f"FOR EACH ROW WHEN (NEW.name = '{cell.name}') EXECUTE FUNCTION slow()"
    )


def waiter_of(name: str, alias: str, cell: Cell) -> Elsewhere[int]:
    """Start a thread that reads the cell when it is granted the lock."""

    def look() -> int:
        with lock(name, using=alias, wait=20):
            return cell.read()

    return Elsewhere(look).start()


if "postgresql" in SERVERS:
    on_postgresql = pytest.mark.parametrize(
        "case", [Case("table", "postgresql"), Case("locmem", "postgresql")], ids=lambda c: c.backend
    )

    @on_postgresql
    def test_a_commit_under_way_is_not_the_end(
        case: Case, hold: str, name: str, cell: Cell
    ) -> None:
        slow_commit(cell)
        with transaction.atomic(using=case.database):
            with lock(name, using=hold):
                cell.write(1)
            waiter = waiter_of(name, hold, cell)
        assert waiter.result() == 1

    @on_postgresql
    def test_a_commit_under_way_after_a_savepoint_was_rolled_back(
        case: Case, hold: str, name: str, cell: Cell
    ) -> None:
        slow_commit(cell)
        with transaction.atomic(using=case.database):
            cell.write(1)
            with undone(), transaction.atomic(using=case.database):
                with lock(name, using=hold):
                    pass
                raise Undo
            waiter = waiter_of(name, hold, cell)
        assert waiter.result() == 1

    @on_postgresql
    def test_a_commit_under_way_after_that_of_another_database(
        case: Case, hold: str, name: str, cell: Cell
    ) -> None:
        slow_commit(cell)
        with transaction.atomic(using=case.database):
            with transaction.atomic(using="default"), lock(name, using=hold):
                cell.write(1)
            waiter = waiter_of(name, hold, cell)
        assert waiter.result() == 1


def test_the_watchdog_looks_while_sqlite_commits(tmp_path: Path, name: str) -> None:
    """A reader of the file makes the COMMIT wait; a lock of the transaction is not lost by that."""
    settings = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db.sqlite3")}
    lost = threading.Event()

    def note(outcome: str, **facts: Any) -> None:
        if outcome == "lost":
            lost.set()

    with (
        database_alias("slow", settings) as connection,
        lock_alias("slow", LOCATION="slow") as alias,
    ):
        call_command("migrate", database="slow", verbosity=0)
        reader = connection.copy()
        reader.inc_thread_sharing()
        lock_released.connect(note)
        try:
            with transaction.atomic(using="slow"):
                with lock(name, using=alias, ttl=2.4):
                    pass
                with reader.cursor() as cursor:
                    cursor.execute("BEGIN")
                    cursor.execute("SELECT count(*) FROM distlock_lock")
                    cursor.fetchall()
                # The watchdog looks after 0.8 s, the third of the ttl.
                threading.Timer(1.2, lambda: reader.connection.rollback()).start()
            assert not lost.wait(0.1)
            assert table(alias).inspect(name) is None
        finally:
            lock_released.disconnect(note)
            reader.close()


# -- callbacks and savepoints --------------------------------------------------------------------


def test_a_failing_callback_of_the_user_does_not_keep_it(
    case: Case, hold: str, name: str, cell: Cell
) -> None:
    def fail() -> None:
        raise Undo

    with undone(), transaction.atomic(using=case.database):
        transaction.on_commit(fail, using=case.database)
        with lock(name, using=hold):
            cell.write(1)
    assert cell.read() == 1
    assert freed_soon(name, hold)


def test_released_in_a_savepoint_that_is_rolled_back(
    case: Case, hold: str, name: str, cell: Cell
) -> None:
    """Django drops the callback with the savepoint, while the grant is of the outer transaction."""
    with transaction.atomic(using=case.database):
        lease = lock(name, using=hold).acquire()
        assert lease
        with undone(), transaction.atomic(using=case.database):
            lease.release()
            raise Undo
        cell.write(1)
    assert freed_soon(name, hold)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.database not in ("mariadb", "mysql")],  # they defer none
    ids=lambda case: f"{case.backend}-{case.database}",
)
def test_a_failing_commit_frees_it(case: Case, hold: str, name: str, cell: Cell) -> None:
    if "owned" not in connections[case.database].introspection.table_names():
        reference = "REFERENCES cell (name) DEFERRABLE INITIALLY DEFERRED"
        cell.execute(f"CREATE TABLE owned (cell varchar(200) {reference})")
    reached = False
    with pytest.raises(IntegrityError), transaction.atomic(using=case.database):  # noqa: PT012
        with lock(name, using=hold):
            cell.write(1)
        cell.execute("INSERT INTO owned VALUES ('nobody')")
        reached = True
    assert reached
    assert freed_soon(name, hold)
    assert cell.read() == 0


def test_a_connection_closed_in_the_transaction_frees_it(
    case: Case, hold: str, name: str, cell: Cell
) -> None:
    with contextlib.suppress(Exception), transaction.atomic(using=case.database):
        with lock(name, using=hold):
            cell.write(1)
        connections[case.database].close()
    assert freed_soon(name, hold)
    assert cell.read() == 0


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if not case.bound],
    ids=lambda case: f"{case.backend}-{case.database}",
)
def test_taken_again_while_another_thread_frees_it(case: Case, hold: str, name: str) -> None:
    """After a rollback a background thread frees the lock; here just after we were told it is ours.

    Whether that is taken up again or waited for: it is no dead lock with ourselves.
    """
    gate = threading.Event()
    worker_of(locks[hold]).submit(lambda: opened(gate))
    with contextlib.suppress(Undo), transaction.atomic(using=case.database):
        with lock(name, using=hold):
            pass
        raise Undo
    steps = lock(name, using=hold, wait=10)._obtain(UNSET)
    lease: Lease | None = None
    try:
        step = next(steps)
        while True:
            answer = step.do()
            if getattr(step, "verb", "") == "renew":
                gate.set()
                assert soon(lambda: locks[hold].inspect(name) is None)
            step = steps.send(answer)
    except StopIteration as stop:
        lease = stop.value
    finally:
        gate.set()
    assert lease
    lease.check()
    assert not is_free(name, hold)
    lease.release()
    assert freed_soon(name, hold)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_lock_of_an_ended_transaction_was_released_not_lost(
    case: Case, hold: str, name: str, cell: Cell, end: str
) -> None:
    told: list[str] = []

    def released(outcome: str, **facts: Any) -> None:
        told.append(outcome)

    lock_released.connect(released)
    try:
        with contextlib.suppress(Undo), transaction.atomic(using=case.database):
            with lock(name, using=hold):
                cell.write(1)
            if end == "rollback":
                raise Undo
        limit = time.monotonic() + FREED_SOON
        while not told and time.monotonic() < limit:
            time.sleep(0.05)
    finally:
        lock_released.disconnect(released)
    assert told == ["released"]


# -- transactions without atomic() ---------------------------------------------------------------


@pytest.fixture
def by_hand(case: Case, cell: Cell) -> Iterator[str]:
    """A transaction begun by `set_autocommit(False)`."""
    transaction.set_autocommit(False, using=case.database)
    yield case.database
    transaction.rollback(using=case.database)
    transaction.set_autocommit(True, using=case.database)


def test_a_transaction_by_hand_is_neither_committed_nor_broken(
    by_hand: str, case: Case, hold: str, name: str, cell: Cell
) -> None:
    """Whether the lock is granted or refused: never both in the transaction and out of it."""
    cell.write(1)
    began = time.monotonic()
    with contextlib.suppress(LockError), lock(name, using=hold, wait=0.3):
        assert not is_free(name, hold)
    assert time.monotonic() - began < 6
    assert elsewhere(cell.read) == 0
    assert not transaction.get_autocommit(using=by_hand)
    transaction.rollback(using=by_hand)
    assert cell.read() == 0


def test_error_sees_a_transaction_by_hand(by_hand: str, case: Case, name: str, cell: Cell) -> None:
    cell.write(1)
    with case.alias("error") as alias, pytest.raises(LockInTransactionError):
        lock(name, using=alias, wait=0.3).acquire()
