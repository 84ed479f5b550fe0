"""The contract suite on MySQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from django_distlock import lock
from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.table.statements import MySQLStatements
from django_distlock.testing.contract import LockBackendContract
from tests import clusters, mysql_servers
from tests.backends.tools import table
from tests.contract.connections import sockets_in_use
from tests.servers import chosen, missing
from tests.servers.mysql import MySQL

MODES = (
    *("", "ANSI", "TRADITIONAL", "ANSI_QUOTES,PIPES_AS_CONCAT", "NO_BACKSLASH_ESCAPES"),
    *("REAL_AS_FLOAT", "HIGH_NOT_PRECEDENCE", "NO_UNSIGNED_SUBTRACTION", "IGNORE_SPACE"),
    *("PAD_CHAR_TO_FULL_LENGTH", "TIME_TRUNCATE_FRACTIONAL", "NO_AUTO_VALUE_ON_ZERO"),
    *("NO_ZERO_DATE", "ALLOW_INVALID_DATES"),
)

if "mysql" in chosen():

    class OnMySQL(LockBackendContract):
        """A technique of SQL on MySQL."""

        @classmethod
        def backend(cls) -> BaseLockBackend:
            """Return the backend; once the tests are collected, the server is started for it."""
            if clusters.is_hidden(cls.alias):
                mysql_servers.running()
            return super().backend()

        @property
        def server(self) -> MySQL:
            """The server, started by the first who asks."""
            return mysql_servers.running()

        def restart_store(self) -> None:
            self.server.restart()

        def hang_store(self) -> AbstractContextManager[None]:
            return self._paused()

        @contextmanager
        def _paused(self) -> Iterator[None]:
            self.server.pause()
            try:
                yield
            finally:
                self.server.resume()

        def open_connections(self) -> int:
            return sockets_in_use(self.backend(), self.server.port)

    class TestTable(OnMySQL):
        """The table, by the statements of MySQL's own."""

        alias = "mysql"

        def test_the_statements_are_its_own(self) -> None:
            self.backend()
            assert isinstance(table(self.alias).statements(), MySQLStatements)

        @pytest.mark.parametrize("mode", MODES)
        def test_in_every_sql_mode(self, mode: str, name: str) -> None:
            self.backend()
            before = self.server.execute("SELECT @@GLOBAL.sql_mode")
            self.server.execute(f"SET GLOBAL sql_mode = '{mode}'")
            try:
                with lock(name, using=self.alias, metadata={"a": "\\'\""}) as lease:
                    lease.renew()
                    assert lock(name, using=self.alias).locked()
                with lock(name, using=self.alias) as later:
                    assert later.fencing_token > lease.fencing_token
                assert not lock(name, using=self.alias).locked()
            finally:
                self.server.execute(f"SET GLOBAL sql_mode = '{before}'")

    class TestPortable(OnMySQL):
        """The table by the ORM alone."""

        alias = "portable-mysql"

    class TestVersion(OnMySQL):
        """Compare-and-swap."""

        alias = "version-mysql"

elif "mysql" in missing():

    @pytest.mark.skip(reason=missing()["mysql"])
    def test_mysql() -> None:
        """Stand for the contract suite in the report."""
