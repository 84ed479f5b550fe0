"""Rows of the lock table as time would have made them."""

from __future__ import annotations

import time
from typing import Any

from django.db import connections

from django_distlock.core.names import key_of, readable

__all__ = ["DAY", "HOUR", "digests", "emptied", "put"]

HOUR = 3600.0
DAY = 24 * HOUR


def _micros(ago: float) -> int:
    return round((time.time() - ago) * 1_000_000)


def put(
    database: str,
    name: str,
    *,
    granted: float,
    freed: float | None = None,
    ends: float | None = None,
    prefix: str = "",
) -> str:
    """Write the row of a name that was granted so many seconds ago; return its key.

    And freed so many seconds ago, or with a lease that ends in so many; neither of them: cleared
    by hand, as a how-to says.
    """
    expires = 0
    if freed is not None:
        expires = -_micros(freed)
    elif ends is not None:
        expires = _micros(-ends)
    key = key_of(prefix, name)
    owner = "somebody" if ends is not None else ""
    row: list[Any] = [key, readable(name), owner, _micros(granted), _micros(granted), expires, ""]
    with connections[database].cursor() as cursor:
        cursor.execute("INSERT INTO distlock_lock VALUES (%s, %s, %s, %s, %s, %s, %s)", row)
    return key


def digests(database: str) -> set[str]:
    """Return the keys of all rows."""
    with connections[database].cursor() as cursor:
        cursor.execute("SELECT digest FROM distlock_lock")
        return {row[0] for row in cursor.fetchall()}


def emptied(database: str) -> None:
    """Remove all rows."""
    with connections[database].cursor() as cursor:
        cursor.execute("DELETE FROM distlock_lock")
