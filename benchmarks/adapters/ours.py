"""django-distlock, by its public API and with its default options."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from ..adapter import Adapter

if TYPE_CHECKING:
    from django_distlock import Lock

__all__ = [
    "Ours",
    "OursLimited",
    "OursPolling",
    "OursRow",
    "OursShared",
    "OursVersion",
    "OursVersionLimited",
    "OursVersionShared",
]


class Ours(Adapter):
    """What ``with lock(name):`` does, taken apart at the colon."""

    name = "django-distlock"
    kind = "ours"
    alias: ClassVar[str] = "default"
    at_once: int | None = 1
    mode: Mapping[str, Any] = MappingProxyType({})
    """The options that say how the lock is held."""

    def open(self) -> None:
        """Connect as a program does: by its first lock."""
        from django_distlock import lock

        self._lock = lock

    def close(self) -> None:
        """Close as at the end of a request."""
        from django.db import connections

        connections.close_all()

    def acquire(self, key: str) -> Lock:
        """Enter the block; the alias's WAIT is longer than any measurement."""
        guard: Lock = self._lock(key, using=self.alias, **self.mode)
        guard.__enter__()
        return guard

    def release(self, handle: Lock) -> None:
        """Leave the block."""
        handle.__exit__(None, None, None)

    def try_acquire(self, key: str) -> Any:
        """Attempt once."""
        guard = self._lock(key, using=self.alias, wait=0, **self.mode)
        lease = guard.acquire()
        return None if lease is None else lease


class OursShared(Ours):
    """The same, shared with others."""

    name = "django-distlock, shared"
    waits = exclusive = False
    at_once = None
    mode = MappingProxyType({"shared": True})


class OursLimited(Ours):
    """The same, held by four at once."""

    name = "django-distlock, limit=4"
    waits = exclusive = False
    at_once = 4

    def open(self) -> None:
        """Open, and say how many may hold it."""
        super().open()
        self.mode = {"limit": self.at_once}


class OursPolling(Ours):
    """The same told not to queue, by ``"WAITING": "poll"``: what queueing has to be better than."""

    name = "django-distlock, polling"
    alias = "polling"
    at_once = None


class OursRow(Ours):
    """The same with the row backend."""

    name = "django-distlock row"
    backend = "row"
    alias = "row"


class OursVersion(Ours):
    """The same with the version backend."""

    name = "django-distlock version"
    backend = "version"
    alias = "version"


class OursVersionShared(OursShared, OursVersion):
    """The version backend, shared."""

    name = "django-distlock version, shared"


class OursVersionLimited(OursLimited, OursVersion):
    """The version backend, with a limit."""

    name = "django-distlock version, limit=4"
