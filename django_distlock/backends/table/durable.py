"""The option DURABLE: whether the lock's own statements wait for the database's disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from ...exceptions import InvalidLockBackendError

__all__ = ["is_durable", "judge"]

# Where it is to be set instead, for all who use the database.
_INSTEAD = {
    "mysql": "innodb_flush_log_at_trx_commit is a setting of the whole server's there",
    "sqlite": "set PRAGMA synchronous in the init_command of the database's OPTIONS",
}


def judge(value: Any) -> bool:
    """Return the option's value, or raise ValueError."""
    if not isinstance(value, bool):
        raise ValueError(f"True or False is expected, not {value!r}")
    return value


def is_durable(alias: str, given: Mapping[str, Any], connection: BaseDatabaseWrapper) -> bool:
    """Tell whether statements wait for the disk; refuse to skip that where nothing would."""
    if given.get("DURABLE", True):
        return True
    where = f"DISTLOCKS[{alias!r}]['OPTIONS']['DURABLE']"
    if connection.vendor != "postgresql":
        instead = _INSTEAD.get(connection.vendor, "it knows of no such setting for one statement")
        raise InvalidLockBackendError(
            f"{where}: False is for PostgreSQL only, and {connection.alias!r} is "
            f"{connection.display_name}: leave it out ({instead})."
        )
    if given.get("SQL") == "portable":
        raise InvalidLockBackendError(
            f"{where}: False needs SQL of our own: leave it out, or leave out 'SQL': 'portable'."
        )
    return False
