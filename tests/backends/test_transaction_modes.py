"""IN_TRANSACTION "error" and "allow", and `lock(...).atomic()`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connections, transaction

from django_distlock import (
    LeaseLostError,
    LockBackendError,
    LockInTransactionError,
    lock,
)
from tests.backends.conftest import CASES, Case
from tests.backends.tools import (
    STORES,
    Cell,
    Undo,
    database_alias,
    elsewhere,
    follow,
    is_free,
    lock_alias,
    undone,
    unreachable,
)

at_once = pytest.mark.parametrize(
    "case",
    [case for case in CASES if not case.bound],
    ids=lambda case: f"{case.backend}-{case.database}",
)
"""Where the lock is not part of the caller's transaction, so that it can be freed before."""


# -- error ---------------------------------------------------------------------------------------


def test_error_raises_at_acquire_and_names_the_cure(case: Case, name: str) -> None:
    with case.alias("error") as alias:
        with transaction.atomic(using=case.database):
            with pytest.raises(LockInTransactionError, match=r"lock\(\.\.\.\)\.atomic\(\)") as info:
                lock(name, using=alias).acquire()
            with pytest.raises(LockInTransactionError), lock(name, using=alias):
                pytest.fail("the block was entered")
        assert (info.value.name, info.value.alias) == (name, alias)
        assert is_free(name, alias)


def test_error_looks_at_every_database_and_every_depth(case: Case, name: str) -> None:
    with (
        case.alias("error") as alias,
        transaction.atomic(using="default"),
        transaction.atomic(using=case.database),
        transaction.atomic(using=case.database),
        pytest.raises(LockInTransactionError),
    ):
        lock(name, using=alias).acquire()


def test_error_allows_it_outside_and_around_a_transaction(
    case: Case, name: str, cell: Cell
) -> None:
    with case.alias("error") as alias:
        with lock(name, using=alias), transaction.atomic(using=case.database):
            cell.write(1)
        with lock(name, using=alias).atomic(using=case.database):
            cell.write(2)
        assert is_free(name, alias)
    assert cell.read() == 2


@pytest.mark.parametrize("store", STORES)
def test_error_comes_before_the_store_is_touched(store: str, name: str) -> None:
    with (
        database_alias("nowhere", unreachable(store)),
        lock_alias("nowhere", LOCATION="nowhere", IN_TRANSACTION="error") as alias,
    ):
        with pytest.raises(LockBackendError):  # so touching it would be told
            lock(name, using=alias).acquire()
        with transaction.atomic(using=store), pytest.raises(LockInTransactionError):
            lock(name, using=alias).acquire()


# -- allow ---------------------------------------------------------------------------------------


@contextmanager
def warnings_of(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Collect the warnings about a release inside a transaction."""
    caplog.clear()
    found: list[str] = []
    with caplog.at_level(logging.WARNING, "django_distlock"):
        yield found
    found += [m for m in caplog.messages if "inside an open transaction" in m]


@at_once
def test_allow_frees_at_once_and_says_nothing(
    case: Case, name: str, cell: Cell, caplog: pytest.LogCaptureFixture
) -> None:
    with case.alias("allow") as alias, warnings_of(caplog) as found:
        with transaction.atomic(using=case.database):
            with lock(name, using=alias) as first:
                cell.write(1)
            with lock(name, using=alias) as second:
                assert second.fencing_token > first.fencing_token
            assert is_free(name, alias)
            assert elsewhere(cell.read) == 0
        assert elsewhere(cell.read) == 1
    assert found == []


@pytest.mark.parametrize("case", [case for case in CASES if case.bound], ids=lambda c: c.database)
def test_a_lock_written_in_the_transaction_ends_with_it(case: Case, name: str, cell: Cell) -> None:
    """On SQLite another connection cannot write before the commit, whatever is allowed."""
    with case.alias("allow") as alias:
        with transaction.atomic(using=case.database):
            with lock(name, using=alias) as first:
                cell.write(1)
            with lock(name, using=alias) as second:
                assert second.fencing_token > first.fencing_token
            waiter = follow(name, alias, cell)
        assert waiter.result() == 1


def test_allow_in_a_rolled_back_transaction(case: Case, name: str, cell: Cell) -> None:
    with case.alias("allow") as alias:
        with undone(), transaction.atomic(using=case.database):
            with lock(name, using=alias):
                cell.write(1)
            raise Undo
        assert is_free(name, alias)
    assert cell.read() == 0


# -- lock(...).atomic() --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["hold", "error", "allow"])
def test_atomic_commits_first_and_frees_after(case: Case, mode: str, name: str, cell: Cell) -> None:
    with case.alias(mode) as alias:
        with lock(name, using=alias).atomic(using=case.database) as lease:
            assert connections[case.database].in_atomic_block
            lease.check()
            cell.write(1)
            waiter = follow(name, alias, cell)
        assert waiter.result() == 1


def test_atomic_rolls_back_what_failed(case: Case, name: str, cell: Cell) -> None:
    with case.alias("hold") as alias:
        with undone(), lock(name, using=alias).atomic(using=case.database):
            cell.write(1)
            raise Undo
        assert is_free(name, alias)
    assert cell.read() == 0


def test_atomic_rolls_back_when_the_lease_was_lost(case: Case, name: str, cell: Cell) -> None:
    with case.alias("hold") as alias:
        brief = lock(name, using=alias, ttl=1.0, renew=False)
        with pytest.raises(LeaseLostError), brief.atomic(using=case.database) as lease:  # noqa: PT012
            cell.write(1)
            time.sleep(1.05)
            assert lease.lost
        assert is_free(name, alias)
    assert cell.read() == 0


def test_atomic_inside_another_transaction_is_refused(case: Case, name: str, cell: Cell) -> None:
    with case.alias("hold") as alias:
        with transaction.atomic(using=case.database):
            with (
                pytest.raises(RuntimeError, match="durable"),
                lock(name, using=alias).atomic(using=case.database),
            ):
                pytest.fail("the block was entered")
            cell.write(1)
        assert is_free(name, alias)
    assert cell.read() == 1


# -- decorated functions -------------------------------------------------------------------------


def test_a_decorated_function_called_in_a_transaction(case: Case, name: str, cell: Cell) -> None:
    with case.alias("hold") as alias:

        @lock(name, using=alias)
        def work(value: int) -> int:
            cell.write(value)
            return value

        with transaction.atomic(using=case.database):
            assert work(1) == 1
            assert work(2) == 2
            waiter = follow(name, alias, cell)
        assert waiter.result() == 2


def test_a_decorated_function_that_skips(case: Case, name: str) -> None:
    with case.alias("hold") as alias:

        @lock(name, using=alias, wait=0, on_contention="skip", default="skipped")
        def work() -> str:
            return "done"

        lease = lock(name, using=alias).acquire()
        assert lease
        with transaction.atomic(using="default"):
            assert elsewhere(work) == "skipped"
        lease.release()
        assert work() == "done"
