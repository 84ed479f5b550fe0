"""`locked_view` around functions and classes, sync and async: under the lock, and its name."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, RequestFactory
from django.urls import path, re_path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.http import require_POST
from django.views.generic import TemplateView

from django_distlock import InvalidLockError, Lease, current_lease, lock
from django_distlock.views import locked_view
from tests.backends.tools import elsewhere
from tests.unit.tools import UnitBackend
from tests.views.site import page, plain, site, taken


def names_of(backend: UnitBackend) -> list[str]:
    """Return the names that were acquired."""
    return [name for verb, name in backend.calls if verb == "try_acquire"]


def test_a_function(backend: UnitBackend) -> None:
    @locked_view("invoice:{pk}", using=backend.alias)
    def pay(request: HttpRequest, lease: Lease, pk: int) -> HttpResponse:
        """Pay it."""
        assert lease is current_lease()
        assert lease is request.lease  # type: ignore[attr-defined]
        lease.check()
        return HttpResponse(f"{lease.name} {backend.holds('invoice:7')}")

    assert (pay.__name__, pay.__doc__) == ("pay", "Pay it.")
    assert list(inspect.signature(pay).parameters) == ["request", "pk"]
    assert not iscoroutinefunction(pay)
    with page(pay) as client:
        assert client.get("/7/").content == b"invoice:7 True"
    assert not backend.holds("invoice:7")


def test_several_at_once() -> None:
    @locked_view("report:{pk}", using="locmem", limit=1)
    def limited(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(str(current_lease().slot))

    @locked_view("report:{pk}", using="locmem", shared=True)
    def shared(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(str(current_lease().shared))

    with page(limited) as client:
        assert client.get("/7/").content == b"0"
        with lock("report:7", using="locmem", limit=1):
            assert elsewhere(lambda: client.get("/7/").status_code) == 409
    with page(shared) as client, lock("report:7", using="locmem", shared=True) as lease:
        assert elsewhere(lambda: client.get("/7/").content) == b"True"
        lease.check()


def test_an_asynchronous_function(backend: UnitBackend) -> None:
    @locked_view("invoice:{pk}", using=backend.alias)
    async def pay(request: HttpRequest, pk: int, lease: Lease) -> HttpResponse:
        await asyncio.sleep(0)
        assert lease is current_lease()
        return HttpResponse(f"{backend.holds('invoice:7')}")

    assert iscoroutinefunction(pay)
    with page(pay) as client:
        assert client.get("/7/").content == b"True"

        async def ask() -> bytes:
            response = await AsyncClient().get("/7/")
            return bytes(response.content)

        assert asyncio.run(ask()) == b"True"
    assert backend.count("try_acquire") == backend.count("release") == 2


class Page(View):
    """Handlers that say whether they run under the lock."""

    backend: UnitBackend

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(f"{self.backend.holds(f'page:{pk}')}")


class AsyncPage(View):
    """The same, asynchronous."""

    backend: UnitBackend

    async def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        await asyncio.sleep(0)
        return HttpResponse(f"{self.backend.holds(f'page:{pk}')}")


def subclass(base: type[View], backend: UnitBackend) -> Any:
    """Return a class of the test's own, to be decorated."""
    return type("Decorated", (base,), {"backend": backend})


def on_dispatch(base: type[View], backend: UnitBackend) -> Any:
    decorator = method_decorator(locked_view("page:{pk}", using=backend.alias), name="dispatch")
    return decorator(subclass(base, backend)).as_view()


def on_get(base: type[View], backend: UnitBackend) -> Any:
    decorator = method_decorator(locked_view("page:{pk}", using=backend.alias), name="get")
    return decorator(subclass(base, backend)).as_view()


def in_a_list(base: type[View], backend: UnitBackend) -> Any:
    decorators = [
        locked_view("page:{pk}", using=backend.alias),
        locked_view("second:{pk}", using=backend.alias),
    ]
    return method_decorator(decorators, name="dispatch")(subclass(base, backend)).as_view()


def around_as_view(base: type[View], backend: UnitBackend) -> Any:
    return locked_view("page:{pk}", using=backend.alias)(subclass(base, backend).as_view())


@pytest.mark.parametrize("how", [on_dispatch, on_get, in_a_list, around_as_view])
@pytest.mark.parametrize("base", [Page, AsyncPage])
def test_a_class(backend: UnitBackend, how: Any, base: type[View]) -> None:
    view = how(base, backend)
    assert iscoroutinefunction(view) is (base is AsyncPage)
    with page(view) as client:
        assert client.get("/3/").content == b"True"
        assert client.options("/3/").status_code == 200
        assert client.post("/3/").status_code == 405
    assert not backend.holds("page:3")
    assert backend.count("try_acquire") == backend.count("release") > 0


def test_other_decorators_go_above_and_below(backend: UnitBackend) -> None:
    above = require_POST(locked_view("a:{pk}", using=backend.alias)(plain))
    below = locked_view("b:{pk}", using=backend.alias)(require_POST(plain))
    with site(path("a/<int:pk>", above), path("b/<int:pk>", below)) as client:
        assert client.get("/a/1").status_code == client.get("/b/1").status_code == 405
        assert client.post("/a/1").status_code == client.post("/b/1").status_code == 200
    assert names_of(backend) == ["b:1", "a:1", "b:1"]


# -- names ---------------------------------------------------------------------------------------


def test_the_name_is_made_from_the_request_and_the_url(backend: UnitBackend) -> None:
    def view(req: HttpRequest, pk: int, *, kind: str = "html") -> HttpResponse:
        return HttpResponse()

    def unnamed(request: HttpRequest, *args: str) -> HttpResponse:
        return HttpResponse()

    def made(request: HttpRequest, pk: int, **options: Any) -> str:
        return f"made:{request.path}:{pk}:{options}"

    template = "{request.method}:{req.GET[x]}:{pk:>3}:{kind}"
    patterns = [
        path("t/<int:pk>", locked_view(template, using=backend.alias)(view)),
        path("t/<int:pk>/<kind>", locked_view(template, using=backend.alias)(view)),
        path("c/<int:pk>/<kind>", locked_view(made, using=backend.alias)(view)),
        re_path("^p/(.)/(.)$", locked_view("{args[1]}", using=backend.alias)(unnamed)),
        path("d/<int:pk>", on_dispatch(Page, backend)),
    ]
    with site(*patterns) as client:
        for address in ("t/1?x=y", "t/1/pdf?x=y", "c/1/pdf", "p/a/b", "d/5"):
            assert client.get(f"/{address}").status_code == 200
    assert names_of(backend) == [
        "GET:y:  1:html",
        "GET:y:  1:pdf",
        "made:/c/1/pdf:1:{'kind': 'pdf'}",
        "b",
        "page:5",
    ]


@pytest.mark.parametrize("template", ["{tenant}", "{self.x}", "{}", "{0}", "{pk", "{request.x}{y}"])
def test_a_template_that_names_what_the_view_has_not_is_refused_early(template: str) -> None:
    with pytest.raises(InvalidLockError, match="template"):
        locked_view(template)(plain)


def test_what_only_a_call_can_tell_is_refused_by_the_call(backend: UnitBackend) -> None:
    view = locked_view("{tenant}", using=backend.alias)(Page.as_view())
    with page(view) as client, pytest.raises(InvalidLockError, match="do not fill"):
        client.get("/1/")
    assert backend.calls == []


def test_a_name_that_asks_the_database_in_an_asynchronous_view(backend: UnitBackend) -> None:
    class User:
        @property
        def pk(self) -> int:
            from django.db import connection

            with connection.cursor() as cursor:  # refuses to be used on the event loop
                cursor.execute("SELECT 5")
                return int(cursor.fetchone()[0])

    @locked_view("export:{request.user.pk}", using=backend.alias)
    async def export(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    async def ask() -> int:
        request = RequestFactory().get("/")
        request.user = User()  # type: ignore[assignment]
        return (await export(request)).status_code

    assert asyncio.run(ask()) == 200
    assert names_of(backend) == ["export:5"]


# -- refused -------------------------------------------------------------------------------------


def test_a_class_is_refused() -> None:
    with pytest.raises(InvalidLockError, match=r"Page is a class\. Write @method_decorator"):
        locked_view("a")(Page)


def test_a_method_is_refused_at_the_call(backend: UnitBackend) -> None:
    class Wrong(View):
        @locked_view("a", using=backend.alias)
        def get(self, request: HttpRequest, pk: int) -> HttpResponse:
            return HttpResponse()

    with page(Wrong.as_view()) as client, pytest.raises(InvalidLockError, match="@method_decor"):
        client.get("/1/")
    assert backend.calls == []


def test_a_view_that_does_its_work_later_is_refused(backend: UnitBackend) -> None:
    async def later(request: HttpRequest) -> HttpResponse:
        pytest.fail("ran without the lock")

    def generator(request: HttpRequest) -> Any:
        yield 1

    with pytest.raises(InvalidLockError, match="generator"):
        locked_view("a")(generator)

    def wrapper(request: HttpRequest) -> Any:
        return later(request)

    view = locked_view("a", using=backend.alias)(wrapper)
    with pytest.raises(InvalidLockError, match="coroutine"):
        view(RequestFactory().get("/"))
    assert not backend.holds("a")


@pytest.mark.parametrize("status", [200, 404, 408, 500, True, "409", None])
def test_another_status_is_refused(status: Any) -> None:
    with pytest.raises(InvalidLockError, match="one of 409, 423, 429, 503"):
        locked_view("a", on_contention=status)


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidLockError, match="on_lost is 'error' or 'ignore'"):
        locked_view("a", on_lost="raise")  # type: ignore[arg-type]
    with pytest.raises(InvalidLockError, match="ttl"):
        locked_view("a", ttl=0)
    with pytest.raises(InvalidLockError, match="must not be empty"):
        locked_view("")


# -- the end -------------------------------------------------------------------------------------


def test_an_error_of_the_view_is_the_answer_and_frees_the_lock(backend: UnitBackend) -> None:
    def fails(request: HttpRequest, pk: int) -> HttpResponse:
        raise LookupError(pk)

    async def afails(request: HttpRequest, pk: int) -> HttpResponse:
        raise LookupError(pk)

    for view in (fails, afails):
        locked = locked_view("a", using=backend.alias)(view)
        with page(locked) as client, pytest.raises(LookupError):
            client.get("/1/")
        assert not backend.holds("a")


def test_a_cancelled_request_frees_the_lock(backend: UnitBackend) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        @locked_view("a", using=backend.alias)
        async def view(request: HttpRequest) -> HttpResponse:
            begun.set()
            await asyncio.sleep(60)
            return HttpResponse()

        task = asyncio.create_task(view(RequestFactory().get("/")))
        await begun.wait()
        assert backend.holds("a")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not backend.holds("a")

    asyncio.run(main())


def test_a_template_is_rendered_under_the_lock(backend: UnitBackend) -> None:
    class Rendered(TemplateView):
        def get_template_names(self) -> list[str]:
            return ["distlock/locked.html"]

        def get_context_data(self, **context: Any) -> dict[str, Any]:
            return {"title": lambda: f"held: {backend.holds('a')}"}

    class AsyncRendered(Rendered):
        async def get(self, request: HttpRequest, pk: int) -> HttpResponse:  # type: ignore[override]
            return self.render_to_response(self.get_context_data())

    decorate = method_decorator(locked_view("a", using=backend.alias), name="dispatch")
    for base in (AsyncRendered, Rendered):  # the subclass first: it inherits what is decorated
        with page(decorate(base).as_view()) as client:
            assert b"held: True" in client.get("/1/").content
        assert not backend.holds("a")


def test_the_view_may_release_early_or_hand_the_lock_over(backend: UnitBackend) -> None:
    handles = []

    @locked_view("a", using=backend.alias)
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        lease: Lease = request.lease  # type: ignore[attr-defined]
        if pk == 1:
            lease.release()
        else:
            handles.append(lease.detach())
        return HttpResponse()

    with page(view) as client:
        assert client.get("/1/").status_code == 200
        assert client.get("/2/").status_code == 200
    assert backend.holds("a")
    Lease.attach(handles[0]).release()
    assert not backend.holds("a")


# -- request methods -------------------------------------------------------------------------------


def test_only_some_methods_are_locked(backend: UnitBackend) -> None:
    @locked_view("invoice:{pk}", using=backend.alias, methods=["post"])
    def pay(request: HttpRequest, pk: int, lease: Lease | None) -> HttpResponse:
        return HttpResponse(f"{lease is not None} {backend.holds('invoice:7')}")

    with page(pay) as client:
        assert client.get("/7/").content == b"False False"
        assert client.post("/7/").content == b"True True"
        with taken("invoice:7", backend.alias):
            assert client.get("/7/").content == b"False True"
            assert client.head("/7/").status_code == 200
            assert client.post("/7/").status_code == 409


def test_what_is_not_locked_has_no_lease(backend: UnitBackend) -> None:
    """Wherever the parameter stands, and whether the URL names its arguments."""

    def pay(request: HttpRequest, lease: Lease | None, pk: int) -> HttpResponse:
        return HttpResponse(f"{lease is not None} {pk}")

    async def apay(request: HttpRequest, lease: Lease | None, pk: int) -> HttpResponse:
        return pay(request, lease, pk)

    for view in (pay, apay):
        locked = locked_view("invoice:{pk}", using=backend.alias, methods=("POST",))(view)
        with site(path("named/<int:pk>", locked), re_path("^by-place/(.)$", locked)) as client:
            for where in ("/named/7", "/by-place/7"):
                assert client.get(where).content == b"False 7"
                assert client.post(where).content == b"True 7"


@pytest.mark.parametrize("kind", [Page, AsyncPage])
def test_only_some_methods_of_a_class(backend: UnitBackend, kind: type[View]) -> None:
    locked = locked_view("page:{pk}", using=backend.alias, methods={"POST", "PUT"})
    decorated: Any = method_decorator(locked, name="dispatch")(
        type("Locked", (kind,), {"backend": backend, "post": kind.get})  # type: ignore[attr-defined]
    )
    with page(decorated.as_view()) as client:
        assert client.get("/7/").content == b"False"
        assert client.post("/7/").content == b"True"
        with taken("page:7", backend.alias):
            assert client.get("/7/").content == b"True"
            assert client.options("/7/").status_code == 200
            assert client.post("/7/").status_code == 409


@pytest.mark.parametrize("wrong", ["POST", [1]])
def test_methods_are_several(wrong: Any) -> None:
    with pytest.raises(InvalidLockError, match=r"such as \['POST'\]"):
        locked_view("a", methods=wrong)


# -- without parentheses ---------------------------------------------------------------------------


def test_a_decorator_without_parentheses_is_refused_at_once() -> None:
    with pytest.raises(InvalidLockError, match=r"write @locked_view\('a name'\) above view\(\)"):

        @locked_view  # type: ignore[arg-type]
        def view(request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    with pytest.raises(InvalidLockError, match=r"write @lock\('a name'\) above below\(\)"):

        @functools.cache
        @lock  # type: ignore[arg-type]
        def below() -> None: ...


def test_a_name_may_be_made_by_a_function_of_any_place(backend: UnitBackend) -> None:
    def by_pk(request: HttpRequest, pk: int) -> str:
        return f"made:{pk}"

    for given in (by_pk, lambda request, pk: f"made:{pk}"):
        with page(locked_view(given, using=backend.alias)(plain)) as client:
            assert client.get("/7/").content == b"done"
    assert names_of(backend) == ["made:7", "made:7"]
