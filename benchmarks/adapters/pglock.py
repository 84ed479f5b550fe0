"""django-pglock: PostgreSQL's advisory locks, for which the server keeps a queue."""

from __future__ import annotations

from typing import Any, ClassVar

from ..adapter import Adapter

__all__ = ["PgLock", "PgLockShared"]


class PgLock(Adapter):
    """``with pglock.advisory(name):``, a lock of the session: no lease, no row, no disk."""

    name = "django-pglock"
    kind = "alternative"
    backend = "advisory"
    needs = ("pglock", "pgactivity")
    apps = ("pgactivity", "pglock")
    mode: ClassVar[dict[str, Any]] = {}

    def open(self) -> None:
        """Connect."""
        import pglock
        from django.db import connections

        self._advisory = pglock.advisory
        connections["default"].ensure_connection()

    def close(self) -> None:
        """Close Django's connection."""
        from django.db import connections

        connections.close_all()

    def acquire(self, key: str) -> Any:
        """Enter the block."""
        guard = self._advisory(key, **self.mode)
        guard.__enter__()
        return guard

    def release(self, handle: Any) -> None:
        """Leave the block."""
        handle.__exit__(None, None, None)


class PgLockShared(PgLock):
    """The same with ``shared=True``."""

    name = "django-pglock, shared"
    waits = exclusive = False
    mode: ClassVar[dict[str, Any]] = {"shared": True}
