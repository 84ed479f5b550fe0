"""What the contract is about, with the isolation levels that conflict: excluding, fencing, waiting.

The conflicts themselves are forced by hand in `tests/backends/test_conflicts.py`.
"""

from __future__ import annotations

import pytest
from django.db import connections, transaction

from django_distlock.testing.contract.parts import Exclusion, Fencing, Waiting
from tests.conftest import SERVERS
from tests.contract.connections import sockets_in_use
from tests.contract.on_servers import RowOnServer, wait_for_a_row
from tests.servers import DatabaseServer, chosen

ASKED = {
    "postgresql": "SHOW transaction_isolation",
    "mariadb": "SELECT @@tx_isolation",
}


class AtLevel(Exclusion, Fencing, Waiting):
    """The core of the suite, at an isolation level: alias "<store> <level>", after a technique."""

    @property
    def server(self) -> DatabaseServer:
        """The server of the alias."""
        return SERVERS[self.database().split()[0]]

    def open_connections(self) -> int:
        return sockets_in_use(self.backend(), self.server.port)

    def database(self) -> str:
        """Return the alias of DATABASES."""
        return self.alias.rpartition("-")[2]

    @pytest.mark.parametrize("block", ["autocommit", "transaction"])
    def test_the_level_is_that_of_the_name(self, block: str) -> None:
        """Ask the server, so that the other tests do not run at its default level."""
        store, _, level = self.database().partition(" ")
        with connections[self.database()].cursor() as cursor:
            if block == "transaction":
                with transaction.atomic(using=self.database()):
                    cursor.execute(ASKED[store])
            else:
                cursor.execute(ASKED[store])
            (said,) = cursor.fetchone()
        connections[self.database()].close()
        assert said.lower().replace("-", " ") == level


class RowAtLevel(AtLevel):
    """Rows locked by FOR UPDATE: a grant may need a new session."""

    least = RowOnServer.least

    def queued(self, waiters: int) -> bool:
        return wait_for_a_row(self.server) >= waiters


if "postgresql" in chosen():

    class TestPostgreSQLRepeatableRead(AtLevel):
        """The table, on PostgreSQL at REPEATABLE READ."""

        alias = "postgresql repeatable read"

    class TestPostgreSQLSerializable(AtLevel):
        """The table, on PostgreSQL at SERIALIZABLE."""

        alias = "postgresql serializable"

    class TestVersionOnPostgreSQLRepeatableRead(AtLevel):
        """Compare-and-swap, on PostgreSQL at REPEATABLE READ."""

        alias = "version-postgresql repeatable read"

    class TestVersionOnPostgreSQLSerializable(AtLevel):
        """Compare-and-swap, on PostgreSQL at SERIALIZABLE."""

        alias = "version-postgresql serializable"

    class TestRowOnPostgreSQLRepeatableRead(RowAtLevel):
        """Rows locked by FOR UPDATE, on PostgreSQL at REPEATABLE READ."""

        alias = "row-postgresql repeatable read"

    class TestRowOnPostgreSQLSerializable(RowAtLevel):
        """Rows locked by FOR UPDATE, on PostgreSQL at SERIALIZABLE."""

        alias = "row-postgresql serializable"


if "mariadb" in chosen():

    class TestMariaDBRepeatableRead(AtLevel):
        """The table, on MariaDB at REPEATABLE READ, with snapshots watched."""

        alias = "mariadb repeatable read"

    class TestMariaDBSerializable(AtLevel):
        """The table, on MariaDB at SERIALIZABLE."""

        alias = "mariadb serializable"

    class TestVersionOnMariaDBRepeatableRead(AtLevel):
        """Compare-and-swap, on MariaDB at REPEATABLE READ."""

        alias = "version-mariadb repeatable read"

    class TestVersionOnMariaDBSerializable(AtLevel):
        """Compare-and-swap, on MariaDB at SERIALIZABLE."""

        alias = "version-mariadb serializable"

    class TestRowOnMariaDBRepeatableRead(RowAtLevel):
        """Rows locked by FOR UPDATE, on MariaDB at REPEATABLE READ."""

        alias = "row-mariadb repeatable read"

    class TestRowOnMariaDBSerializable(RowAtLevel):
        """Rows locked by FOR UPDATE, on MariaDB at SERIALIZABLE."""

        alias = "row-mariadb serializable"
