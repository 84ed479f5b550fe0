"""The check of django-health-check, asked as a load balancer asks it."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.test import RequestFactory
from health_check.views import HealthCheckView

from django_distlock import lock, locks
from django_distlock.contrib.health_check import LockStore, lock_stores
from tests.backends.tools import SERVERS, STORES, database_alias, lock_alias, unreachable
from tests.conftest import REDIS
from tests.conftest import SERVERS as STARTED
from tests.servers import chosen
from tests.unit.tools import UnitBackend


def ask(*checks: Any) -> tuple[int, dict[str, str]]:
    """Return the status, and what is said of each check."""
    view = HealthCheckView.as_view(checks=checks)
    request = RequestFactory().get("/health/", {"format": "json"})
    response = asyncio.run(view(request))
    return response.status_code, json.loads(response.content)


def of(alias: str, seconds: float = 5) -> tuple[type[LockStore], dict[str, Any]]:
    """Return the check of one alias."""
    return LockStore, {"alias": alias, "timeout": timedelta(seconds=seconds)}


def test_every_alias_is_well() -> None:
    status, said = ask(*lock_stores(timeout=timedelta(seconds=20)))
    assert said == {f"LockStore(alias={alias!r})": "OK" for alias in locks}
    assert status == 200


def test_its_names() -> None:
    check = LockStore("redis")
    assert repr(check) == "LockStore(alias='redis')"
    assert check.labels == {"check": "LockStore", "alias": "redis"}
    assert check.timeout == timedelta(seconds=2)


@pytest.mark.parametrize("store", STORES)
def test_a_store_that_is_down(store: str, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING),
        database_alias("down", unreachable(store)),
        lock_alias("down", LOCATION="down"),
    ):
        status, said = ask(of("down"), of("locmem"))
    assert status == 500
    # Not what the driver says, which names hosts and users; that is in the log.
    assert said["LockStore(alias='down')"].endswith("The store failed")
    assert said["LockStore(alias='locmem')"] == "OK"
    assert "OperationalError" in caplog.text


@pytest.mark.parametrize("server", SERVERS)
def test_a_store_that_hangs(server: str) -> None:
    STARTED[server].pause()
    try:
        status, said = ask(of(server, 0.3))
    finally:
        STARTED[server].resume()
    assert status == 500
    assert said[f"LockStore(alias={server!r})"].endswith("did not answer within 0.3 s")
    assert ask(of(server, 20))[0] == 200


def test_an_alias_that_is_not_there() -> None:
    status, said = ask(of("nowhere"))
    assert status == 500
    assert said["LockStore(alias='nowhere')"].endswith("DISTLOCKS has no valid alias 'nowhere'")


def test_nothing_is_taken(backend: UnitBackend) -> None:
    with lock("a", using=backend.alias):
        backend.calls.clear()
        assert ask(of(backend.alias))[0] == 200
    assert {verb for verb, _ in backend.calls} == {"inspect", "release"}  # that is the block's


@pytest.mark.parametrize("store", STORES)
def test_no_table_is_written_to(store: str) -> None:
    def rows() -> list[Any]:
        with connections[store].cursor() as cursor:
            cursor.execute("SELECT name, token, owner, expires FROM distlock_lock ORDER BY name")
            return list(cursor.fetchall())

    lock("health", using=store).locked()
    before = rows()
    assert ask(of(store, 20))[0] == 200
    assert rows() == before


@pytest.mark.parametrize("store", [store for store in ("redis",) if store in chosen()])
def test_no_key_is_written(store: str) -> None:
    before = sorted(REDIS[0].execute("KEYS", "*").split())
    assert ask(of(store, 20))[0] == 200
    assert sorted(REDIS[0].execute("KEYS", "*").split()) == before
