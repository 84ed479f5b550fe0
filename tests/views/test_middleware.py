"""The middleware that answers for what a view lets through."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient

from django_distlock import LockBackendError, StaleVersionError, lock
from tests.backends.tools import Cell
from tests.unit.tools import UnitBackend
from tests.views.site import atomic_requests, page, taken

MIDDLEWARE = ["django_distlock.middleware.LockConflictMiddleware"]
JSON = {"Accept": "application/json"}


def test_a_held_lock(backend: UnitBackend) -> None:
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        with lock(f"item:{pk}", using=backend.alias, wait=0):
            return HttpResponse("done")

    async def aview(request: HttpRequest, pk: int) -> HttpResponse:
        return view(request, pk)

    for each in (view, aview):
        with page(each, MIDDLEWARE=MIDDLEWARE) as client:
            assert client.get("/7/").content == b"done"
            with taken("item:7", backend.alias):
                answer = client.get("/7/", headers=JSON)
                asked = asyncio.run(AsyncClient().get("/7/", headers=JSON))
        for refused in (answer, asked):
            assert (refused.status_code, refused["Retry-After"]) == (409, "2")
            assert refused.json()["reason"] == "held"


def test_a_stale_version(store: str, cell: Cell) -> None:
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        cell.write(5)
        raise StaleVersionError("Changed", model="shop.Product", pks=(pk,))

    with atomic_requests(store), page(view, MIDDLEWARE=MIDDLEWARE) as client:
        answer = client.post("/7/", headers=JSON)
    assert (answer.status_code, answer.json()["reason"]) == (409, "stale")
    assert "Retry-After" not in answer
    assert cell.read() == 0, "the transaction of the request is rolled back"


@pytest.mark.parametrize("error", [ValueError("x"), LockBackendError("down")])
def test_other_errors_are_left_alone(error: Exception) -> None:
    def view(request: HttpRequest, pk: int) -> Any:
        raise error

    with page(view, MIDDLEWARE=MIDDLEWARE) as client, pytest.raises(type(error)):
        client.get("/7/")
