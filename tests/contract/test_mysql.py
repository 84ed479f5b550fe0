"""The contract suite on MySQL."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_distlock import LockNotAcquiredError, LockTimeoutError, lock, locks
from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.table.statements import MySQLStatements
from django_distlock.models import LockRow
from django_distlock.rows import lock_rows
from tests import clusters, mysql_servers
from tests.backends.tools import elsewhere, table
from tests.contract.on_servers import AdvisoryOnServer, OnServer, RowOnServer
from tests.integration.test_pymysql import check as check_pymysql
from tests.servers import chosen, missing
from tests.servers.mysql import MySQL

MODES = (
    *("", "ANSI", "TRADITIONAL", "ANSI_QUOTES,PIPES_AS_CONCAT", "NO_BACKSLASH_ESCAPES"),
    *("REAL_AS_FLOAT", "HIGH_NOT_PRECEDENCE", "NO_UNSIGNED_SUBTRACTION", "IGNORE_SPACE"),
    *("PAD_CHAR_TO_FULL_LENGTH", "TIME_TRUNCATE_FRACTIONAL", "NO_AUTO_VALUE_ON_ZERO"),
    *("NO_ZERO_DATE", "ALLOW_INVALID_DATES"),
)

if "mysql" in chosen():

    class OnMySQL(OnServer):
        """A technique of SQL on MySQL."""

        # It waits for the disk at each commit, on a busy machine for more than a fifth of a second.
        short = 0.5
        moments_apart = 7  # all of them are tried elsewhere

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

        def test_the_round_trips_are_what_the_page_says(self, name: str) -> None:
            """One to win, two to lose, one to release."""
            self.backend()
            connection = connections["mysql"]
            connection.close()  # the server may have been restarted since
            key = lock(name, using=self.alias)
            with key:  # the row is made, and what an alias asks once is asked
                pass

            def counted(work: Callable[[], Any]) -> int:
                with CaptureQueriesContext(connection) as queries:
                    work()
                return len(queries)

            lease = key.acquire()
            assert lease is not None
            assert counted(lambda: contextvars.Context().run(key.acquire, wait=0)) == 2
            assert counted(lease.release) == 1
            assert counted(key.acquire) == 1
            locks[self.alias].force_release(name)

        def test_a_wait_in_the_queue_ends_in_time(
            self, name: str, caplog: pytest.LogCaptureFixture
        ) -> None:
            """GET_LOCK() knows whole seconds alone."""
            self.backend()
            with lock(name, using=self.alias):
                began = time.monotonic()
                assert elsewhere(lock(name, using=self.alias, wait=1.4).acquire) is None
                assert 1.3 < time.monotonic() - began < 6
            assert "No wait queue" not in caplog.text

    class TestPortable(OnMySQL):
        """The table by the ORM alone."""

        alias = "portable-mysql"

    class TestVersion(OnMySQL):
        """Compare-and-swap."""

        alias = "version-mysql"

    class TestRow(OnMySQL, RowOnServer):
        """Rows locked by FOR UPDATE."""

        alias = "row-mysql"

    class TestAdvisory(OnMySQL, AdvisoryOnServer):
        """GET_LOCK()."""

        alias = "advisory-mysql"

    class TestRowsOfTheApplication:
        """`lock_rows()`, whose limit is one of the session there."""

        def test_a_wait_is_limited_and_the_limit_put_back(self, name: str) -> None:
            mysql_servers.running()
            connections["mysql"].close()  # the server may have been restarted since
            LockRow.objects.using("mysql").create(digest=name[-64:], name="of the application")
            mine = LockRow.objects.using("mysql").filter(digest=name[-64:])

            def refused(**options: Any) -> type[Exception] | None:
                try:
                    with transaction.atomic(using="mysql"):
                        lock_rows(mine, **options)
                        return None
                except LockNotAcquiredError as error:
                    return type(error)
                finally:
                    with connections["mysql"].cursor() as cursor:
                        cursor.execute("SELECT @@SESSION.innodb_lock_wait_timeout")
                        assert cursor.fetchone() == (50,)
                    connections["mysql"].close()

            with transaction.atomic(using="mysql"):
                assert len(lock_rows(mine)) == 1
                assert elsewhere(partial(refused, wait=0)) is LockNotAcquiredError
                assert elsewhere(partial(refused, wait=0.5)) is LockTimeoutError
                assert elsewhere(partial(refused, skip_locked=True)) is None
            assert elsewhere(partial(refused, wait=None)) is None
            connections["mysql"].close()

    @pytest.mark.parametrize("alias", ["mysql", "row-mysql", "version-mysql", "advisory-mysql"])
    def test_by_pymysql(alias: str, name: str) -> None:
        check_pymysql(alias, name, mysql_servers.running())

elif "mysql" in missing():

    @pytest.mark.skip(reason=missing()["mysql"])
    def test_mysql() -> None:
        """Stand for the contract suite in the report."""
