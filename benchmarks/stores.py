"""The stores: starting them, what Django is told, and counting the work that they do."""

from __future__ import annotations

import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from tests.servers import DatabaseServer
from tests.servers.mariadb import MariaDB
from tests.servers.postgresql import PostgreSQL

__all__ = ["STORES", "Store", "set_up_django"]


class Store(ABC):
    """A store, with the settings that one would use in production."""

    name: ClassVar[str]
    in_client: ClassVar[bool] = False
    """Whether its work is done, and counted, in the clients' own processes."""
    database: dict[str, Any]
    """The DATABASES entry."""

    @abstractmethod
    def start(self) -> None:
        """Start it; nothing of Django is set up yet."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it and delete what it kept."""

    def pids(self) -> list[int]:
        """Return the server's processes."""
        return []

    def count_from_now(self) -> None:  # noqa: B027 - servers count by themselves
        """Have this client count, where clients do."""

    def settle(self, left: int = 0) -> None:  # noqa: B027 - some count at once
        """Wait until the server has counted what was done by all clients but the ``left`` ones."""

    @abstractmethod
    def work(self) -> int:
        """Return how many statements the server was asked to run."""

    @abstractmethod
    def writes(self) -> dict[str, int]:
        """Return counts of what goes to the disk."""


class Sqlite(Store):
    """A file in WAL mode; a commit is synced at the next checkpoint (synchronous=NORMAL)."""

    name = "sqlite"
    in_client = True

    def start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="distlock-bench-")
        self.database = {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(Path(self._folder.name) / "bench.sqlite3"),
            "OPTIONS": {"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"},
        }

    def stop(self) -> None:
        self._folder.cleanup()

    def work(self) -> int:
        """Return the statements of all connections that this process has opened."""
        return self._statements

    def count_from_now(self) -> None:
        """Count the statements of every connection that this process opens."""
        from django.db.backends.signals import connection_created

        self._statements = 0

        def count(_: str) -> None:
            self._statements += 1

        def connected(connection: Any, **_: Any) -> None:
            connection.connection.set_trace_callback(count)

        connection_created.connect(connected, weak=False)

    def writes(self) -> dict[str, int]:
        """Return the bytes that this process has written: SQLite runs inside of it."""
        for line in Path("/proc/self/io").read_text().splitlines():
            if line.startswith("wchar:"):
                return {"bytes written": int(line.split()[1])}
        raise RuntimeError("/proc/self/io has no wchar")


class Served(Store):
    """A database server of our own, that waits for the disk at each commit."""

    server: DatabaseServer

    def start(self) -> None:
        self.server.start()
        self.database = self.server.create_database("bench")

    def stop(self) -> None:
        self.server.stop()

    def pids(self) -> list[int]:
        return self.server.pids


class Postgresql(Served):
    """fsync and synchronous_commit on."""

    name = "postgresql"

    def __init__(self) -> None:
        self.server = PostgreSQL(durable=True)

    def start(self) -> None:
        super().start()
        assert self.server.execute("SHOW fsync") == self.server.execute("SHOW synchronous_commit")
        assert self.server.execute("SHOW fsync") == "on"

    def settle(self, left: int = 0) -> None:
        """Wait for the sessions to end: they report their counts when they do."""
        ask = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'bench'"
        end = time.monotonic() + 10
        while int(self.server.execute(ask)) > left:
            if time.monotonic() > end:
                raise RuntimeError("Sessions are left over in PostgreSQL")
            time.sleep(0.05)

    def work(self) -> int:
        """Return the transactions: a lone statement is one."""
        ask = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'bench'"
        return int(self.server.execute(ask))

    def writes(self) -> dict[str, int]:
        answer = self.server.execute("SELECT wal_sync, wal_records FROM pg_stat_wal")
        return dict(zip(("WAL syncs", "WAL records"), map(int, answer.split("|")), strict=True))


class Mariadb(Served):
    """innodb_flush_log_at_trx_commit=1, no binary log."""

    name = "mariadb"

    def __init__(self) -> None:
        self.server = MariaDB(durable=True)

    def start(self) -> None:
        super().start()
        assert self.server.execute("SELECT @@innodb_flush_log_at_trx_commit") == "1"

    def work(self) -> int:
        return self._status("Questions")

    def writes(self) -> dict[str, int]:
        return {
            "syncs": self._status("Innodb_data_fsyncs"),
            "log bytes": self._status("Innodb_os_log_written"),
        }

    def _status(self, name: str) -> int:
        return int(self.server.execute(f"SHOW GLOBAL STATUS LIKE '{name}'").split()[1])


STORES: dict[str, type[Store]] = {kind.name: kind for kind in (Sqlite, Postgresql, Mariadb)}


def set_up_django(store: Store, apps: list[str]) -> None:
    """Configure Django with the store as its only database, and make the tables.

    The lock's aliases have the default settings but for WAIT, longer than any measurement.
    """
    import django
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connections

    kinds = {"default": "table.Table", "row": "row.Row", "version": "version.Version"}
    if store.in_client:
        del kinds["row"]  # SQLite has no row locks
    settings.configure(
        INSTALLED_APPS=["django_distlock", "benchmarks.orm", *apps],
        DATABASES={"default": store.database},
        DISTLOCKS={
            alias: {"BACKEND": f"django_distlock.backends.{kind}Backend", "WAIT": 600}
            for alias, kind in kinds.items()
        },
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        SECRET_KEY="only for benchmarks",
        USE_TZ=True,
    )
    django.setup()
    call_command("migrate", run_syncdb=True, verbosity=0)
    connections.close_all()
