"""ATOMIC_REQUESTS: the view of `on_contention` runs in the transactions that Django would begin."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db.transaction import non_atomic_requests
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient
from django.utils.decorators import method_decorator
from django.views import View

from django_distlock.views import locked_view
from tests.views.additions import Site, in_transaction
from tests.views.site import atomic_requests, page, plain, taken


@pytest.fixture(autouse=True)
def atomic(store: str) -> Iterator[None]:
    """Every test here is about a database with ATOMIC_REQUESTS, and the locks in its tables."""
    with atomic_requests(store):
        yield


def synchronous(views: Site) -> Any:
    def instead(error: Exception, request: HttpRequest, pk: int) -> HttpResponse:
        return views.add(request, pk)

    return instead


def asynchronous(views: Site) -> Any:
    async def instead(error: Exception, request: HttpRequest, pk: int) -> HttpResponse:
        return await sync_to_async(views.add)(request, pk)

    return instead


def without_error(view: Any) -> Any:
    """Return what calls a plain view instead, with all that Django has noted on that."""

    @functools.wraps(view)
    def instead(error: Exception, request: HttpRequest, **kwargs: Any) -> Any:
        return view(request, **kwargs)

    return instead


def of_class(views: Site) -> Any:
    return without_error(views.of_class().as_view())


def locked(views: Site) -> Any:
    def add(request: HttpRequest, pk: int) -> HttpResponse:
        return views.add(request, pk)

    return without_error(locked_view(f"{views.name}:instead", using=views.store)(add))


INSTEAD = [synchronous, asynchronous, of_class, locked]


def guarded(views: Site, instead: Any, view: Any = plain) -> Any:
    """Return a view under the lock, with another one in its place."""
    return locked_view(views.named, using=views.store, wait=0, on_contention=instead)(view)


@pytest.mark.parametrize("make", INSTEAD)
def test_it_is_committed_or_rolled_back(views: Site, make: Callable[[Site], Any]) -> None:
    with taken(views.name, views.store), page(guarded(views, make(views))) as client:
        assert client.get("/1/").status_code == 200
        assert views.cell.read() == 1
        with pytest.raises(LookupError):
            client.get("/0/")
        assert views.cell.read() == 1


@pytest.mark.parametrize("make", INSTEAD)
def test_in_an_asynchronous_server(views: Site, make: Callable[[Site], Any]) -> None:
    async def ask(path: str) -> int:
        return (await AsyncClient().get(path)).status_code

    with taken(views.name, views.store), page(guarded(views, make(views))):
        assert asyncio.run(ask("/1/")) == 200
        with pytest.raises(LookupError):
            asyncio.run(ask("/0/"))
        assert views.cell.read() == 1


@pytest.mark.parametrize("make", [synchronous, of_class])
def test_in_place_of_an_asynchronous_view(views: Site, make: Callable[[Site], Any]) -> None:
    """Which has to opt out; the one in its place has not."""

    async def view(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse()

    async def ask(path: str) -> int:
        return (await AsyncClient().get(path)).status_code

    served = non_atomic_requests(using=views.store)(guarded(views, make(views), view))
    with taken(views.name, views.store), page(served):
        assert asyncio.run(ask("/1/")) == 200
        with pytest.raises(LookupError):
            asyncio.run(ask("/0/"))
        assert views.cell.read() == 1


def test_of_a_class(views: Site) -> None:
    lock = locked_view(views.named, using=views.store, wait=0, on_contention=synchronous(views))
    view = method_decorator(lock, name="dispatch")(views.of_class()).as_view()
    with taken(views.name, views.store), page(view) as client:
        with pytest.raises(LookupError):
            client.get("/0/")
        assert views.cell.read() == 0


def test_what_it_has_opted_out_of(views: Site) -> None:
    seen: list[bool] = []
    opt_out = non_atomic_requests(using=views.store)

    def instead(error: Exception, request: HttpRequest, pk: int) -> HttpResponse:
        seen.append(in_transaction(views.store))
        return HttpResponse()

    async def later(error: Exception, request: HttpRequest, pk: int) -> HttpResponse:
        return await sync_to_async(instead)(error, request, pk)

    class Page(View):
        def get(self, request: HttpRequest, pk: int) -> HttpResponse:
            return instead(Exception(), request, pk)

    of_class = without_error(method_decorator(opt_out, name="dispatch")(Page).as_view())
    for each in (opt_out(instead), opt_out(later), of_class):
        with taken(views.name, views.store), page(guarded(views, each)) as client:
            assert client.get("/1/").status_code == 200
    assert seen == [False, False, False]


def test_what_the_view_has_opted_out_of_is_its_own_affair(views: Site) -> None:
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse()

    opt_out = non_atomic_requests(using=views.store)
    for served in (
        opt_out(guarded(views, synchronous(views))),
        guarded(views, synchronous(views), opt_out(view)),
    ):
        with taken(views.name, views.store), page(served) as client, pytest.raises(LookupError):
            client.get("/0/")
    assert views.cell.read() == 0
