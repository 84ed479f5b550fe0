"""Asynchronous code below synchronous code that has a transaction open (`async_to_sync`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import transaction

from django_distlock import LockInTransactionError, lock
from tests.backends.conftest import CASES, Case
from tests.backends.tools import Cell, Undo, elsewhere, follow, is_free, stays, undone


@pytest.fixture
def hold(case: Case) -> Iterator[str]:
    with case.alias("hold") as alias:
        yield alias


@async_to_sync
async def use(name: str, alias: str, cell: Cell, value: int) -> int:
    """Write a cell under a lock, on an event loop; return the lease's token."""
    async with lock(name, using=alias, wait=2) as lease:
        await sync_to_async(cell.write)(value)
        return lease.fencing_token


@async_to_sync
async def try_once(name: str, alias: str) -> bool:
    """Tell whether the lock is granted on an event loop."""
    lease = await lock(name, using=alias).aacquire(wait=0)
    if lease:
        await lease.arelease()
    return lease is not None


def test_kept_until_the_commit(case: Case, hold: str, name: str, cell: Cell) -> None:
    with transaction.atomic(using=case.database):
        use(name, hold, cell, 1)
        waiter = follow(name, hold, cell)
    assert waiter.result() == 1


def test_kept_until_the_rollback(case: Case, hold: str, name: str, cell: Cell) -> None:
    with undone(), transaction.atomic(using=case.database):
        use(name, hold, cell, 1)
        waiter = follow(name, hold, cell)
        raise Undo
    assert waiter.result() == 0


def test_from_a_child_task_and_gathered(case: Case, hold: str, name: str, cell: Cell) -> None:
    async def one(number: int) -> None:
        async with lock(f"{name}:{number}", using=hold, wait=2):
            await asyncio.sleep(0)

    @async_to_sync
    async def gathered() -> None:
        await asyncio.gather(one(1), one(2), asyncio.create_task(one(3)))

    with transaction.atomic(using=case.database):
        gathered()
        cell.write(1)
        waiters = [follow(f"{name}:{number}", hold, cell) for number in (1, 3)]
    assert [waiter.result() for waiter in waiters] == [1, 1]


def test_error(case: Case, name: str) -> None:
    with case.alias("error") as alias:
        with transaction.atomic(using=case.database), pytest.raises(LockInTransactionError):
            try_once(name, alias)
        assert try_once(name, alias)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if not case.bound],
    ids=lambda case: f"{case.backend}-{case.database}",
)
def test_allow_frees_at_once(case: Case, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with case.alias("allow") as alias, transaction.atomic(using=case.database):
        assert try_once(name, alias)
        assert is_free(name, alias)
    assert "inside an open transaction" not in caplog.text


def test_no_transaction_of_another_thread_is_seen(case: Case, hold: str, name: str) -> None:
    """An event loop of its own has no part in a transaction that another thread has open."""

    async def loop() -> bool:
        lease = await lock(name, using=hold, wait=2).aacquire()
        assert lease
        await lease.arelease()
        return not await lock(name, using=hold).alocked()

    other = case.database if case.database != "sqlite" else "default"
    with transaction.atomic(using=other):
        assert elsewhere(lambda: asyncio.run(loop()))


# The lock belongs to the transaction, whichever task or thread of it asks.


def test_taken_twice_by_tasks_of_the_same_transaction(
    case: Case, hold: str, name: str, cell: Cell
) -> None:
    with transaction.atomic(using=case.database):
        first = use(name, hold, cell, 1)
        assert use(name, hold, cell, 2) == first
        waiter = follow(name, hold, cell)
    assert waiter.result() == 2


def test_taken_by_a_task_and_then_by_the_thread(
    case: Case, hold: str, name: str, cell: Cell
) -> None:
    with transaction.atomic(using=case.database):
        first = use(name, hold, cell, 1)
        with lock(name, using=hold, wait=2) as second:
            assert second.fencing_token == first
    assert is_free(name, hold)


def test_taken_by_the_thread_and_then_by_a_task(
    case: Case, hold: str, name: str, cell: Cell
) -> None:
    with transaction.atomic(using=case.database):
        with lock(name, using=hold) as first:
            pass
        assert use(name, hold, cell, 1) == first.fencing_token
    assert is_free(name, hold)


def test_renewed_after_its_task_has_ended(case: Case, hold: str, name: str, cell: Cell) -> None:
    """The transaction goes on for longer than the ttl; the task that took the lock is no more."""

    @async_to_sync
    async def brief() -> None:
        async with lock(name, using=hold, ttl=2.4):
            pass

    with transaction.atomic(using=case.database):
        brief()
        cell.write(1)
        waiter = follow(name, hold, cell)
        time.sleep(2.7)
        stays(waiter)
    assert waiter.result() == 1
