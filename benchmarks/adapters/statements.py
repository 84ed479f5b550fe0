"""The baseline: the statements of our own lock table, on the driver's own cursor.

What a careful programmer would write by hand, without owners, deadlines, renewal or errors. The
cursor is one that the driver made on Django's connection, and is kept.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

from ..adapter import Adapter, PolledAsOurs

__all__ = ["Bare", "BarePolled", "BarePrepared"]


class Bare(Adapter):
    """The two statements, and nothing else."""

    name = "bare statements"
    kind = "baseline"
    waits = False

    def open(self) -> None:
        """Take the driver's cursor, and put together what does not change."""
        from django.db import connections

        from django_distlock import locks
        from django_distlock.backends.table import TableBackend
        from django_distlock.backends.table.statements import TextStatements

        connection = connections["default"]
        connection.ensure_connection()
        backend = locks["default"]
        assert isinstance(backend, TableBackend)
        statements = backend.statements()
        assert isinstance(statements, TextStatements)
        self._backend, self._dialect = backend, statements.dialect
        self._cursor = self._make_cursor(connection.connection)
        self._acquire, self._release = self._dialect.acquire, self._dialect.release
        if connection.vendor == "sqlite":
            names = ("key", "name", "owner", "ttl", "note", "now")
            marks = {name: f":{name}" for name in names}
            self._acquire, self._release = self._acquire % marks, self._release % marks
        self._parameters: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._owner = secrets.token_hex(16)

    def close(self) -> None:
        """Close Django's connection."""
        from django.db import connections

        self._cursor.close()
        connections.close_all()

    def acquire(self, key: str) -> str:
        """Attempt once; it is free."""
        handle = self.try_acquire(key)
        assert handle is not None, "the baseline does not wait"
        return key

    def try_acquire(self, key: str) -> str | None:
        """Run the acquire statement."""
        parameters = self._at(self._known(key)[0])
        self._execute(self._acquire, parameters)
        rows = self._cursor.fetchall()
        if not rows and self._dialect.create:
            self._execute(self._dialect.create, parameters)
            rows = self._cursor.fetchall()
        return key if rows and rows[0][0] == self._owner else None

    def release(self, handle: str) -> None:
        """Run the release statement."""
        self._execute(self._release, self._at(self._known(handle)[1]))
        assert self._cursor.rowcount == 1

    def _make_cursor(self, driver_connection: Any) -> Any:
        return driver_connection.cursor()

    def _execute(self, sql: str, parameters: dict[str, Any]) -> None:
        self._cursor.execute(sql, parameters)

    def _known(self, key: str) -> tuple[dict[str, Any], dict[str, Any]]:
        if key not in self._parameters:
            claim, dialect = self._claim(key), self._dialect
            self._parameters[key] = (dialect.acquiring(claim, key), dialect.parameters(claim))
        return self._parameters[key]

    def _at(self, parameters: dict[str, Any]) -> dict[str, Any]:
        if "now" in parameters:
            parameters["now"] = time.time_ns() // 1000
        return parameters

    def _claim(self, key: str) -> Any:
        from django_distlock.core.holder import this_note
        from django_distlock.core.values import Claim

        # The note as the library writes it: a row without one would be shorter.
        return Claim(key, self._backend.key(key), self._owner, 30.0, this_note(None))


class BarePrepared(Bare):
    """The two statements, parsed and planned once (psycopg's server-side binding)."""

    name = "bare, prepared"

    def _make_cursor(self, driver_connection: Any) -> Any:
        import psycopg

        return psycopg.Cursor(driver_connection)

    def _execute(self, sql: str, parameters: dict[str, Any]) -> None:
        self._cursor.execute(sql, parameters, prepare=True)


class BarePolled(PolledAsOurs, Bare):
    """The two statements, tried again after 5 ms, doubling up to 100 ms, each jittered."""

    name = "bare, polling"
