"""The cursor that is used again, and all that Django does when one is made."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import DatabaseError
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_distlock import LockBackendError, lock
from django_distlock.backends.table.cursor import cursor_of

T = TypeVar("T")


def in_thread(work: Callable[[], T]) -> T:
    """Return what ``work`` returns on a thread of its own."""
    seen: list[T] = []
    thread = threading.Thread(target=lambda: seen.append(work()))
    thread.start()
    thread.join()
    return seen[0]


def ask(connection: BaseDatabaseWrapper, number: int = 1) -> object:
    """Run a statement, and return the cursor that it was run by."""
    with cursor_of(connection) as cursor:
        cursor.execute("SELECT %s", [number])
        assert [int(value) for (value,) in cursor.fetchall()] == [number]
    return cursor


def fail(connection: BaseDatabaseWrapper) -> None:
    """Run a statement that is wrong."""
    with cursor_of(connection) as cursor:
        cursor.execute("SELECT nothing FROM nowhere")


def pair(name: str, store: str) -> None:
    """Acquire and release."""
    with lock(name, using=store, wait=0):
        pass


def test_the_same_cursor_is_used_again(store: str) -> None:
    assert ask(connections[store]) is ask(connections[store], 2)


def test_a_connection_that_was_opened_anew_has_a_new_one(store: str) -> None:
    before = ask(connections[store])
    connections[store].close()
    after = ask(connections[store])
    assert after is not before
    assert after is ask(connections[store])


def test_another_connection_has_another_one(store: str) -> None:
    before = ask(connections[store])
    other = connections[store].copy()
    try:
        assert ask(other) is not before
        assert ask(connections[store], 2) is not before
    finally:
        other.close()


def test_each_thread_has_its_own(store: str) -> None:
    connection = connections[store]
    mine = ask(connection)
    connection.inc_thread_sharing()
    try:
        assert in_thread(lambda: ask(connection)) is not mine
    finally:
        connection.dec_thread_sharing()
    assert ask(connection) is mine


def test_one_in_use_is_not_used_by_another(store: str) -> None:
    # As when the handler of a signal asks between a statement and the reading of its answer.
    connection = connections[store]
    ask(connection)
    with cursor_of(connection) as outer:
        outer.execute("SELECT 1")
        assert ask(connection, 2) is not outer
        assert [int(value) for (value,) in outer.fetchall()] == [1]


def test_one_that_met_an_error_is_not_used_again(store: str) -> None:
    connection = connections[store]
    before = ask(connection)
    with pytest.raises(DatabaseError):
        fail(connection)
    assert connection.errors_occurred
    assert ask(connection) is not before


def test_queries_are_logged_from_the_next_one_on(store: str, name: str) -> None:
    pair(name, store)
    with CaptureQueriesContext(connections[store]) as seen:
        pair(name, store)
    assert len(seen) == 2
    pair(name, store)
    with override_settings(DEBUG=True):
        connections[store].queries_log.clear()
        pair(name, store)
        assert len(connections[store].queries_log) == 2


def test_wrappers_are_called_and_may_use_the_lock_themselves(store: str, name: str) -> None:
    for each in (name, f"{name}:inner"):
        pair(each, store)
    seen: list[str] = []

    def wrapper(execute: Any, sql: str, *more: Any) -> Any:
        answer = execute(sql, *more)
        seen.append(sql.split()[0])
        if len(seen) == 1:
            pair(f"{name}:inner", store)
        return answer

    with connections[store].execute_wrapper(wrapper):
        pair(name, store)
    assert len(seen) == 4


def test_a_cursor_method_that_was_replaced_is_called(
    store: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So do Django's guard of tests without a database, which leaves the method on the connection
    # when it is taken away, and tools that measure.
    monkeypatch.delitem(vars(connections[store]), "cursor", raising=False)

    def guard(*_: Any) -> Any:
        raise AssertionError("no database here")

    pair(name, store)
    with monkeypatch.context() as patch:
        patch.setattr(connections[store], "cursor", guard)
        with pytest.raises(AssertionError, match="no database here"):
            pair(name, store)
    pair(name, store)
    with monkeypatch.context() as patch:
        patch.setattr(BaseDatabaseWrapper, "cursor", guard)
        with pytest.raises(AssertionError, match="no database here"):
            pair(name, store)


def test_an_event_loop_is_refused_as_by_django(store: str) -> None:
    connection = connections[store]  # asked for on the loop, it would be another one

    async def main() -> None:
        with cursor_of(connection):
            pass

    ask(connection)
    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(main())


def test_errors_are_djangos(store: str, name: str) -> None:
    pair(name, store)
    with connections[store].cursor() as cursor:
        cursor.execute("ALTER TABLE distlock_lock RENAME TO distlock_moved")
    try:
        with pytest.raises(LockBackendError) as caught:
            pair(name, store)
    finally:
        with connections[store].cursor() as cursor:
            cursor.execute("ALTER TABLE distlock_moved RENAME TO distlock_lock")
    assert isinstance(caught.value.__cause__, DatabaseError)
    pair(name, store)
