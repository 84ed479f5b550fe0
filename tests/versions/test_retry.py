"""``retry_on_conflict``: how often, with which error, and where it would be in vain."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from django.db import transaction
from django.test import TestCase

from django_distlock import InvalidLockError, StaleVersionError
from django_distlock.versions import retry_on_conflict
from tests.versions.models import Item
from tests.versions.tools import values


def disturbed(store: str, times: int) -> Any:
    """Return a function that adds 1 to the price, and whom others outrun so many times."""
    runs = []

    def add() -> int:
        mine = Item.objects.using(store).get()
        runs.append(mine.price)
        if len(runs) <= times:
            Item.objects.using(store).update(price=mine.price + 10)
        mine.price += 1
        mine.save()
        return mine.price

    return add


def test_it_reads_again_and_applies_again(store: str) -> None:
    Item.objects.using(store).create(name="a")
    assert retry_on_conflict(3)(disturbed(store, 2))() == 21
    assert values(Item, store, "price") == [21]


def test_the_last_error_is_raised_with_the_count(store: str) -> None:
    Item.objects.using(store).create(name="a")
    with pytest.raises(StaleVersionError, match="tried 3 times") as raised:
        retry_on_conflict(3)(disturbed(store, 3))()
    assert raised.value.attempts == 3
    assert values(Item, store, "price") == [30]
    with pytest.raises(StaleVersionError) as raised:
        retry_on_conflict(1)(disturbed(store, 1))()
    assert "tried" not in str(raised.value)


def test_async(store: str) -> None:
    Item.objects.using(store).create(name="a")

    @retry_on_conflict(2, longest=0.01)
    async def add() -> None:
        mine = await Item.objects.using(store).aget()
        if mine.price < 10:
            await Item.objects.using(store).aupdate(price=10)
        mine.price += 1
        await mine.asave()

    asyncio.run(add())
    assert values(Item, store, "price") == [11]

    @retry_on_conflict(2)
    async def expire_lease() -> None:
        mine = await Item.objects.using(store).aget()
        await Item.objects.using(store).aupdate(price=10)
        await mine.asave()

    with pytest.raises(StaleVersionError, match="tried 2 times"):
        asyncio.run(expire_lease())


def test_other_errors_and_results_pass() -> None:
    calls: list[int] = []

    @retry_on_conflict()
    def fail(value: int) -> int:
        """Say it."""
        calls.append(value)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail(3)
    assert calls == [3]
    assert (fail.__name__, fail.__doc__) == ("fail", "Say it.")


def test_the_sleeps_are_short_and_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    me, really = threading.get_ident(), time.sleep
    monkeypatch.setattr(
        time, "sleep", lambda s: slept.append(s) if threading.get_ident() == me else really(s)
    )

    @retry_on_conflict(8, longest=0.05)
    def expire_lease() -> None:
        raise StaleVersionError("x", using="default")

    with pytest.raises(StaleVersionError):
        expire_lease()
    assert len(slept) == 7
    assert all(0.0025 <= seconds <= 0.05 for seconds in slept)
    assert slept[6] > slept[0]


@pytest.mark.parametrize("times", [0, -1, True, 1.5, None, "3", lambda: None])
def test_times_that_are_none(times: Any) -> None:
    with pytest.raises(InvalidLockError, match=r"@retry_on_conflict\(\)"):
        retry_on_conflict(times)


@pytest.mark.parametrize("longest", [0, -1, True, None, float("nan"), 61])
def test_sleeps_that_are_none(longest: Any) -> None:
    with pytest.raises(InvalidLockError, match="longest"):
        retry_on_conflict(longest=longest)


def test_generators_are_refused() -> None:
    with pytest.raises(InvalidLockError, match="generator"):

        @retry_on_conflict()
        def numbers() -> Any:
            yield 1


def test_in_a_transaction_that_reads_what_is_committed(store: str) -> None:
    Item.objects.using(store).create(name="a")
    with transaction.atomic(using=store):
        assert retry_on_conflict(2)(disturbed(store, 1))() == 11


def test_a_test_case_is_no_transaction(store: str) -> None:
    Item.objects.using(store).create(name="a")

    class Case(TestCase):
        databases = {store}  # noqa: RUF012

        def runTest(self) -> None:
            assert retry_on_conflict(2)(disturbed(store, 1))() == 11
            with transaction.atomic(using=store):
                assert retry_on_conflict(2)(disturbed(store, 1))() == 22

    result = Case().run()
    assert result is not None
    assert not (result.errors + result.failures), result.errors + result.failures
