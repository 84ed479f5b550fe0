"""django-ninja: its operations are locked as views are."""

from __future__ import annotations

import asyncio
from typing import Any

from django.http import HttpRequest
from django.test import AsyncClient
from django.urls import path
from ninja import NinjaAPI

from django_distlock import lock
from django_distlock.views import locked_view
from tests.unit.tools import UnitBackend
from tests.views.site import site, taken


def served(api: NinjaAPI, **settings: Any) -> Any:
    return site(path("api/", api.urls), **settings)


def test_an_operation(backend: UnitBackend) -> None:
    api = NinjaAPI(urls_namespace="sync", docs_url=None)

    @api.post("/pay/{pk}")
    @locked_view("item:{pk}", using=backend.alias)
    def pay(request: HttpRequest, pk: int) -> dict[str, object]:
        return {"pk": pk, "held": backend.holds(f"item:{pk}")}

    with served(api) as client:
        assert client.post("/api/pay/7").json() == {"pk": 7, "held": True}
        assert not backend.holds("item:7")
        with taken("item:7", backend.alias):
            refused = client.post("/api/pay/7", headers={"Accept": "application/json"})
        assert (refused.status_code, refused["Retry-After"]) == (409, "2")
        assert refused.json()["reason"] == "held"


def test_an_asynchronous_operation(backend: UnitBackend) -> None:
    api = NinjaAPI(urls_namespace="async", docs_url=None)

    @api.post("/pay/{pk}")
    @locked_view("item:{pk}", using=backend.alias)
    async def pay(request: HttpRequest, pk: int) -> dict[str, object]:
        return {"pk": pk, "held": backend.holds(f"item:{pk}")}

    async def ask() -> Any:
        return await AsyncClient().post("/api/pay/7")

    with served(api):
        assert asyncio.run(ask()).json() == {"pk": 7, "held": True}
        with taken("item:7", backend.alias):
            assert asyncio.run(ask()).status_code == 409


def test_the_middleware_answers_for_an_operation(backend: UnitBackend) -> None:
    api = NinjaAPI(urls_namespace="middleware", docs_url=None)

    @api.get("/pay/{pk}")
    def pay(request: HttpRequest, pk: int) -> dict[str, int]:
        with lock(f"item:{pk}", using=backend.alias, wait=0):
            return {"pk": pk}

    middleware = ["django_distlock.middleware.LockConflictMiddleware"]
    with served(api, MIDDLEWARE=middleware) as client, taken("item:7", backend.alias):
        assert client.get("/api/pay/8").json() == {"pk": 8}
        assert client.get("/api/pay/7").status_code == 409
