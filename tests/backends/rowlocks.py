"""What the tests of row locks share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from django_distlock import (
    Lease,
    lock,
    locks,
)
from django_distlock.backends.row import RowBackend
from tests.backends.tools import (
    SERVERS,
    Elsewhere,
    lock_alias,
)
from tests.servers import ByStore

ROW = "django_distlock.backends.row.RowBackend"
ROOT = Path(__file__).resolve().parents[2]
CLOCK = ByStore(
    {
        "postgresql": "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
        "mariadb": "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    }
)

on_servers = pytest.mark.parametrize("store", SERVERS)


@contextmanager
def row_alias(alias: str, database: str, **conf: Any) -> Iterator[str]:
    """Add an alias of the row backend for a while, with sessions of its own."""
    with lock_alias(alias, BACKEND=ROW, LOCATION=database, **conf):
        yield alias


def row(alias: str) -> RowBackend:
    """Return the backend of an alias."""
    return cast("RowBackend", locks[alias])


def taken(name: str, using: str, **options: Any) -> Lease:
    """Take a lock."""
    lease: Lease | None = lock(name, using=using, **options).acquire()
    assert lease
    return lease


def waits(name: str, using: str) -> bool:
    """Tell whether somebody of this process stands in the server's queue for a lock."""
    backend = row(using)
    sessions = list(backend._sessions.values())
    return any(each.sent and each.key == backend.key(name) for each in sessions)


def refused(name: str, using: str) -> bool:
    """Tell whether somebody else is refused."""
    return Elsewhere(lock(name, using=using, wait=0).acquire).start().result() is None
