"""What `manage.py check` says of an advisory backend's database, without connecting to it."""

from __future__ import annotations

from django.core.checks import CheckMessage
from django.db import connections

from ...core import checking
from ..table.checks import check as check_table

__all__ = ["check", "lock_table_full", "permission", "pooled", "refusal"]

_INSTEAD = "Use the table backend (django_distlock.backends.table.TableBackend)"


def refusal(alias: str, database: str) -> str:
    """Return why a database without advisory locks is refused."""
    kind = connections[database].display_name
    return (
        f"DISTLOCKS[{alias!r}]: LOCATION {database!r} is {kind}, which has no advisory locks, or "
        f"none that this backend knows. {_INSTEAD}."
    )


def pooled(database: str) -> str:
    """Return why a session that is shared by a pooler's clients is refused."""
    return (
        f"DATABASES[{database!r}] is behind a pooler that gives each transaction another session "
        "of PostgreSQL, in which an advisory lock would be left behind. Give the locks an alias of "
        "DATABASES that goes past the pooler or has it pool sessions, or use the table backend."
    )


def permission(database: str) -> str:
    """Return what to do when the role may not end the session of a holder."""
    if connections[database].vendor == "postgresql":
        return (
            "The holder's process does not answer, so its session is ended, which this role may "
            "not do: connect as the role of the holder, or GRANT pg_signal_backend TO it"
        )
    return (
        "The holder's process does not answer, so its session is ended, which this account may "
        "not do: connect as the account of the holder, or GRANT CONNECTION ADMIN ON *.* TO it"
    )


def lock_table_full(database: str) -> str:
    """Return what to do when PostgreSQL has no place for one more lock."""
    return (
        f"The lock table of DATABASES[{database!r}] is full: hold fewer locks, or raise "
        "max_locks_per_transaction in postgresql.conf, of which each connection that is allowed "
        "gives so many places"
    )


def check(alias: str, database: str) -> list[CheckMessage]:
    """Return the messages for ``alias`` on the DATABASES alias ``database``."""
    connection = connections[database]
    if connection.vendor not in ("postgresql", "mysql"):
        return [checking.error(refusal(alias, database), hint=f"{_INSTEAD}.", id="distlock.E006")]
    found = check_table(alias, database, "portable", model="advisoryholder")
    if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
        found.append(
            checking.warning(
                f"DISTLOCKS[{alias!r}]: LOCATION {database!r} has DISABLE_SERVER_SIDE_CURSORS, as "
                "for a pooler in transaction mode.",
                hint="An advisory lock belongs to a session of PostgreSQL, which such a pooler "
                "does not keep for its client: the backend then refuses to work. Give the locks an "
                "alias of DATABASES that goes past the pooler, or use the table backend.",
                id="distlock.W005",
            )
        )
    return found
