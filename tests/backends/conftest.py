"""Fixtures for the tests of lock tables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections

from tests.backends.outages import COMMAND, Place
from tests.backends.tools import LIMIT, LOCMEM, STORES, TABLE, Cell, database_alias, lock_alias
from tests.conftest import SERVERS
from tests.servers import DATABASES, DatabaseServer


@dataclass(frozen=True)
class Case:
    """A lock backend, and the database on which the program has its transaction."""

    backend: str  # "table", in that same database, or "locmem"
    database: str

    @property
    def bound(self) -> bool:
        """Whether the lock is written in the caller's own transaction."""
        return self.backend == "table" and self.database == "sqlite"

    @contextmanager
    def alias(self, mode: str) -> Iterator[str]:
        """Open a lock alias with this IN_TRANSACTION."""
        conf = {"BACKEND": TABLE, "LOCATION": self.database}
        if self.backend == "locmem":
            conf = {"BACKEND": LOCMEM}
        with lock_alias(f"{self.backend}-{mode}", **conf, IN_TRANSACTION=mode) as alias:
            yield alias


CASES = [Case(backend, store) for store in STORES for backend in ("table", "locmem")]


@pytest.fixture(params=CASES, ids=lambda case: f"{case.backend}-{case.database}")
def case(request: pytest.FixtureRequest) -> Case:
    """Each pair of a lock backend and a database."""
    found: Case = request.param
    return found


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    """Each database of this run that is both an alias of DATABASES and of DISTLOCKS."""
    return str(request.param)


@pytest.fixture
def alias(store: str) -> Iterator[str]:
    """An alias of the test's own; at its end nothing is left of those who waited."""
    from tests.backends.wait_queues import (  # needs Django's set-up, which comes later
        eventually,
        left,
    )

    with lock_alias(f"{store}-wait queues", LOCATION=store, WAIT=LIMIT) as opened:
        yield opened
        eventually(lambda: left(opened))


@pytest.fixture
def cell(request: pytest.FixtureRequest, name: str) -> Cell:
    """A number in the database of `case` or `store`, for a lock to guard."""
    if "case" in request.fixturenames:
        return Cell.new(request.getfixturevalue("case").database, name)
    return Cell.new(request.getfixturevalue("store"), name)


@pytest.fixture(autouse=True)
def no_connections_left() -> Iterator[None]:
    """Close the main thread's connections, so that each test begins with none."""
    connections.close_all()
    yield
    for connection in connections.all(initialized_only=True):
        assert not connection.in_atomic_block
    connections.close_all()


@pytest.fixture(scope="session")
def empty_databases(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], dict[str, Any]]:
    """Give what makes a migrated database of a store, once, that no other test connects to."""

    @functools.cache
    def made(store: str) -> dict[str, Any]:
        if store in DATABASES:
            settings = SERVERS[store].create_database("quiet")
        else:
            file = tmp_path_factory.mktemp("quiet") / "db.sqlite3"
            settings = connections.settings[store] | {"NAME": str(file)}
        with database_alias("quiet", settings):
            call_command("migrate", database="quiet", verbosity=0)
        return settings

    return made


@pytest.fixture
def quiet(store: str, empty_databases: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """The settings of a database of `store` that nobody else is connected to."""
    return dict(empty_databases(store))


@pytest.fixture(scope="module", params=[store for store in STORES if store in DATABASES])
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """A server of the module's own, for tests that disturb it."""
    with DATABASES[request.param]() as started:
        with database_alias("own", started.create_database("own")):
            call_command("migrate", database="own", verbosity=0)
        yield started


@pytest.fixture(params=[{}], ids=[""])
def own(request: pytest.FixtureRequest, server: DatabaseServer) -> Iterator[Place]:
    """The alias "own" of DATABASES and DISTLOCKS; a parameter adds to the DATABASES settings."""
    settings = server.settings("own") | {"CONN_MAX_AGE": None} | request.param
    conf = {"LOCATION": "own", "OPTIONS": {"COMMAND_TIMEOUT": COMMAND}}
    with database_alias("own", settings), lock_alias("own", **conf):
        try:
            yield Place(server)
        finally:
            server.resume()
            server.start()
