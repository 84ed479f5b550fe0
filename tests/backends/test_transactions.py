"""IN_TRANSACTION "hold": a lock released in a transaction is kept until that has ended.

The next holder is another thread that waits from before the end; what it reads when it is granted
tells whether the lock was freed before the commit.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import DatabaseError, transaction

from django_distlock import Lease, lock
from tests.backends.conftest import Case
from tests.backends.tools import Cell, Elsewhere, Undo, elsewhere, follow, is_free, stays, undone

OTHER = "default"  # a second DATABASES alias on which a transaction can be open


@pytest.fixture
def hold(case: Case) -> Iterator[str]:
    with case.alias("hold") as alias:
        yield alias


def test_kept_until_the_commit(case: Case, hold: str, name: str, cell: Cell) -> None:
    with transaction.atomic(using=case.database):
        with lock(name, using=hold) as lease:
            cell.write(1)
        assert lease.remaining() == 0  # the program has released it
        waiter = follow(name, hold, cell)
    assert waiter.result() == 1


def test_kept_until_the_rollback(case: Case, hold: str, name: str, cell: Cell) -> None:
    with undone(), transaction.atomic(using=case.database):
        with lock(name, using=hold):
            cell.write(1)
        waiter = follow(name, hold, cell)
        raise Undo
    assert waiter.result() == 0


def test_an_error_in_the_body_wins_and_frees_at_the_rollback(
    case: Case, hold: str, name: str, cell: Cell
) -> None:
    waiter: Elsewhere[int] | None = None
    with undone(), transaction.atomic(using=case.database):
        try:
            with lock(name, using=hold):
                cell.write(1)
                raise Undo
        finally:
            waiter = follow(name, hold, cell)
    assert waiter is not None
    assert waiter.result() == 0


def test_set_rollback_without_an_error_frees_it_too(
    case: Case, hold: str, name: str, cell: Cell
) -> None:
    with transaction.atomic(using=case.database):
        with lock(name, using=hold):
            cell.write(1)
        waiter = follow(name, hold, cell)
        transaction.set_rollback(True, using=case.database)
    assert waiter.result() == 0


def test_an_inner_atomic_is_not_the_end(case: Case, hold: str, name: str, cell: Cell) -> None:
    with transaction.atomic(using=case.database):
        with transaction.atomic(using=case.database), lock(name, using=hold):
            cell.write(1)
        waiter = follow(name, hold, cell)
        cell.write(2)
    assert waiter.result() == 2


def test_an_inner_rollback_is_not_the_end(case: Case, hold: str, name: str, cell: Cell) -> None:
    with transaction.atomic(using=case.database):
        cell.write(1)
        with undone(), transaction.atomic(using=case.database):
            with lock(name, using=hold):
                cell.write(2)
            raise Undo
        waiter = follow(name, hold, cell)
        stays(waiter)
    assert waiter.result() == 1


def test_an_outer_rollback_after_an_inner_commit_is_the_end(
    case: Case, hold: str, name: str, cell: Cell
) -> None:
    with undone(), transaction.atomic(using=case.database):
        with transaction.atomic(using=case.database), lock(name, using=hold):
            cell.write(1)
        waiter = follow(name, hold, cell)
        raise Undo
    assert waiter.result() == 0


def test_without_a_savepoint_too(case: Case, hold: str, name: str, cell: Cell) -> None:
    with undone(), transaction.atomic(using=case.database):
        inner = transaction.atomic(using=case.database, savepoint=False)
        with inner, lock(name, using=hold):
            cell.write(1)
        waiter = follow(name, hold, cell)
        raise Undo
    assert waiter.result() == 0


def test_taken_outside_and_released_inside(case: Case, hold: str, name: str, cell: Cell) -> None:
    lease = lock(name, using=hold).acquire()
    assert lease
    with transaction.atomic(using=case.database):
        cell.write(1)
        lease.release()
        waiter = follow(name, hold, cell)
    assert waiter.result() == 1


def test_around_the_transaction_it_is_freed_at_its_own_end(
    case: Case, hold: str, name: str, cell: Cell
) -> None:
    with lock(name, using=hold):
        with transaction.atomic(using=case.database):
            cell.write(1)
        waiter = follow(name, hold, cell)
    assert waiter.result() == 1


def test_a_durable_atomic_is_a_transaction_as_any(
    case: Case, hold: str, name: str, cell: Cell
) -> None:
    with transaction.atomic(using=case.database, durable=True):
        with lock(name, using=hold):
            cell.write(1)
        waiter = follow(name, hold, cell)
    assert waiter.result() == 1


def test_two_databases_the_inner_ends_first(case: Case, hold: str, name: str, cell: Cell) -> None:
    with transaction.atomic(using=OTHER):
        with transaction.atomic(using=case.database), lock(name, using=hold):
            cell.write(1)
        waiter = follow(name, hold, cell)
    assert waiter.result() == 1


def test_two_databases_the_data_commits_last(case: Case, hold: str, name: str, cell: Cell) -> None:
    with transaction.atomic(using=case.database):
        with transaction.atomic(using=OTHER), lock(name, using=hold):
            cell.write(1)
        waiter = follow(name, hold, cell)
    assert waiter.result() == 1


def test_two_databases_one_rolled_back(case: Case, hold: str, name: str, cell: Cell) -> None:
    with transaction.atomic(using=case.database):
        with undone(), transaction.atomic(using=OTHER):
            with lock(name, using=hold):
                cell.write(1)
            raise Undo
        waiter = follow(name, hold, cell)
    assert waiter.result() == 1


def test_taken_again_in_the_transaction_it_is_the_same_hold(
    case: Case, hold: str, name: str, cell: Cell
) -> None:
    with transaction.atomic(using=case.database):
        with lock(name, using=hold) as first:
            cell.write(1)
        with lock(name, using=hold) as second:
            cell.write(2)
            assert second.fencing_token == first.fencing_token
            assert second.remaining() > 0
        with lock(name, using=hold) as third:
            assert third.fencing_token == first.fencing_token
        waiter = follow(name, hold, cell)
    assert waiter.result() == 2
    with lock(name, using=hold) as later:
        assert later.fencing_token > first.fencing_token


def test_still_held_by_a_block_when_the_transaction_ends(
    case: Case, hold: str, name: str, cell: Cell
) -> None:
    """A lease that was taken again and is in use belongs to its block, not to the transaction."""
    again: Lease | None = None
    with transaction.atomic(using=case.database):
        with lock(name, using=hold):
            cell.write(1)
        again = lock(name, using=hold).acquire()
    assert again
    again.check()
    waiter = follow(name, hold, cell)
    again.release()
    assert waiter.result() == 1


def test_an_aborted_statement_does_not_keep_it(
    case: Case, hold: str, name: str, cell: Cell
) -> None:
    """On PostgreSQL a failed statement aborts the transaction: nothing runs on it any more."""
    with (
        pytest.raises(DatabaseError, match="no_such_table"),
        transaction.atomic(using=case.database),
        lock(name, using=hold),
    ):
        cell.execute("SELECT * FROM no_such_table")
    assert elsewhere(lock(name, using=hold, wait=10).acquire)


def test_many_locks_of_one_transaction(case: Case, hold: str, name: str, cell: Cell) -> None:
    names = [f"{name}:{number}" for number in range(5)]
    with transaction.atomic(using=case.database):
        for each in names:
            with lock(each, using=hold):
                cell.write(1)
        waiters = [follow(each, hold, cell) for each in (names[0], names[-1])]
    assert [waiter.result() for waiter in waiters] == [1, 1]
    assert all(is_free(each, hold) for each in names)
