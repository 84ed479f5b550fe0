"""`lock_rows`: the application's own rows, locked in its own transaction."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.models import TextField, Value

from django_distlock import (
    InvalidLockError,
    LockDeadlockError,
    LockNotAcquiredError,
    LockTimeoutError,
    UnsupportedOperationError,
)
from django_distlock.models import LockRow
from django_distlock.rows import lock_rows
from tests.backends.tools import (
    LIMIT,
    SERVERS,
    Elsewhere,
    database_alias,
    one_value,
    weak_role,
)
from tests.servers import ByStore

on_servers = pytest.mark.parametrize("store", SERVERS)
LIMITS = {
    "postgresql": "SHOW lock_timeout",
    "mariadb": "SELECT @@max_statement_time",
    "mysql": "SELECT @@max_execution_time",
}


@pytest.fixture
def keys(store: str, name: str) -> list[str]:
    """Two rows of a table that stands for one of the application's."""
    made = [f"{number}{abs(hash(name)):x}"[:60] for number in "ab"]
    for key in made:
        LockRow.objects.using(store).create(digest=key, name=name)
    return made


def rows(store: str, *keys: str) -> Any:
    """Return a queryset of some rows."""
    return LockRow.objects.using(store).filter(digest__in=keys).order_by("digest")


@contextmanager
def locked_elsewhere(store: str, key: str) -> Iterator[Callable[[], None]]:
    """Have another transaction keep a row locked, until the given function is called."""
    locked, over = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic(using=store):
            lock_rows(rows(store, key))
            locked.set()
            assert over.wait(LIMIT)

    with Elsewhere(hold):
        assert locked.wait(LIMIT)
        try:
            yield over.set
        finally:
            over.set()


@on_servers
def test_rows_are_locked_until_the_transaction_ends(store: str, keys: list[str]) -> None:
    with transaction.atomic(using=store):
        found = lock_rows(rows(store, *keys))
        assert [row.digest for row in found] == keys

        def ask() -> list[LockRow]:
            with transaction.atomic(using=store):
                return lock_rows(rows(store, *keys), skip_locked=True)

        assert Elsewhere(ask).start().result() == []
    assert len(Elsewhere(ask).start().result()) == 2


@on_servers
@pytest.mark.parametrize("options", [{"nowait": True}, {"wait": 0}])
def test_locked_rows_are_an_error_at_once(
    store: str, keys: list[str], options: dict[str, Any]
) -> None:
    """And the transaction goes on."""
    with locked_elsewhere(store, keys[0]), transaction.atomic(using=store):
        began = time.monotonic()
        with pytest.raises(LockNotAcquiredError, match="distlock_lock") as info:
            lock_rows(rows(store, *keys), **options)
        assert not isinstance(info.value, LockTimeoutError)
        assert time.monotonic() - began < 5.0
        assert len(lock_rows(rows(store, keys[1]), **options)) == 1


@on_servers
def test_a_wait_is_limited_by_the_server(store: str, keys: list[str]) -> None:
    with locked_elsewhere(store, keys[0]), transaction.atomic(using=store):
        began = time.monotonic()
        with pytest.raises(LockTimeoutError):
            lock_rows(rows(store, *keys), wait=0.3)
        assert 0.25 <= time.monotonic() - began < 5
        assert len(lock_rows(rows(store, keys[1]), wait=0.3)) == 1
        assert float(one_value(store, LIMITS[store])) == 0


@on_servers
@pytest.mark.parametrize("wait", [20, None])
def test_a_wait_may_be_worth_it(store: str, keys: list[str], wait: float | None) -> None:
    with locked_elsewhere(store, keys[0]) as end, transaction.atomic(using=store):
        threading.Timer(0.2, end).start()
        assert len(lock_rows(rows(store, *keys), wait=wait)) == 2
        assert float(one_value(store, LIMITS[store])) == 0


@on_servers
def test_contention_may_be_no_error(store: str, keys: list[str]) -> None:
    told: list[LockNotAcquiredError] = []

    def note(error: LockNotAcquiredError) -> list[LockRow]:
        told.append(error)
        return []

    with locked_elsewhere(store, keys[0]), transaction.atomic(using=store):
        assert lock_rows(rows(store, *keys), nowait=True, on_contention="skip") == []
        assert lock_rows(rows(store, *keys), wait=0.1, on_contention=note) == []
    assert [type(error) for error in told] == [LockTimeoutError]


def crossed(one: list[Any], other: list[Any]) -> LockDeadlockError:
    """Return the error of two of whom each locks its first and then wants its second."""
    both = threading.Barrier(2)
    errors: list[LockDeadlockError] = []

    def cross(first: Any, second: Any) -> Callable[[], None]:
        def work() -> None:
            try:
                with transaction.atomic(using=first.db):
                    lock_rows(first)
                    both.wait(LIMIT)
                    lock_rows(second)
            except LockDeadlockError as error:
                errors.append(error)

        return work

    with Elsewhere(cross(*one)), Elsewhere(cross(*other)):
        pass
    (error,) = errors
    return error


def wide(queryset: Any, length: int) -> Any:
    """Have a queryset ask for a long list of columns."""
    return queryset.annotate(wide=Value("x" * length, output_field=TextField()))


@on_servers
@pytest.mark.parametrize("length", [0, 500])
def test_a_cross_dead_lock_is_an_error_that_names_both_sides(
    store: str, keys: list[str], length: int
) -> None:
    """Each has one row and wants the other's; the database ends one of them."""
    first, second = (wide(rows(store, key), length) for key in keys)
    said = str(crossed([first, second], [second, first]))
    assert "each of which has locked what the other one wants" in said
    assert said.count("distlock_lock") >= 2
    assert ByStore(postgresql="Process", mariadb="Locked are rows of")[store] in said
    assert all(key in said for key in keys), said
    assert "cut off" not in said


@pytest.mark.parametrize("store", [store for store in SERVERS if store == "postgresql"])
def test_a_statement_that_the_server_cuts_off_is_said_to_be(store: str, keys: list[str]) -> None:
    first, second = (wide(rows(store, key), 3000) for key in keys)
    said = str(crossed([first, second], [second, first]))
    assert "track_activity_query_size" in said
    assert sum(key in said for key in keys) == 1


@on_servers
def test_a_role_that_may_not_see_the_other_side_is_told(store: str, keys: list[str]) -> None:
    """Its own statement it knows; two roles, because PostgreSQL shows a role what is its own."""
    one, other = weak_role(store, "viewer1"), weak_role(store, "viewer2")
    with database_alias("viewer1", one), database_alias("viewer2", other):
        first, second = [[rows(role, key) for key in keys] for role in ("viewer1", "viewer2")]
        said = str(crossed(first, second[::-1]))
    grant = ByStore(postgresql="GRANT pg_read_all_stats", mariadb="GRANT PROCESS")[store]
    assert grant in said
    assert "<insufficient privilege>" not in said
    assert sum(key in said for key in keys) == 1


@on_servers
def test_outside_of_a_transaction_nothing_would_stay_locked(store: str, keys: list[str]) -> None:
    with pytest.raises(InvalidLockError, match="atomic"):
        lock_rows(rows(store, *keys))


@on_servers
@pytest.mark.parametrize(
    "options",
    [
        {"nowait": True, "skip_locked": True},
        {"nowait": True, "wait": 1},
        {"skip_locked": True, "wait": 1},
        {"wait": -1},
        {"on_contention": "ignore"},
    ],
)
def test_what_makes_no_sense_is_refused(
    store: str, keys: list[str], options: dict[str, Any]
) -> None:
    with transaction.atomic(using=store), pytest.raises(InvalidLockError):
        lock_rows(rows(store, *keys), **options)


def test_a_database_without_row_locks_is_refused() -> None:
    with transaction.atomic(), pytest.raises(UnsupportedOperationError, match="no row locks"):
        lock_rows(LockRow.objects.all())


@on_servers
def test_another_error_stays_what_it_is(store: str, keys: list[str]) -> None:
    """The driver's own, as Django raises it."""
    wrong = rows(store, *keys).extra(where=["no_such_column = 1"])
    with pytest.raises(Exception, match="no_such_column") as info, transaction.atomic(using=store):
        lock_rows(wrong)
    assert "DatabaseError" in {kind.__name__ for kind in type(info.value).__mro__}
    connections[store].close()
