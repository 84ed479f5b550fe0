"""Rows that have a fence and a version: both are asked, and a write raises the version once."""

from __future__ import annotations

import pytest

from django_distlock import FenceRejectedError, StaleVersionError
from tests.fencing.models import Stock
from tests.fencing.tools import TOKEN, made_up


@pytest.fixture
def stock(store: str, name: str) -> Stock:
    """A row, as somebody has read it."""
    made: Stock = Stock.objects.using(store).create(title=name[:300])
    return made


def again(stock: Stock) -> Stock:
    """Read the row once more."""
    found: Stock = Stock.objects.using(stock._state.db).get(pk=stock.pk)
    return found


def test_save(stock: Stock) -> None:
    first = stock.version
    for count in (1, 2):
        stock.amount = count
        made_up("a").save(stock)
        assert (stock.amount, stock.version, stock.fence) == (count, first + count, TOKEN)
        assert again(stock).version == stock.version
    made_up("a", TOKEN + 1).save(stock, update_fields=["amount"])
    stock.save()
    found = again(stock)
    assert (found.version, found.fence) == (stock.version, TOKEN + 1) == (first + 4, stock.fence)
    with pytest.raises(FenceRejectedError):
        made_up("a").save(found)


def test_a_stale_version_is_refused_and_leaves_the_fence(stock: Stock) -> None:
    late = again(stock)
    made_up("a").save(stock)
    with pytest.raises(StaleVersionError):
        made_up("a", TOKEN + 1).save(late)
    assert (late.version, late.fence) == (stock.version - 1, 0)
    assert again(stock).fence == TOKEN
    late.refresh_from_db()
    made_up("a", TOKEN + 1).save(late)
    with pytest.raises(StaleVersionError):
        stock.save()


def test_a_new_instance(store: str, name: str) -> None:
    made = Stock(title=name[:300])
    made_up("a").save(made, using=store)
    made_up("a").save(made)
    assert (again(made).version, again(made).fence) == (made.version, TOKEN)


def test_update_or_create(store: str, name: str) -> None:
    title = name[:300]
    rows = Stock.objects.using(store).fenced(made_up("a"))
    made, created = rows.update_or_create({"amount": 1}, title=title)
    assert created
    found, created = rows.update_or_create({"amount": 2}, title=title)
    assert (found.version, created) == (made.version + 1, False)
    found.amount = 3
    found.save()
    assert (again(made).amount, again(made).version) == (3, made.version + 2)
    with pytest.raises(StaleVersionError):
        made.save()


def test_update(stock: Stock, store: str) -> None:
    rows = Stock.objects.using(store).filter(pk=stock.pk)
    assert rows.fenced(made_up("a")).update(amount=1) == 1
    assert (again(stock).version, again(stock).fence) == (stock.version + 1, TOKEN)
    with pytest.raises(FenceRejectedError):
        rows.fenced(made_up("a", TOKEN - 1)).update(amount=2)
    assert again(stock).version == stock.version + 1
    with pytest.raises(StaleVersionError):
        made_up("a").save(stock)


def test_delete(stock: Stock, store: str) -> None:
    made_up("a").save(stock)
    rows = Stock.objects.using(store).filter(pk=stock.pk)
    with pytest.raises(FenceRejectedError):
        rows.fenced(made_up("a", TOKEN - 1)).delete()
    assert again(stock).version == stock.version
    assert rows.fenced(made_up("a")).delete() == (1, {"fencing_tests.Stock": 1})
    with pytest.raises(Stock.DoesNotExist):
        made_up("a").save(stock)
