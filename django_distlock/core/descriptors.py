"""What is asked of database connections: their sockets, their servers, the engines of tables."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["descriptor_of", "engine_of", "is_multi_primary", "mute"]


def descriptor_of(driver_connection: Any) -> int | None:
    """Return the descriptor of the socket, or None if there is none, or none any more."""
    # PyMySQL keeps its socket below.
    socket = driver_connection if hasattr(driver_connection, "fileno") else None
    fileno = getattr(socket or getattr(driver_connection, "_sock", None), "fileno", None)
    # As PEP 249 has it; nothing else, such as Celery's soft time limit, is an answer.
    error = getattr(driver_connection, "Error", OSError)
    try:
        return None if fileno is None else int(fileno())
    except (error, OSError, ValueError):
        return None  # the connection is dead, which the statement will find too


def mute(descriptor: int | None) -> None:
    """Cut off, in a forked child, a connection of the parent's.

    When it is collected, at the child's exit at the latest (seen with mysqlclient on Python 3.12),
    the driver says goodbye to the server, and that would end the parent's session.
    """
    if descriptor is not None:
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, descriptor, inheritable=False)
        os.close(nowhere)


def engine_of(connection: Any, table: str) -> str | None:
    """Return the engine of a table on MySQL or MariaDB, in small letters; None if unknown."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT LOWER(ENGINE) FROM information_schema.TABLES"
            " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s",
            [table],
        )
        row = cursor.fetchone()
    return None if row is None else row[0]


def is_multi_primary(connection: Any) -> bool:
    """Return whether a MySQL or MariaDB is one of several servers that are written at once.

    Galera, and Group Replication in multi-primary mode. A row lock or GET_LOCK() is known to one
    server only, and a write conflicts with those on the others when it is committed.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SHOW GLOBAL VARIABLES WHERE Variable_name = 'wsrep_on' AND Value = 'ON'"
            " OR Variable_name = 'group_replication_single_primary_mode' AND Value = 'OFF'"
        )
        return cursor.fetchone() is not None
