"""Databases: a file of SQLite, and servers of our own."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from tests.servers import DatabaseServer
from tests.servers.mariadb import MariaDB
from tests.servers.mysql import MySQL
from tests.servers.postgresql import PostgreSQL

from .base import Store, alias

__all__ = ["Mariadb", "Mysql", "Postgresql", "Sqlite"]

CONNECTIONS = 400  # one for each of 256 waiters, and more where they queue


class Database(Store):
    """A database of Django's, with the backends that it can have."""

    database: dict[str, Any]
    """The DATABASES entry."""

    def settings(self) -> dict[str, Any]:
        """Return the database, and an alias for each backend."""
        kinds = {"default": "table.Table", "version": "version.Version"}
        if not self.in_client:  # SQLite has neither
            kinds |= {"row": "row.Row", "advisory": "advisory.Advisory"}
        aliases = {name: alias(kind) for name, kind in kinds.items()}
        aliases["polling"] = aliases["default"] | {"OPTIONS": {"WAITING": "poll"}}
        return {"DATABASES": {"default": self.database}, "DISTLOCKS": aliases}


class Sqlite(Database):
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


class Served(Database):
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
        self.server = PostgreSQL(durable=True, options=["-c", f"max_connections={CONNECTIONS}"])

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
        self.server = MariaDB(durable=True, options=[f"--max-connections={CONNECTIONS}"])

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


class Mysql(Mariadb):
    """innodb_flush_log_at_trx_commit=1, no binary log."""

    name = "mysql"

    def __init__(self) -> None:
        self.server = MySQL(durable=True, options=[f"--max-connections={CONNECTIONS}"])
