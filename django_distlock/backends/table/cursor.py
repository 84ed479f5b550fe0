"""A cursor that is used again: making one costs as much as all that a statement does otherwise."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["cursor_of"]

# How it was made, the driver's connection, and the cursor.
_Kept = tuple[Any, object, Any]


class _Thread(threading.local):
    kept: _Kept | None = None


_thread = _Thread()


class cursor_of:
    """``connection.cursor()``, but the cursor of the statement before, if Django made the same now.

    It is Django's own wrapper of a cursor, so what Django does at each statement is done. What it
    does when a cursor is made is looked at here, and where it matters one is made: the connection
    is another or was opened again, `connection.cursor` was replaced (by the guard of tests without
    a database, or by tools that measure), queries are logged, or an event loop runs here, where
    Django refuses.
    """

    __slots__ = ("_connection", "_keeping", "_used")

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection

    def __enter__(self) -> Any:
        connection = self._connection
        # Taken out while it is in use: a wrapper around queries, or the handler of a signal, may
        # ask the store meanwhile.
        kept, _thread.kept = _thread.kept, None
        # A database wrapper of somebody's may do more for each cursor, as django-tenants does.
        usual = type(connection)._cursor is BaseDatabaseWrapper._cursor  # type: ignore[attr-defined]
        quiet = not connection.queries_logged and asyncio._get_running_loop() is None
        self._keeping = usual and quiet
        make: Any = connection.cursor
        if kept and self._keeping and kept[0] == make and kept[1] is connection.connection:
            self._used = kept
        else:
            cursor = make()
            self._used = (make, connection.connection, cursor)
        return self._used[2]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._keeping and error is None:
            _thread.kept = self._used
        else:
            self._used[2].__exit__(kind, error, trace)
