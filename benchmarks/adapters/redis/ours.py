"""django-distlock in Redis, in a process that has its database open, too."""

from __future__ import annotations

from typing import ClassVar

from ...adapter import Backend
from ..ours import Ours, OursLimited, OursShared

__all__ = [
    "OursRedis",
    "OursRedisLimited",
    "OursRedisShared",
    "OursRedlock",
    "OursRedlockShared",
    "OursScriptless",
]


class OursRedis(Ours):
    """The redis backend."""

    backend: ClassVar[Backend] = "redis"

    def open(self) -> None:
        """Open the database, of which each lock asks whether it is in a transaction."""
        from django.db import connections

        super().open()
        connections["default"].ensure_connection()

    def close(self) -> None:
        """Close what is open in Redis and in the database."""
        from django_distlock import locks

        locks.close_all()
        super().close()


class OursScriptless(OursRedis):
    """The same without scripts, on servers that forbid them."""

    name = "django-distlock, no scripts"
    alias = "scriptless"
    at_once = None


class OursRedisShared(OursShared, OursRedis):
    """The same, shared."""


class OursRedisLimited(OursLimited, OursRedis):
    """The same, with a limit."""


class OursRedlock(OursRedis):
    """The redlock backend."""

    backend = "redlock"


class OursRedlockShared(OursShared, OursRedlock):
    """The same, shared."""
