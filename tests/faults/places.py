"""A place where locks are kept and that a test may disturb: the alias "own"."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connections

from tests.backends.outages import COMMAND
from tests.backends.tools import database_alias, elsewhere, lock_alias
from tests.servers import ByStore, DatabaseServer

CONNECTIONS = 12
"""How many connections a server of these tests allows, besides one that is its administrator's."""

OPTIONS = ByStore(
    {
        "postgresql": [
            *("-c", f"max_connections={CONNECTIONS}", "-c", "superuser_reserved_connections=0"),
            *("-c", "max_wal_senders=0", "-c", "autovacuum=off"),
        ],
        "mariadb": [f"--max-connections={CONNECTIONS}"],
    }
)


@dataclass(frozen=True)
class Place:
    """The alias "own" of DATABASES and of DISTLOCKS."""

    store: str
    settings: dict[str, Any]
    server: DatabaseServer | None

    def execute(self, sql: str) -> None:
        """Run a statement in the database, on a connection that ends with it."""

        def run() -> None:
            with connections["own"].cursor() as cursor:
                cursor.execute(sql)

        elsewhere(run)


@contextmanager
def opened(
    store: str, settings: dict[str, Any], server: DatabaseServer | None, **options: Any
) -> Iterator[Place]:
    """Open the alias "own" on a database."""
    conf = {"LOCATION": "own", "OPTIONS": {"COMMAND_TIMEOUT": COMMAND, **options}}
    with database_alias("own", settings), lock_alias("own", **conf):
        yield Place(store, settings, server)
