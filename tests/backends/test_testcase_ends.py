"""Transactions inside a `TestCase`, whose end Django tells nobody: each call notices it first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_distlock import LockNotHeldError, lock, locks
from tests.backends.tools import LOCMEM, lock_alias


@pytest.fixture
def freed(store: str, name: str) -> Iterator[str]:
    """An alias on which a lock was kept by a transaction that has ended, unnoticed so far."""
    outer = transaction.atomic(using=store)
    outer._from_testcase = True  # type: ignore[attr-defined]
    with lock_alias("kept", BACKEND=LOCMEM), outer:
        with transaction.atomic(using=store):
            with lock(name, using="kept"):
                pass
            assert locks["kept"].inspect(name) is not None
        assert locks["kept"].inspect(name) is not None, "noticed already: nothing is shown"
        yield "kept"


@async_to_sync
async def aheld(alias: str) -> list[str]:
    """Return the names that are held, asked for on an event loop."""
    return [info.name async for info in locks[alias].aheld()]


CALLS: dict[str, Callable[[str, str], object]] = {
    "locked": lambda alias, name: lock(name, using=alias).locked(),
    "alocked": lambda alias, name: async_to_sync(lock(name, using=alias).alocked)(),
    "held": lambda alias, name: list(locks[alias].held()),
    "aheld": lambda alias, name: aheld(alias),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_who_looks(freed: str, name: str, call: Callable[[str, str], object]) -> None:
    assert not call(freed, name)


def test_force_release(freed: str, name: str) -> None:
    with pytest.raises(LockNotHeldError, match="it is not held"):
        locks[freed].force_release(name)


def test_force_release_on_an_event_loop(freed: str, name: str) -> None:
    with pytest.raises(LockNotHeldError, match="it is not held"):
        async_to_sync(locks[freed].aforce_release)(name)


def test_who_asks_for_it(freed: str, name: str) -> None:
    with lock(name, using=freed, wait=0) as lease:
        lease.check()
