"""ATOMIC_REQUESTS: views that opted out of it, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.transaction import non_atomic_requests
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.test import RequestFactory
from django.utils.decorators import method_decorator
from django.views import View

from django_distlock import LockInTransactionError
from django_distlock.views import locked_view
from tests.views.additions import Site, in_transaction
from tests.views.site import atomic_requests, page


@pytest.fixture(autouse=True)
def atomic(store: str) -> Iterator[None]:
    """Every test here is about a database with ATOMIC_REQUESTS, and the locks in its tables."""
    with atomic_requests(store):
        yield


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
