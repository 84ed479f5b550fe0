"""What is shown of who holds the lock of a view: the view, its place, and the user if known."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient, RequestFactory
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.utils.functional import SimpleLazyObject
from django.views import View

from django_distlock import Holder, lock, locks
from django_distlock.views import locked_view
from tests.backends.tools import lock_alias
from tests.unit.tools import UnitBackend
from tests.views.site import site


class User:
    """A user as Django's, who has a name."""

    def __init__(self, name: str = "ada") -> None:
        self.name = name

    def get_username(self) -> str:
        return self.name


def load() -> User:
    """Stand for the query that nobody may make."""
    raise AssertionError("the user was asked for")


def holder_in(alias: str, name: str = "a") -> Holder:
    """Return the holder that the store shows."""
    info = locks[alias].inspect(name)
    assert info is not None
    return info.holder


def shown(backend: UnitBackend, **attributes: Any) -> Holder:
    """Return the holder of a view's lock, for a request with these attributes."""
    seen: list[Holder] = []

    @locked_view("a", using=backend.alias)
    def view(request: HttpRequest) -> HttpResponse:
        seen.append(holder_in(backend.alias))
        return HttpResponse()

    request = RequestFactory().get("/")
    vars(request).update(attributes)
    view(request)
    return seen[0]


def pay(request: HttpRequest) -> HttpResponse:
    """Say who holds the lock, as the store shows it."""
    holder = holder_in(request.GET["using"])
    return JsonResponse([holder.view, holder.site.rpartition(" ")[2], holder.task], safe=False)


async def apay(request: HttpRequest) -> HttpResponse:
    """Do so on the event loop."""
    holder = (await locks[request.GET["using"]].acall("inspect", "a")).holder
    return JsonResponse([holder.view, holder.site.rpartition(" ")[2], holder.task], safe=False)


class Paying(View):
    """The same as a class."""

    def post(self, request: HttpRequest) -> HttpResponse:
        return pay(request)


def test_the_view_is_named_as_in_the_urls(backend: UnitBackend) -> None:
    using = backend.alias
    locked = locked_view("a", using=using)
    kind: Any = method_decorator(locked, name="dispatch")(type("Kind", (Paying,), {}))
    inner = [path("pay/", locked(pay), name="pay"), path("class/", kind.as_view(), name="class")]
    urls = [
        path("shop/", include((inner, "shop"))),
        path("pay/", locked(pay)),
        path("apay/", locked(apay), name="apay"),
    ]
    with site(*urls) as client:
        assert client.get(f"/shop/pay/?using={using}").json()[:2] == ["shop:pay", "pay"]
        told = client.post(f"/shop/class/?using={using}").json()
        assert told[:2] == ["shop:class", "Paying.post"]
        told = client.get(f"/pay/?using={using}").json()
        assert told[:2] == [f"{__name__}.pay", "pay"]
        told = client.get(f"/apay/?using={using}").json()
        assert told[:2] == ["apay", "apay"]


def test_under_asgi(backend: UnitBackend) -> None:
    locked = locked_view("a", using=backend.alias)

    async def ask(name: str) -> Any:
        return (await AsyncClient().get(f"/{name}/?using={backend.alias}")).content

    with site(path("apay/", locked(apay)), path("pay/", locked(pay))):
        for name in ("apay", "pay"):
            view, function, task = json.loads(asyncio.run(ask(name)))
            assert (view, function, bool(task)) == (f"{__name__}.{name}", name, name == "apay")


def test_without_urls_it_is_the_functions_dotted_name(backend: UnitBackend) -> None:
    holder = shown(backend)
    assert holder.view == f"{__name__}.shown.<locals>.view"
    assert holder.site.startswith(__file__)
    assert holder.site.endswith(" shown.<locals>.view")
    assert holder.user == ""


def test_a_class_without_urls(backend: UnitBackend) -> None:
    seen: list[Holder] = []

    class Kind(View):
        @method_decorator(locked_view("a", using=backend.alias))
        def dispatch(self, *args: Any, **kwargs: Any) -> Any:
            seen.append(holder_in(backend.alias))
            return super().dispatch(*args, **kwargs)

    for method in ("get", "as_view", "__class__"):
        Kind.as_view()(RequestFactory().generic(method, "/"))
    assert {each.view.rpartition(".")[2] for each in seen} == {"Kind"}
    assert all(each.site.endswith("Kind.dispatch") for each in seen)


LOADED = SimpleLazyObject(User)
assert LOADED.name == "ada"

USERS: list[tuple[dict[str, Any], str]] = [
    ({"user": User()}, "ada"),
    ({"user": User("x" * 999)}, "x" * 150),
    ({"user": LOADED}, "ada"),
    ({"user": SimpleLazyObject(load)}, ""),
    ({"user": SimpleLazyObject(load), "_cached_user": User()}, "ada"),
    ({"user": SimpleLazyObject(load), "_acached_user": User("bob")}, "bob"),
    ({"user": User("")}, ""),
    ({"user": object()}, ""),
    ({"session": {"_auth_user_id": "7"}}, ""),
    ({"session": SimpleNamespace(_session_cache={"_auth_user_id": "7"})}, "id 7"),
    ({"session": SimpleNamespace(_session_cache={})}, ""),
]


@pytest.mark.parametrize(("attributes", "user"), USERS)
def test_the_user_is_shown_if_he_is_loaded(
    backend: UnitBackend, attributes: dict[str, Any], user: str
) -> None:
    assert shown(backend, **attributes).user == user


def test_the_next_lock_is_the_programs_own(backend: UnitBackend) -> None:
    @locked_view("a", using=backend.alias)
    def view(request: HttpRequest) -> HttpResponse:
        with lock("b", using=backend.alias):
            holder = holder_in(backend.alias, "b")
        assert (holder.view, holder.user) == ("", "")
        assert holder.site.endswith("view")
        return HttpResponse()

    view(RequestFactory().get("/"))


def test_a_hostile_user_is_shown_escaped(backend: UnitBackend) -> None:
    holder = shown(backend, user=User("a\x1b[2J\n\0\ud800"))
    assert str(holder).isprintable()


def test_the_note_in_a_store(store: str, name: str) -> None:
    """As each database keeps it; and what the switch leaves out."""
    conf = locks[store].conf
    said: list[Holder] = []
    for show in (True, False):
        options = {"BACKEND": conf.backend, "LOCATION": conf.location, "SHOW_CALLER": show}
        with lock_alias("shown", **options) as alias:

            @locked_view(name, using=alias)
            def view(request: HttpRequest) -> HttpResponse:
                said.append(holder_in(alias, name))
                return HttpResponse()

            request = RequestFactory().get("/")
            request.user = User("<ada>")  # type: ignore[assignment]
            view(request)
    told, private = said
    assert (told.user, told.site.startswith(__file__)) == ("<ada>", True)
    assert (private.user, private.site) == ("", "")
    assert private.view == told.view == f"{__name__}.test_the_note_in_a_store.<locals>.view"
