"""Django REST framework: locked actions, handlers and functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import Client
from django.urls import include, path
from django.utils.decorators import method_decorator
from rest_framework import permissions, serializers
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import action, api_view
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet, ViewSet

from django_distlock import InvalidLockError, LockInTransactionError, LockNotAcquiredError, lock
from django_distlock.contrib import rest_framework as ours
from django_distlock.contrib.rest_framework import LockedAPIMixin
from django_distlock.views import locked_view
from tests.backends.tools import Cell
from tests.unit.tools import UnitBackend
from tests.views.site import atomic_requests, is_held, site, taken

JSON = {"Accept": "application/json"}


@contextmanager
def api(kind: Any, **settings: Any) -> Iterator[Client]:
    """Serve a ViewSet at /items/, or a view at /<pk>/."""
    if isinstance(kind, type) and issubclass(kind, GenericViewSet | ViewSet):
        router = SimpleRouter()
        router.register("items", kind, basename="item")
        patterns = [path("", include(router.urls))]
    else:
        patterns = [path("<int:pk>/", kind)]
    with site(*patterns, **settings) as client:
        client.raise_request_exception = False
        yield client


class Held(ViewSet):
    """Answers whether the lock of the row is held, as the store says."""

    using = "default"

    def answer(self, name: str) -> Response:
        return Response({"held": is_held(name, self.using)})


def actions(using: str) -> type[ViewSet]:
    class Items(Held):
        @action(detail=True, methods=["get", "post"])
        @method_decorator(locked_view("item:{pk}", using=using))
        def pay(self, request: Any, pk: str = "") -> Response:
            return Response({"held": is_held(f"item:{pk}", using), "same": request.lease.name})

    return Items


def test_an_action(backend: UnitBackend) -> None:
    with api(actions(backend.alias)) as client:
        answer = client.get("/items/1/pay/", headers=JSON)
        assert (answer.status_code, answer.json()) == (200, {"held": True, "same": "item:1"})
        assert not backend.holds("item:1")
        with taken("item:1", backend.alias):
            refused = client.post("/items/1/pay/", headers=JSON)
        assert (refused.status_code, refused["Retry-After"]) == (409, "2")
        assert refused.json() == {
            "detail": "Another request is doing this right now. Yours was not carried out."
        }


def above(using: str) -> Any:
    @api_view(["GET"])
    @locked_view("item:{pk}", using=using)
    def pay(request: Any, pk: int) -> Response:
        return Response({"held": is_held(f"item:{pk}", using)})

    return pay


def under(using: str) -> Any:
    @locked_view("item:{pk}", using=using)
    @api_view(["GET"])
    def pay(request: Any, pk: int) -> Response:
        return Response({"held": is_held(f"item:{pk}", using)})

    return pay


def dispatched(using: str) -> Any:
    @method_decorator(locked_view("item:{pk}", using=using), name="dispatch")
    class Items(APIView):
        def get(self, request: Any, pk: int) -> Response:
            return Response({"held": is_held(f"item:{pk}", using)})

    return Items.as_view()


def mixed(using: str) -> Any:
    class Items(LockedAPIMixin, APIView):
        locks = {"get": locked_view("item:{pk}", using=using)}  # noqa: RUF012 - as users write it

        def get(self, request: Any, pk: int) -> Response:
            return Response({"held": is_held(f"item:{pk}", using)})

    return Items.as_view()


@pytest.mark.parametrize("make", [above, under, dispatched, mixed])
def test_functions_and_handlers(backend: UnitBackend, make: Callable[[str], Any]) -> None:
    with api(make(backend.alias)) as client:
        answer = client.get("/7/", headers=JSON)
        assert (answer.status_code, answer.json()) == (200, {"held": True})
        assert not backend.holds("item:7")
        with taken("item:7", backend.alias):
            refused = client.get("/7/", headers=JSON)
        assert (refused.status_code, refused["Retry-After"]) == (409, "2")
        assert refused.json()["detail"].startswith("Another request")


@pytest.mark.parametrize("make", [under, dispatched, mixed])
def test_the_lock_is_around_the_transaction(store: str, make: Callable[[str], Any]) -> None:
    with atomic_requests(store), api(make(store)) as client:
        answer = client.get("/7/", headers=JSON)
        assert (answer.status_code, answer.json()) == (200, {"held": True})
        assert not is_held("item:7", store)


def test_inside_of_a_transaction_the_way_out_is_told(store: str) -> None:
    with atomic_requests(store), api(above(store)) as client:
        client.raise_request_exception = True
        with pytest.raises(LockInTransactionError, match="above @api_view"):
            client.get("/7/")
    with atomic_requests(store), api(actions(store)) as client:
        client.raise_request_exception = True
        with pytest.raises(LockInTransactionError, match="LockedAPIMixin"):
            client.get("/items/1/pay/")


def adding(store: str, cell: Cell, **locks: Any) -> type[ViewSet]:
    """Return a ViewSet whose actions add one to a cell, and fail where they are told to."""

    class Items(LockedAPIMixin, ViewSet):
        def update(self, request: Any, pk: str = "") -> Response:
            cell.execute("UPDATE cell SET value = value + 1 WHERE name = %s", [cell.name])
            if "fail" in request.query_params:
                raise serializers.ValidationError("not so")
            return Response({"held": is_held(f"item:{pk}", store)})

        @action(detail=True, methods=["post"])
        @method_decorator(locked_view("item:{pk}", using=store))
        def pay(self, request: Any, pk: str = "") -> Response:
            return self.update(request, pk)

        retrieve = update

    return type("Locking", (Items,), {"locks": locks})


def test_each_handler_of_the_mixin_has_its_transaction(store: str, cell: Cell) -> None:
    kind = adding(store, cell, update=locked_view("item:{pk}", using=store))
    with atomic_requests(store), api(kind) as client:
        assert client.put("/items/1/").json() == {"held": True}
        assert client.get("/items/1/").json() == {"held": False}
        assert client.post("/items/1/pay/").json() == {"held": True}
        assert cell.read() == 3
        for verb, where in [("put", ""), ("get", ""), ("post", "pay/")]:
            assert client.generic(verb, f"/items/1/{where}?fail=1").status_code == 400
        assert cell.read() == 3, "what a handler wrote before it failed is rolled back"
        assert not is_held("item:1", store)


class Person:
    """Somebody whom the API knows, and Django does not."""

    is_authenticated = True

    def __init__(self, username: str) -> None:
        self.username = username


class ByHeader(BaseAuthentication):
    def authenticate(self, request: Any) -> tuple[Person, None] | None:
        name = request.headers.get("Person")
        return None if name is None else (Person(name), None)

    def authenticate_header(self, request: Any) -> str:
        return "Person"


class Number(serializers.Serializer):
    number = serializers.IntegerField()


def orders(using: str) -> type[GenericViewSet]:
    class Orders(LockedAPIMixin, GenericViewSet):
        locks = {  # noqa: RUF012 - as users write it
            "create": locked_view("order:{data[number]}", using=using, on_contention=423),
            "list": locked_view("orders:{request.user.username}", using=using),
        }
        serializer_class = Number
        authentication_classes = (ByHeader,)
        permission_classes = (permissions.IsAuthenticated,)

        def create(self, request: Any) -> Response:
            return Response({"name": request.lease.name}, status=201)

        def list(self, request: Any) -> Response:
            return Response({"name": request.lease.name})

    return Orders


ADA = {"Person": "ada", **JSON}


def test_who_is_refused_takes_no_lock(backend: UnitBackend) -> None:
    with api(orders(backend.alias)) as client:
        assert client.post("/items/", {"number": 7}, headers=JSON).status_code == 401
        assert client.post("/items/", {"number": "x"}, headers=ADA).status_code == 400
        assert backend.count("try_acquire") == 0
        with taken("order:7", backend.alias):
            assert client.post("/items/", {"number": 7}, headers=JSON).status_code == 401
            refused = client.post("/items/", {"number": "007"}, headers=ADA)
            assert (refused.status_code, refused["Retry-After"]) == (423, "2")
        made = client.post("/items/", {"number": "007"}, headers=ADA)
        assert (made.status_code, made.json()) == (201, {"name": "order:7"})


def test_the_name_has_the_user_of_the_api(backend: UnitBackend) -> None:
    with api(orders(backend.alias)) as client:
        assert client.get("/items/", headers=ADA).json() == {"name": "orders:ada"}


def test_what_is_no_handler_is_refused() -> None:
    with pytest.raises(InvalidLockError, match="no handler 'pya'"):
        type("Items", (LockedAPIMixin, ViewSet), {"locks": {"pya": locked_view("a")}})
    with pytest.raises(InvalidLockError, match="what locked_view"):
        type("Items", (LockedAPIMixin, APIView), {"locks": {"get": "item:{pk}"}})


def test_data_needs_a_serializer(backend: UnitBackend) -> None:
    class Items(LockedAPIMixin, APIView):
        locks = {"post": locked_view("a:{data[x]}", using=backend.alias)}  # noqa: RUF012

        def post(self, request: Any, pk: int) -> Response:
            raise AssertionError("it was run")

    with api(Items.as_view()) as client:
        client.raise_request_exception = True
        with pytest.raises(InvalidLockError, match="GenericAPIView"):
            client.post("/1/")
    assert backend.count("try_acquire") == 0


def test_a_lease_that_was_lost(backend: UnitBackend) -> None:
    class Items(LockedAPIMixin, APIView):
        locks = {"get": locked_view("item:{pk}", using=backend.alias)}  # noqa: RUF012

        def get(self, request: Any, pk: int) -> Response:
            lock(f"item:{pk}", using=backend.alias).force_release()
            return Response({"done": True})

    with api(Items.as_view()) as client:
        answer = client.get("/7/", headers=JSON)
        assert answer.status_code == 503
        assert "in part" in answer.json()["detail"]


# -- errors that a view lets through ---------------------------------------------------------------


def test_the_exception_handler(backend: UnitBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(APIView, "get_exception_handler", lambda _: ours.exception_handler)

    class Items(APIView):
        def get(self, request: Any, pk: int) -> Response:
            if pk == 1:
                raise serializers.ValidationError("not so")
            with lock(f"item:{pk}", using=backend.alias, wait=0):
                return Response({})

    with api(Items.as_view()) as client:
        assert client.get("/7/").status_code == 200
        assert client.get("/1/").status_code == 400
        with taken("item:7", backend.alias, ttl=1.5):
            refused = client.get("/7/", headers=JSON)
        assert (refused.status_code, refused["Retry-After"]) == (409, "2")


@api_view(["GET"])
def _alone(request: HttpRequest, pk: int) -> Response:
    raise LockNotAcquiredError("Held", name="a", alias="default")


def test_without_the_handler_it_is_the_projects_error() -> None:
    with api(_alone) as client:
        assert client.get("/1/").status_code == 500
