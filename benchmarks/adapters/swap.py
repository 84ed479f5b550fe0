"""Compare-and-swap on a version column: the bare statements, and django-concurrency."""

from __future__ import annotations

from typing import Any

from ..adapter import Polled, PolledAsOurs
from .orm import again
from .statements import Bare

__all__ = ["BareSwap", "BareSwapPolled", "DjangoConcurrency"]


class BareSwap(Bare):
    """The version backend's two statements, and the one that frees, on the driver's own cursor."""

    name = "bare compare-and-swap"
    backend = "version"

    def open(self) -> None:
        """Take the driver's cursor, and the statements of the database."""
        from django.db import connections

        from django_distlock.backends.version import TAKES

        super().open()
        dialect, taking = next(each for each in TAKES if each[0] is self._dialect)
        self._look, self._take, self._make = dialect.see, taking.take, dialect.make
        if connections["default"].vendor == "sqlite":
            names = ("key", "name", "owner", "ttl", "note", "now", "seen", "token", "acquired")
            marks = {name: f":{name}" for name in (*names, "fresh")}
            self._look, self._take, self._make = (
                sql % marks for sql in (self._look, self._take, self._make)
            )

    def try_acquire(self, key: str) -> str | None:
        """Read the row; when it is free, write it if it is still as it was."""
        from django_distlock.backends.table.statements import fresh_token

        given = self._at(self._known(key)[0])
        self._execute(self._look, given)
        row = self._cursor.fetchone()
        if row is None:
            self._execute(self._make, given | {"fresh": fresh_token()})
            return self.try_acquire(key)
        _, _, _, token, _, expires, _, now = row
        if expires > now:
            return None
        swap = {"seen": token, "token": max(token + 1, now), "acquired": now}
        self._execute(self._take, given | swap)
        return key if self._cursor.rowcount == 1 else None


class BareSwapPolled(PolledAsOurs, BareSwap):
    """The same, tried again after the pauses of the version backend."""

    name = "bare swap, polling"


class DjangoConcurrency(Polled):
    """django-concurrency: a flag in a row, written by a ``save()`` that compares the version."""

    name = "django-concurrency"
    kind = "alternative"
    backend = "version"
    needs = ("concurrency",)
    apps = ("concurrency", "benchmarks.concurrent")

    def open(self) -> None:
        """Connect."""
        from concurrency.exceptions import RecordModifiedError
        from django.db import connections

        from ..concurrent.models import Record

        self._rows: Any = Record._default_manager
        self._busy = RecordModifiedError
        connections["default"].ensure_connection()

    def close(self) -> None:
        """Close Django's connection."""
        from django.db import connections

        connections.close_all()

    def try_acquire(self, key: str) -> Any:
        """Read the row; when it is free, save it as taken."""
        from django.db.utils import OperationalError

        try:
            row, _ = self._rows.get_or_create(name=key)
            if row.taken:
                return None
            row.taken = True
            row.save()
        except self._busy:
            return None
        except OperationalError:  # a dead lock on MariaDB, a busy file on SQLite
            self.failures += 1
            return None
        return row

    def release(self, handle: Any) -> None:
        """Save it as free."""
        handle.taken = False
        self.failures += again(handle.save)
