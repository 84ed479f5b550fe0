"""Rows locked by ``SELECT ... FOR UPDATE``: by the bare statements, and by Django's ORM."""

from __future__ import annotations

from typing import Any

from ..adapter import Adapter

__all__ = ["BareForUpdate", "SelectForUpdate"]

BEGIN = {"postgresql": "BEGIN", "mysql": "START TRANSACTION"}
LOCK = "SELECT id FROM orm_row WHERE name = %s FOR UPDATE"


class BareForUpdate(Adapter):
    """Three statements on the driver's own cursor: no token, no holder, no limit of any kind."""

    name = "bare FOR UPDATE"
    kind = "baseline"
    backend = "row"

    def open(self) -> None:
        """Take the driver's cursor."""
        from django.db import connections

        connection = connections["default"]
        connection.ensure_connection()
        self._cursor: Any = connection.connection.cursor()
        self._begin = BEGIN[connection.vendor]
        self._known: set[str] = set()

    def close(self) -> None:
        """Close Django's connection."""
        from django.db import connections

        self._cursor.close()
        connections.close_all()

    def acquire(self, key: str) -> str:
        """Begin, and lock the row; the server queues who waits."""
        if key not in self._known:
            make(key)
            self._known.add(key)
        self._cursor.execute(self._begin)
        self._cursor.execute(LOCK, [key])
        assert self._cursor.fetchone() is not None
        return key

    def release(self, handle: str) -> None:
        """Commit."""
        self._cursor.execute("COMMIT")


class SelectForUpdate(Adapter):
    """``with atomic(): Row.objects.select_for_update().get(name=...)``, as it is done by hand."""

    name = "select_for_update()"
    kind = "alternative"
    backend = "row"

    def open(self) -> None:
        """Connect."""
        from django.db import connections

        from ..orm.models import Row

        self._rows: Any = Row._default_manager
        self._known: set[str] = set()
        connections["default"].ensure_connection()

    def close(self) -> None:
        """Close Django's connection."""
        from django.db import connections

        connections.close_all()

    def acquire(self, key: str) -> Any:
        """Enter the block, and lock the row."""
        from django.db import transaction

        if key not in self._known:
            make(key)
            self._known.add(key)
        block = transaction.atomic()
        block.__enter__()
        self._rows.select_for_update().get(name=key)
        return block

    def release(self, handle: Any) -> None:
        """Leave the block."""
        handle.__exit__(None, None, None)


def make(key: str) -> None:
    """Make the row that is to be locked, if there is none."""
    from ..orm.models import Row

    Row._default_manager.bulk_create([Row(name=key)], ignore_conflicts=True)
