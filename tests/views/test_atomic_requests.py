"""ATOMIC_REQUESTS: the lock is outside of the view's transaction, and freed after its commit."""

from __future__ import annotations

import asyncio
import threading
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.dispatch import Signal
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.test import AsyncClient, Client, TestCase

from django_distlock import lock
from django_distlock.signals import lock_acquired, lock_released
from django_distlock.views import locked_view
from tests.backends.tools import Elsewhere, elsewhere
from tests.views.additions import Site, in_transaction
from tests.views.site import atomic_requests, page


@pytest.fixture(autouse=True)
def atomic(store: str) -> Iterator[None]:
    """Every test here is about a database with ATOMIC_REQUESTS, and the locks in its tables."""
    with atomic_requests(store):
        yield


@contextmanager
def at(signal: Signal, name: str, look: Callable[[], Any]) -> Iterator[list[Any]]:
    """Look at something, from another thread, each time that a signal is sent for a lock."""
    seen: list[Any] = []

    def receiver(**facts: Any) -> None:
        if facts["name"] == name:
            seen.append(look())

    signal.connect(receiver)
    try:
        yield seen
    finally:
        signal.disconnect(receiver)


WAYS = [
    Site.function,
    Site.on_dispatch,
    Site.around_as_view,
    Site.below_another_decorator,
    Site.twice,
    Site.twice_on_dispatch,
]


@pytest.mark.parametrize("way", WAYS)
def test_the_transaction_is_inside_of_the_lock(views: Site, way: Callable[[Site], Any]) -> None:
    with (
        at(lock_acquired, views.name, lambda: in_transaction(views.store)) as before,
        at(lock_released, views.name, lambda: elsewhere(views.cell.read)) as after,
        page(way(views)) as client,
    ):
        assert client.get("/1/").status_code == 200
        with pytest.raises(LookupError):
            client.get("/0/")
    assert before == [False, False]
    assert after == [1, 1]  # committed when it is free; rolled back when the view failed


def test_in_an_asynchronous_server(views: Site) -> None:
    async def ask() -> int:
        return (await AsyncClient().get("/1/")).status_code

    with (
        at(lock_released, views.name, lambda: elsewhere(views.cell.read)) as after,
        page(views.function()),
    ):
        assert asyncio.run(ask()) == 200
    assert after == [1]


def test_the_next_holder_sees_what_was_committed(views: Site) -> None:
    """Several requests at once, and others that lock by hand: no addition is lost."""
    with page(views.function()):

        def ask() -> None:
            for _ in range(5):
                assert Client().get("/1/").status_code == 200

        def by_hand() -> None:
            for _ in range(5):
                with lock(views.name, using=views.store, wait=20):
                    views.cell.write(views.cell.read() + 1)

        crowd = [Elsewhere(work).start() for work in (ask, ask, ask, by_hand)]
        for each in crowd:
            each.result()
    assert views.cell.read() == 20


def test_a_waiter_is_kept_out_until_the_commit(views: Site) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def view(request: HttpRequest, pk: int) -> HttpResponse:
        views.cell.write(7)
        inside.set()
        assert go_on.wait(30)
        return HttpResponse()

    def look() -> int:
        with lock(views.name, using=views.store, wait=20):
            return views.cell.read()

    with page(views.locked(view)):
        with Elsewhere(lambda: Client().get("/1/").status_code) as request:
            assert inside.wait(30)
            waiter = Elsewhere(look).start()
            assert lock(views.name, using=views.store, wait=0).acquire() is None
            go_on.set()
        assert request.result() == 200
        assert waiter.result() == 7


def test_a_template_is_rendered_after_the_commit_and_under_the_lock(views: Site) -> None:
    def title() -> str:
        held = lock(views.name, using=views.store).locked()
        return f"{elsewhere(views.cell.read)} {in_transaction(views.store)} {held}"

    def view(request: HttpRequest, pk: int) -> TemplateResponse:
        views.cell.write(7)
        return TemplateResponse(request, "distlock/locked.html", {"title": title})

    with page(views.locked(view)) as client:
        assert b"7 False True" in client.get("/1/").content


def test_a_lost_lease_undoes_the_transaction(views: Site) -> None:
    # Lost by its ttl, for on SQLite nobody can write to the store beside the view's transaction.
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        views.cell.write(7)
        hold = request.lease._hold  # type: ignore[attr-defined]
        hold.lose("a test said so")
        return HttpResponse()

    with page(views.locked(view)) as client:
        assert client.get("/1/").status_code == 503
        assert views.cell.read() == 0
    indifferent = locked_view(f"{views.name}:2", using=views.store, on_lost="ignore")(view)
    with page(indifferent) as client:
        assert client.get("/1/").status_code == 200
        assert views.cell.read() == 7


def test_in_a_testcase_it_is_as_in_production(views: Site) -> None:
    """The transaction that a TestCase wraps around the test is not taken for the view's."""

    class InTestCase(TestCase):
        databases = {views.store}  # noqa: RUF012 - Django's own way

        def test_view(self) -> None:
            with page(views.function()):
                assert self.client.get("/1/").status_code == 200
                assert views.cell.read() == 1
                assert not lock(views.name, using=views.store).locked()

    result = unittest.TestResult()
    unittest.TestSuite([InTestCase("test_view")]).run(result)
    assert result.testsRun == 1
    assert result.errors + result.failures == []
    assert views.cell.read() == 0
