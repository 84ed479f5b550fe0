"""Fixtures for the tests of faults: places that may be disturbed, one a process and store.

A test leaves its place as it found it: the next one uses the same server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections

from tests.backends.conftest import no_connections_left
from tests.backends.tools import STORES, database_alias
from tests.faults.places import OPTIONS, Place, opened
from tests.servers import DATABASES, DatabaseServer

__all__ = ["no_connections_left"]


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, DatabaseServer]]:
    """The servers that were disturbed so far in this process, by store."""
    with ExitStack() as stack:
        started: dict[str, DatabaseServer] = {}
        yield started
        for server in started.values():
            stack.callback(server.stop)


def own_server(servers: dict[str, DatabaseServer], store: str) -> DatabaseServer:
    """Return the server of a store, started and with a database "own" when first asked for."""
    if store not in servers:
        servers[store] = DATABASES[store](options=OPTIONS[store]).start()
        servers[store].create_database("own")
        with database_alias("own", account(servers[store])):
            call_command("migrate", database="own", verbosity=0)
    return servers[store]


def account(server: DatabaseServer) -> dict[str, Any]:
    """Return the settings of an account as a program has, to which `read_only` applies."""
    settings = server.settings("own") | {"CONN_MAX_AGE": None}
    if server.name != "postgresql":
        server.execute(
            "CREATE USER IF NOT EXISTS plain@'%' IDENTIFIED BY 'plain';"
            "GRANT ALL ON own.* TO plain@'%'"
        )
        settings |= {"USER": "plain", "PASSWORD": "plain"}
    return settings


@contextmanager
def at_file(folder: Path) -> Iterator[Place]:
    """Open the alias "own" on a new SQLite file."""
    settings = dict(connections.settings["sqlite"]) | {"NAME": str(folder / "db.sqlite3")}
    with opened("sqlite", settings, None) as place:
        call_command("migrate", database="own", verbosity=0)
        yield place


@contextmanager
def at_server(server: DatabaseServer) -> Iterator[Place]:
    """Open the alias "own" on a server, which goes on afterwards."""
    with opened(server.name, account(server), server) as place:
        try:
            yield place
        finally:
            server.resume()
            server.start()


@pytest.fixture(params=STORES)
def place(
    request: pytest.FixtureRequest, servers: dict[str, DatabaseServer], tmp_path: Path
) -> Iterator[Place]:
    """The alias "own" on a database of the test's own."""
    store = str(request.param)
    at = at_file(tmp_path) if store == "sqlite" else at_server(own_server(servers, store))
    with at as place:
        yield place


@pytest.fixture(params=[store for store in STORES if store in DATABASES])
def served(request: pytest.FixtureRequest, servers: dict[str, DatabaseServer]) -> Iterator[Place]:
    """The same, of those that have a server."""
    with at_server(own_server(servers, str(request.param))) as place:
        yield place


@pytest.fixture(params=[store for store in STORES if store not in DATABASES])
def filed(tmp_path: Path) -> Iterator[Place]:
    """The same, of those that are a file."""
    with at_file(tmp_path) as place:
        yield place
