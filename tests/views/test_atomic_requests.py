"""ATOMIC_REQUESTS: the lock is outside of the view's transaction, and freed after its commit."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.transaction import non_atomic_requests
from django.dispatch import Signal
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.test import AsyncClient, Client, RequestFactory
from django.utils.decorators import method_decorator
from django.views import View

from django_distlock import LockInTransactionError, lock
from django_distlock.signals import lock_acquired, lock_released
from django_distlock.views import locked_view
from tests.backends.tools import Cell, Elsewhere, elsewhere
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


def in_transaction(database: str) -> bool:
    """Tell whether this thread has a transaction open."""
    return connections[database].in_atomic_block


class Site:
    """Views that add one to a cell, in every way that a lock can be put around them."""

    def __init__(self, store: str, cell: Cell, name: str) -> None:
        self.store, self.cell, self.name = store, cell, name
        self.locked = locked_view(self.named, using=store, wait=20)

    def named(self, request: HttpRequest, *args: Any, **kwargs: Any) -> str:
        return self.name

    def add(self, request: HttpRequest, pk: int) -> HttpResponse:
        assert in_transaction(self.store)
        if self.store == "sqlite":  # as with IMMEDIATE: who reads first may not write later
            self.cell.execute("UPDATE cell SET value = value WHERE name = %s", [self.cell.name])
        self.cell.write(self.cell.read() + 1)
        if pk == 0:
            raise LookupError
        return HttpResponse()

    def of_class(self) -> type[View]:
        add = self.add

        class Page(View):
            def get(self, request: HttpRequest, pk: int) -> HttpResponse:
                return add(request, pk)

        return Page

    def function(self) -> Any:
        def view(request: HttpRequest, pk: int) -> HttpResponse:
            return self.add(request, pk)

        return self.locked(view)

    def on_dispatch(self) -> Any:
        return method_decorator(self.locked, name="dispatch")(self.of_class()).as_view()

    def around_as_view(self) -> Any:
        return self.locked(self.of_class().as_view())

    def below_another_decorator(self) -> Any:
        inner = self.function()

        @functools.wraps(inner)
        def view(request: HttpRequest, pk: int) -> HttpResponseBase:
            response: HttpResponseBase = inner(request, pk)
            return response

        return view

    def twice(self) -> Any:
        outer = locked_view(lambda *_, **__: f"{self.name}:outer", using=self.store)
        return outer(self.function())

    def twice_on_dispatch(self) -> Any:
        outer = locked_view(lambda *_, **__: f"{self.name}:outer", using=self.store)
        decorate = method_decorator([outer, self.locked], name="dispatch")
        return decorate(self.of_class()).as_view()


WAYS = [
    Site.function,
    Site.on_dispatch,
    Site.around_as_view,
    Site.below_another_decorator,
    Site.twice,
    Site.twice_on_dispatch,
]


@pytest.fixture
def views(store: str, cell: Cell, name: str) -> Site:
    return Site(store, cell, name)


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


# -- opted out -----------------------------------------------------------------------------------


def opted_out_below(views: Site, view: Any) -> Any:
    return views.locked(non_atomic_requests(using=views.store)(view))


def opted_out_above(views: Site, view: Any) -> Any:
    return non_atomic_requests(using=views.store)(views.locked(view))


def opted_out_far_above(views: Site, view: Any) -> Any:
    outer = locked_view(f"{views.name}:outer", using=views.store)
    return non_atomic_requests(using=views.store)(outer(views.locked(view)))


def opted_out_of_class(views: Site, view: Any) -> Any:
    class Page(View):
        get = staticmethod(view)

    opt_out = non_atomic_requests(using=views.store)
    decorate = method_decorator([opt_out, views.locked], name="dispatch")
    return decorate(Page).as_view()


def opted_out_above_the_class(views: Site, view: Any) -> Any:
    class Page(View):
        get = staticmethod(view)

    below = method_decorator(views.locked, name="dispatch")(Page)
    opt_out = non_atomic_requests(using=views.store)
    return method_decorator(opt_out, name="dispatch")(below).as_view()


def opted_out_below_in_the_class(views: Site, view: Any) -> Any:
    class Page(View):
        get = staticmethod(view)

    below = method_decorator(non_atomic_requests(using=views.store), name="dispatch")(Page)
    return method_decorator(views.locked, name="dispatch")(below).as_view()


@pytest.mark.parametrize(
    "opt_out",
    [
        opted_out_below,
        opted_out_above,
        opted_out_far_above,
        opted_out_of_class,
        opted_out_above_the_class,
        opted_out_below_in_the_class,
    ],
)
def test_a_view_that_opted_out_has_no_transaction(
    views: Site, opt_out: Callable[[Site, Any], Any]
) -> None:
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(str(in_transaction(views.store)))

    with page(opt_out(views, view)) as client:
        assert client.get("/1/").content == b"False"
        assert client.get("/1/").content == b"False"


def test_a_view_is_itself_as_it_was(views: Site) -> None:
    """The same function without the lock is left to Django."""

    def view(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(str(in_transaction(views.store)))

    views.locked(view)
    with page(view) as client:
        assert client.get("/1/").content == b"True"


def test_without_the_setting_there_is_no_transaction(views: Site) -> None:
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(str(in_transaction(views.store)))

    connections.settings[views.store]["ATOMIC_REQUESTS"] = False
    with page(views.locked(view)) as client:
        assert client.get("/1/").content == b"False"


# -- refused -------------------------------------------------------------------------------------


def test_get_instead_of_dispatch_is_refused_and_says_why(views: Site) -> None:
    Page = method_decorator(views.locked, name="get")(views.of_class())
    with page(Page.as_view()) as client, pytest.raises(LockInTransactionError) as refused:
        client.get("/1/")
    said = str(refused.value)
    assert f"ATOMIC_REQUESTS has begun the view's transaction on '{views.store}'" in said
    assert "Page.get is decorated, which is called inside of it" in said
    assert "use @method_decorator(locked_view(...), name='dispatch')" in said
    assert views.cell.read() == 0


def test_a_decorator_above_without_wraps_is_refused(views: Site) -> None:
    inner = views.function()

    def view(request: HttpRequest, pk: int) -> HttpResponseBase:
        response: HttpResponseBase = inner(request, pk)
        return response

    refused = pytest.raises(LockInTransactionError, match=r"outermost decorator, or .*\.wraps")
    with page(view) as client, refused:
        client.get("/1/")


def test_it_is_no_matter_of_other_transactions(views: Site, store: str) -> None:
    """One that the program has begun itself, where Django was to begin none, is its own affair."""

    def plain(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    view = non_atomic_requests(using=store)(views.locked(plain))
    with transaction.atomic(using=store):
        assert view(RequestFactory().get("/")).status_code == 200


async def asynchronous(request: HttpRequest, pk: int) -> HttpResponse:
    """Answer OK."""
    return HttpResponse("done")


class Asynchronous(View):
    """The same, as a class."""

    async def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse("done")


def subclass(base: type[View]) -> Any:
    """Return a class of the test's own, to be decorated."""
    return type("Decorated", (base,), {})


def test_an_asynchronous_view_is_refused_as_by_django(views: Site) -> None:
    """As without a lock, where one might think that it has a transaction."""
    decorate = method_decorator(views.locked, name="dispatch")
    of_class = decorate(subclass(Asynchronous))
    for view in (views.locked(asynchronous), of_class.as_view()):
        refused = pytest.raises(RuntimeError, match="cannot use ATOMIC_REQUESTS with async views")
        with page(view) as client, refused:
            client.get("/1/")


def test_an_asynchronous_view_that_opted_out_is_served(views: Site) -> None:
    opt_out = non_atomic_requests(using=views.store)
    decorate = method_decorator([opt_out, views.locked], name="dispatch")
    of_class = decorate(subclass(Asynchronous)).as_view()

    async def one(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse("done")

    async def another(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse("done")

    for view in (opt_out(views.locked(one)), views.locked(opt_out(another)), of_class):
        with page(view) as client:
            assert client.get("/1/").content == b"done"
