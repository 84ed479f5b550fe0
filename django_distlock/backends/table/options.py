"""The table backend's OPTIONS, and their defaults."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from django.db.backends.base.base import BaseDatabaseWrapper

from ...conf import OptionSpec
from ...exceptions import InvalidLockBackendError
from ..options import one_of, true_or_false, whole_number

__all__ = ["QUEUE_CONNECTIONS", "SPEC", "check_schema", "is_durable", "queues"]

QUEUE_CONNECTIONS: Final = 4

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

# Where it is to be set instead, for all who use the database.
_INSTEAD = {
    "mysql": "innodb_flush_log_at_trx_commit is a setting of the whole server's there",
    "sqlite": "set PRAGMA synchronous in the init_command of the database's OPTIONS",
}


def _schema(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(
            f"the name of a schema is expected (letters, digits and '_', 63 at most), not {value!r}"
        )
    return value


SPEC: Final[OptionSpec] = {
    "SCHEMA": _schema,
    "SQL": one_of("auto", "portable"),
    "DURABLE": true_or_false,
    "WAITING": one_of("queue", "poll"),
    "QUEUE_CONNECTIONS": whole_number(1, 1000),
}


def _has_queue(connection: Any) -> bool:
    if connection.vendor == "sqlite":
        # The kernel's, on the file (see queue_file.py), of which only Linux has the right kind.
        return sys.platform == "linux" and not connection.is_in_memory_db()
    return connection.vendor in ("postgresql", "mysql")


def _blocks_greenlets(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a wait in the queue would stop all greenlets of the process.

    gevent has taken the place of threads, and the driver, or the kernel's lock on SQLite's file,
    knows nothing of that. psycopg 3 does.
    """
    monkey = sys.modules.get("gevent.monkey")
    if monkey is None or not monkey.is_module_patched("threading"):
        return False
    driver: Any = connection
    return bool(driver.Database.__name__ != "psycopg")


def queues(alias: str, given: Mapping[str, Any], connection: BaseDatabaseWrapper) -> bool:
    """Return whether waiters queue in the server: where it has a queue, unless told to poll.

    Nor where a waiter would stop all greenlets. Session locks are left behind on a connection that
    a transaction pooler or a pool hands to the next: so not by default with
    DISABLE_SERVER_SIDE_CURSORS, which is how Django is told of a transaction pooler, nor with a
    psycopg pool. (A pooler that Django was not told of is found at the first connection.)
    """
    portable = given.get("SQL") == "portable"
    has_queue = not portable and _has_queue(connection)
    if "WAITING" in given:
        if given["WAITING"] == "queue" and not has_queue:
            which = "the portable SQL" if portable else connection.display_name
            raise InvalidLockBackendError(
                f"DISTLOCKS[{alias!r}]['OPTIONS']['WAITING']: {which} has no queue to wait in; "
                "leave it out, or use 'poll'."
            )
        if given["WAITING"] == "queue" and _blocks_greenlets(connection):
            raise InvalidLockBackendError(
                f"DISTLOCKS[{alias!r}]['OPTIONS']['WAITING']: under gevent a wait in the queue of "
                f"{connection.display_name} would stop all greenlets of the process; leave it out, "
                "or use 'poll'."
            )
        return bool(given["WAITING"] == "queue")
    settings = connection.settings_dict
    pooled = settings.get("DISABLE_SERVER_SIDE_CURSORS") or settings["OPTIONS"].get("pool")
    return bool(has_queue and not pooled) and not _blocks_greenlets(connection)


def check_schema(alias: str, given: Mapping[str, Any], connection: BaseDatabaseWrapper) -> None:
    """Refuse SCHEMA where no statement of ours could name it."""
    if "SCHEMA" in given and (connection.vendor != "postgresql" or given.get("SQL") == "portable"):
        raise InvalidLockBackendError(
            f"DISTLOCKS[{alias!r}]['OPTIONS']['SCHEMA'] is for PostgreSQL, without 'SQL': "
            f"'portable'; {connection.alias!r} is {connection.display_name}: leave it out."
        )


def is_durable(alias: str, given: Mapping[str, Any], connection: BaseDatabaseWrapper) -> bool:
    """Return whether statements wait for the disk; refuse to skip that where nothing would."""
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
