"""django-db-mutex: a row that is there or not, through the ORM."""

from __future__ import annotations

from typing import Any

from ..adapter import Polled
from .orm import again

__all__ = ["DbMutex"]


class DbMutex(Polled):
    """``with db_mutex(name):``, tried again when it raises that the lock is taken."""

    name = "django-db-mutex"
    kind = "alternative"
    needs = ("db_mutex",)
    apps = ("db_mutex",)

    def open(self) -> None:
        """Connect."""
        from db_mutex import DBMutexError
        from db_mutex.db_mutex import db_mutex
        from django.db import connections

        self._mutex, self._busy = db_mutex, DBMutexError
        connections["default"].ensure_connection()

    def close(self) -> None:
        """Close Django's connection."""
        from django.db import connections

        connections.close_all()

    def try_acquire(self, key: str) -> Any:
        """Enter the block, if it can be entered."""
        from django.db.utils import OperationalError

        mutex = self._mutex(key)
        try:
            mutex.__enter__()
        except self._busy:
            return None
        except OperationalError:  # a dead lock on MariaDB, a busy file on SQLite
            self.failures += 1
            return None
        return mutex

    def release(self, handle: Any) -> None:
        """Leave the block."""
        self.failures += again(lambda: handle.__exit__(None, None, None))
