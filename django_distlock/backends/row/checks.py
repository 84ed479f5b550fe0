"""What `manage.py check` says of a row backend's database, without connecting to it."""

from __future__ import annotations

from django.core.checks import CheckMessage
from django.db import connections

from ...core import checking
from ..table.checks import check as check_table

__all__ = [
    "INSTEAD",
    "check",
    "check_sessions",
    "kept_open",
    "multi_primary",
    "no_row_locks",
    "permission",
    "pooler",
    "refusal",
]

INSTEAD = "Use the table backend (django_distlock.backends.table.TableBackend)"


def refusal(alias: str, database: str) -> str:
    """Return why a database without row locks is refused."""
    kind = connections[database].display_name
    why = "has no row locks, and Django leaves FOR UPDATE out there without a word"
    if connections[database].vendor != "sqlite":
        why = "is a database on which this backend has no statements"
    return f"DISTLOCKS[{alias!r}]: LOCATION {database!r} is {kind}, which {why}. {INSTEAD}."


def no_row_locks(alias: str, database: str, table: str, engine: str) -> str:
    """Return why a table is refused whose engine has no row locks."""
    return (
        f"DISTLOCKS[{alias!r}]: the table {table} of LOCATION {database!r} is of the engine "
        f"{engine}, which has no row locks, and leaves FOR UPDATE out without a word: "
        f"ALTER TABLE {table} ENGINE=InnoDB."
    )


def kept_open(database: str) -> str:
    """Return why sessions are refused that a pool keeps when they are closed."""
    return (
        f"The ENGINE of DATABASES[{database!r}] has a pool of its own, which keeps a session that "
        "is closed, and with it its locks and settings. Give the locks an alias of DATABASES with "
        "Django's own ENGINE, or use the table backend."
    )


def multi_primary(database: str, what: str) -> str:
    """Return why a cluster is refused of which each server is written."""
    return (
        f"DATABASES[{database!r}] is one of several servers that are written at once (Galera, or "
        f"Group Replication in multi-primary mode). {what} is known to one of them only, so that "
        f"others would be granted it, too. {INSTEAD}, or another kind of store."
    )


def permission(database: str, reason: str) -> str:
    """Return what to do when the role may not end a holder's session, and why it is ended."""
    if connections[database].vendor == "postgresql":
        return (
            f"{reason} its session is ended, which this role may not do: connect as the "
            "role of the holder, or GRANT pg_signal_backend TO it (a superuser's sessions are "
            "ended by superusers only)"
        )
    return (
        f"{reason} its session is ended, which this account may not do: connect as the "
        "account of the holder, or GRANT CONNECTION ADMIN ON *.* TO it"
    )


def pooler(database: str) -> str:
    """Return what to do when a pooler in transaction mode gives no answer."""
    return (
        f"DATABASES[{database!r}] seems to be behind a pooler, of whose connections each row lock "
        "keeps one for as long as it is held or waited for: give the locks an alias of DATABASES "
        "that goes past the pooler, raise the size of its pool, or use the table backend"
    )


def check(alias: str, database: str) -> list[CheckMessage]:
    """Return the messages for ``alias`` on the DATABASES alias ``database``."""
    return check_sessions(
        alias,
        database,
        model="rowlock",
        refused=refusal(alias, database),
        instead=f"{INSTEAD}, or the version backend.",
        pooled="A row lock is an open transaction: it keeps one of the pooler's connections "
        "to the server for as long as it is held or waited for.",
    )


def check_sessions(
    alias: str, database: str, *, model: str, refused: str, instead: str, pooled: str
) -> list[CheckMessage]:
    """Return the messages for an alias whose locks belong to sessions of the database."""
    connection = connections[database]
    if connection.vendor not in ("postgresql", "mysql"):
        return [checking.error(refused, hint=instead, id="distlock.E006")]
    found = check_table(alias, database, "portable", model=model)
    if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
        found.append(
            checking.warning(
                f"DISTLOCKS[{alias!r}]: LOCATION {database!r} has DISABLE_SERVER_SIDE_CURSORS, as "
                "for a pooler in transaction mode.",
                hint=f"{pooled} Give the locks an alias of DATABASES that goes past the pooler, or "
                "use the table backend.",
                id="distlock.W005",
            )
        )
    return found
