"""The lock table by the ORM alone: what happens between its statements.

That it keeps the contract is shown by the contract suite. Here each race is made certain: what
gets in the way is done just before the statement that it gets in the way of.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction

from django_distlock import LockBackendError, lock, lock_all, locks
from django_distlock.backends.table import TableBackend
from django_distlock.backends.table.errors import Outrun
from django_distlock.core.values import Claim, Grant, Refusal
from django_distlock.exceptions import (
    LockNotHeldError,
)
from django_distlock.models import LockRow
from tests.backends.tools import (
    SERVERS,
    Cell,
    database_alias,
    elsewhere,
    lock_alias,
    table,
)
from tests.conftest import SERVERS as STARTED
from tests.patience import ANSWERED
from tests.proxy import Proxy


@pytest.fixture
def backend(store: str) -> TableBackend:
    """The table of a store, by the ORM."""
    return table(f"portable-{store}")


def claim(backend: TableBackend, name: str, ttl: float = 30.0) -> Claim:
    """Return a claim by a new owner."""
    return Claim(name, backend.key(name), secrets.token_hex(16), ttl, '{"host":"here"}')


def row(backend: TableBackend, name: str) -> LockRow:
    """Return the row of a name."""
    return LockRow.objects.using(backend.database).get(digest=backend.key(name))


@contextmanager
def cut_in(backend: TableBackend, verb: str, *things: Callable[[], Any]) -> Iterator[None]:
    """Do a thing, in a thread of its own, before each of our statements of a kind."""
    left = list(things)

    def before(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if sql.startswith(verb) and "distlock_lock" in sql and left:
            elsewhere(left.pop(0))
        return execute(sql, *rest)

    with connections[backend.database].execute_wrapper(before):
        yield
    assert not left, "it was not got in the way of"


def take(backend: TableBackend, theirs: Claim) -> Callable[[], None]:
    """Return a function that takes a lock and keeps it."""

    def work() -> None:
        assert isinstance(backend.try_acquire(theirs, 5.0), Grant)

    return work


# -- races ---------------------------------------------------------------------------------------


def test_somebody_is_faster_to_take_a_free_row(backend: TableBackend, name: str) -> None:
    first, ours, theirs = (claim(backend, name) for _ in range(3))
    take(backend, first)()
    backend.release(first)
    with cut_in(backend, "UPDATE", take(backend, theirs)):
        answer = backend.try_acquire(ours, 5.0)
    assert isinstance(answer, Refusal)
    assert answer.remaining is not None
    assert 29 < answer.remaining <= 30
    assert answer.note == theirs.note
    assert row(backend, name).owner == theirs.owner
    assert backend.release(theirs)


def test_somebody_was_faster_and_is_gone(backend: TableBackend, name: str) -> None:
    """The row is free again, and yet not as it was seen: its token has grown."""
    first, ours, theirs = (claim(backend, name) for _ in range(3))
    take(backend, first)()
    backend.release(first)
    tokens = []

    def come_and_go() -> None:
        answer = backend.try_acquire(theirs, 5.0)
        assert isinstance(answer, Grant)
        tokens.append(answer.fencing_token)
        assert backend.release(theirs)

    with cut_in(backend, "UPDATE", come_and_go):
        answer = backend.try_acquire(ours, 5.0)
    assert isinstance(answer, Grant)
    assert answer.fencing_token > tokens[0]
    assert backend.release(ours)


def test_somebody_is_faster_to_make_the_row(backend: TableBackend, name: str) -> None:
    ours, theirs = claim(backend, name), claim(backend, name)
    with cut_in(backend, "INSERT", take(backend, theirs)):
        answer = backend.try_acquire(ours, 5.0)
    assert isinstance(answer, Refusal)
    assert answer.note == theirs.note
    assert backend.release(theirs)


def test_somebody_takes_the_row_that_we_made(backend: TableBackend, name: str) -> None:
    ours, theirs = claim(backend, name), claim(backend, name)
    with cut_in(backend, "UPDATE", take(backend, theirs)):
        answer = backend.try_acquire(ours, 5.0)
    assert isinstance(answer, Refusal)
    assert backend.release(theirs)


def test_no_token_is_older_than_that_of_a_row_cleaned_away(
    backend: TableBackend, name: str
) -> None:
    """Another comes, goes, and is cleaned away while we are about to make the row."""
    ours, theirs = claim(backend, name), claim(backend, name)
    tokens = []

    def come_go_and_be_forgotten() -> None:
        answer = backend.try_acquire(theirs, 5.0)
        assert isinstance(answer, Grant)
        tokens.append(answer.fencing_token)
        backend.release(theirs)
        row(backend, name).delete(using=backend.database)

    with cut_in(backend, "INSERT", come_go_and_be_forgotten):
        answer = backend.try_acquire(ours, 5.0)
    assert isinstance(answer, Grant)
    assert answer.fencing_token > tokens[0]
    assert backend.release(ours)


def test_the_owner_whose_answer_was_lost_is_granted_the_same(
    backend: TableBackend, name: str
) -> None:
    ours = claim(backend, name)
    answer = backend.try_acquire(ours, 5.0)
    acquired = row(backend, name).acquired
    again = backend.try_acquire(ours, 5.0)
    assert answer == again
    assert row(backend, name).acquired == acquired
    assert backend.release(ours)


def test_a_renewal_that_was_held_up_takes_nothing_back(backend: TableBackend, name: str) -> None:
    ours = claim(backend, name)
    take(backend, ours)()
    with cut_in(backend, "UPDATE", lambda: backend.renew(ours)):
        assert backend.renew(ours)
    later: list[int] = []

    def renew() -> None:
        assert backend.renew(ours)
        later.append(row(backend, name).expires)

    with (
        cut_in(backend, "UPDATE", renew, renew),
        pytest.raises(Outrun, match="another renewal") as info,
    ):
        backend.statements().renew(connections[backend.database], ours)
    assert backend.is_conflict(info.value)
    assert row(backend, name).expires == later[-1]
    assert backend.release(ours)


def test_a_batch_of_renewals_makes_nothing_shorter(backend: TableBackend, name: str) -> None:
    ours = claim(backend, name, ttl=100.0)
    lost = claim(backend, f"{name}:lost")
    take(backend, ours)()
    before = row(backend, name).expires
    short = Claim(ours.name, ours.key, ours.owner, 10.0, ours.note)
    assert backend.renew_many([short, lost]) == [True, False]
    assert row(backend, name).expires == before
    assert backend.renew_many([ours]) == [True]
    assert row(backend, name).expires > before
    assert backend.renew(short)  # alone it does what it is told
    assert row(backend, name).expires < before
    assert backend.release(ours)


def test_a_lock_that_changed_hands_is_not_released(backend: TableBackend, name: str) -> None:
    ours, theirs = claim(backend, name), claim(backend, name)
    take(backend, ours)()

    def change_hands() -> None:
        locks[backend.alias].force_release(name)
        take(backend, theirs)()

    with cut_in(backend, "UPDATE", change_hands):
        assert backend.release(ours) is False
    assert row(backend, name).owner == theirs.owner
    with pytest.raises(LockNotHeldError):
        locks[backend.alias].force_release(name, fencing_token=1)
    assert backend.release(theirs)


# -- in the transaction of a TestCase ------------------------------------------------------------


@contextmanager
def in_testcase(database: str) -> Iterator[None]:
    """Open a transaction as Django's TestCase does."""
    block: Any = transaction.atomic(using=database)
    block._from_testcase = True
    with block:
        yield
        transaction.set_rollback(True, using=database)


@pytest.mark.parametrize("store", SERVERS)
def test_the_transaction_outlives_a_row_made_by_another(
    store: str, backend: TableBackend, name: str, cell: Cell
) -> None:
    """On SQLite nobody else can write meanwhile."""
    theirs = claim(backend, name)
    with in_testcase(store):
        cell.write(1)
        with cut_in(backend, "INSERT", take(backend, theirs)):
            answer = backend.try_acquire(claim(backend, name), 5.0)
        assert isinstance(answer, Refusal)
        assert cell.read() == 1
        with lock(f"{name}:other", using=backend.alias):
            cell.write(2)
        assert cell.read() == 2
    assert cell.read() == 0
    assert backend.release(theirs)


def test_another_error_than_a_double_key_is_told(
    store: str, quiet: dict[str, Any], name: str
) -> None:
    """Without a row afterwards it was not because somebody was faster."""
    add, drop = {
        "sqlite": (
            "CREATE TRIGGER never BEFORE INSERT ON distlock_lock"
            " BEGIN SELECT RAISE(ABORT, 'never'); END",
            "DROP TRIGGER never",
        ),
    }.get(
        store,
        (
            "ALTER TABLE distlock_lock ADD CONSTRAINT never CHECK (token > 0)",
            "ALTER TABLE distlock_lock DROP CONSTRAINT never",
        ),
    )
    with (
        database_alias("own", quiet),
        lock_alias("own", LOCATION="own", OPTIONS={"SQL": "portable"}) as alias,
    ):
        execute("own", add)
        try:
            with pytest.raises(LockBackendError, match="never") as info:
                lock(name, using=alias, wait=0).acquire()
        finally:
            execute("own", drop)
    assert isinstance(info.value.__cause__, IntegrityError)


def execute(database: str, sql: str) -> None:
    """Execute a statement."""
    with connections[database].cursor() as cursor:
        cursor.execute(sql)


# -- a row that somebody has locked --------------------------------------------------------------


@pytest.mark.parametrize("store", SERVERS)
def test_a_row_locked_by_a_transaction_is_waited_for_as_an_answer_is(
    store: str, backend: TableBackend, name: str
) -> None:
    """No limit for it can be set in the ORM's words."""
    first = claim(backend, name)
    take(backend, first)()
    backend.release(first)
    free = LockRow.objects.using("rival").filter(digest=first.key)
    with database_alias("rival", dict(connections.settings[store])):
        with transaction.atomic(using="rival"):
            assert free.update(acquired=1) == 1
            began = time.monotonic()
            with pytest.raises(LockBackendError, match=f"no answer within {ANSWERED:g} s"):
                lock(name, using=backend.alias, wait=0).acquire()
            assert time.monotonic() - began < 8
            transaction.set_rollback(True, using="rival")
        with lock(name, using=backend.alias, wait=5) as lease:
            assert lease.fencing_token > 0


@pytest.mark.parametrize("store", SERVERS)
def test_many_locks_of_a_slow_server_may_take_longer_than_a_statement(
    store: str, name: str
) -> None:
    """COMMAND_TIMEOUT is for one of them, not for all."""
    server = STARTED[store]
    with (
        Proxy(server.port) as proxy,
        database_alias("slow", server.settings("distlock") | {"PORT": proxy.port}),
        lock_alias("many", LOCATION="slow", OPTIONS={"SQL": "portable", "COMMAND_TIMEOUT": 2.0}),
    ):
        with lock(f"{name}:first", using="many"):
            pass
        proxy.delay(0.06)
        with lock_all(*(f"{name}:{number}" for number in range(12)), using="many") as leases:
            assert len(leases) == 12
