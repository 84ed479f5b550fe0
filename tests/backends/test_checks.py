"""What `manage.py check` says of a lock table's database, and what SQLite's remembers."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings

from django_distlock import LockNotAcquiredError, lock
from django_distlock.backends.row.checks import check as check_row
from django_distlock.backends.table import checks
from tests.backends.tools import SERVERS, STORES, database_alias, elsewhere, table

SQLITE = {"ENGINE": "django.db.backends.sqlite3"}


def ids(settings: dict[str, Any]) -> list[str | None]:
    """Return the ids of what is said of a database with these settings."""
    with database_alias("looked-at", settings):
        found = checks.check("mine", "looked-at", "auto")
    for message in found:
        assert message.hint
        assert "DISTLOCKS['mine']: LOCATION 'looked-at'" in message.msg
    return [message.id for message in found]


@pytest.mark.parametrize("store", STORES)
def test_the_databases_of_this_run_are_fine(store: str) -> None:
    assert ids(connections.settings[store]) == []


def test_e003_a_replica() -> None:
    assert ids(SQLITE | {"NAME": "x", "TEST": {"MIRROR": "default"}}) == ["distlock.E003"]


class NoLocks:
    """A router that keeps the app's tables away from a database."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return app_label != "django_distlock" if db == "looked-at" else None


def test_e007_a_router_that_keeps_the_table_away() -> None:
    with override_settings(DATABASE_ROUTERS=[NoLocks()]):
        assert ids(SQLITE | {"NAME": "x"}) == ["distlock.E007"]


@pytest.mark.parametrize("store", SERVERS)
def test_e007_of_row_locks(store: str) -> None:
    with (
        override_settings(DATABASE_ROUTERS=[NoLocks()]),
        database_alias("looked-at", connections.settings[store]),
    ):
        found = check_row("mine", "looked-at")
    assert [message.id for message in found] == ["distlock.E007"]


def test_e005_an_old_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    assert ids(SQLITE | {"NAME": "x"}) == ["distlock.E005"]


def test_w003_a_database_of_one_thread() -> None:
    assert ids(SQLITE | {"NAME": ":memory:"}) == ["distlock.W003"]


@pytest.mark.parametrize("store", [store for store in STORES if store == "sqlite"])
def test_names_of_refusals_are_not_kept_for_ever(
    store: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite remembers what was held when last asked for: a number of names, and for a while."""
    monkeypatch.setattr("django_distlock.backends.table.MOST_CONTENDED", 3)
    backend = table(store)
    backend._contended.clear()

    def refused(what: str) -> None:
        with pytest.raises(LockNotAcquiredError), lock(what, using=store, wait=0):
            pass

    what = name
    for number in range(5):
        what = f"{name}:{number}"
        with lock(what, using=store):
            elsewhere(partial(refused, what))
        assert backend.key(what) in backend._contended
        assert len(backend._contended) <= 3
    began = backend.clock()
    monkeypatch.setattr(backend, "clock", lambda: began + 60.0)
    assert not backend._is_contended(backend.key(what))
    assert backend.key(what) not in backend._contended
