"""Checks for django-health-check: `LockStore`, `lock_stores`. Needs the extra ``health``."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..backends.base import BaseLockBackend
from ..handler import locks
from ..inspection import ask

try:
    from health_check.base import HealthCheck
    from health_check.exceptions import ServiceUnavailable
except ImportError as error:
    raise ImproperlyConfigured(
        "django_distlock.contrib.health_check needs django-health-check 4.8 or newer: "
        'pip install "django-distlock[health]"'
    ) from error

__all__ = ["LockStore", "lock_stores"]

NAME = "distlock:health"
"""The lock that is asked for. It is never taken."""


@dataclasses.dataclass
class LockStore(HealthCheck):  # type: ignore[misc]
    """Whether the store of an alias answers in time; it is only read.

    What the store said goes to the log, not on the page, which may be public.
    """

    alias: str = "default"
    timeout: timedelta = dataclasses.field(default=timedelta(seconds=2), repr=False)

    def run(self) -> None:
        """Ask the store who holds a lock; raise ServiceUnavailable when it does not say."""

        def inspect(backend: BaseLockBackend) -> None:
            backend.call("inspect", NAME, name=NAME)

        try:
            backend = locks[self.alias]
        except ImproperlyConfigured as error:
            raise ServiceUnavailable(f"DISTLOCKS has no valid alias {self.alias!r}") from error
        answer = ask({self.alias: backend}, inspect, self.timeout.total_seconds())[self.alias]
        if answer.error is not None and answer.cause is None:
            raise ServiceUnavailable(answer.error)
        if answer.cause is not None:
            raise ServiceUnavailable("The store failed") from answer.cause


def lock_stores(**options: Any) -> list[tuple[type[LockStore], dict[str, Any]]]:
    """Return a check for each alias, as HealthCheckView takes them; each with ``options``."""
    return [(LockStore, {"alias": alias, **options}) for alias in locks]
