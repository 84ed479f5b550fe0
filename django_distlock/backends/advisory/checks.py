"""What `manage.py check` says of an advisory backend's database, without connecting to it."""

from __future__ import annotations

from django.core.checks import CheckMessage
from django.db import connections

from ..row.checks import INSTEAD, check_sessions

__all__ = ["check", "lock_table_full", "no_transactions", "pooled", "refusal"]


def refusal(alias: str, database: str) -> str:
    """Return why a database without advisory locks is refused."""
    kind = connections[database].display_name
    return (
        f"DISTLOCKS[{alias!r}]: LOCATION {database!r} is {kind}, which has no advisory locks, or "
        f"none that this backend knows. {INSTEAD}."
    )


def pooled(database: str) -> str:
    """Return why a session that is shared by a pooler's clients is refused."""
    return (
        f"DATABASES[{database!r}] is behind a pooler that gives each transaction another session "
        "of PostgreSQL, in which an advisory lock would be left behind. Give the locks an alias of "
        "DATABASES that goes past the pooler or has it pool sessions, or use the table backend."
    )


def no_transactions(database: str) -> str:
    """Return why a database cannot hold a lock for a transaction."""
    kind = connections[database].display_name
    return (
        f"xact=True needs PostgreSQL, and DATABASES[{database!r}] is {kind}, whose advisory locks "
        "end with the session and not with the transaction. Leave xact out"
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
    return check_sessions(
        alias,
        database,
        model="advisoryholder",
        refused=refusal(alias, database),
        instead=f"{INSTEAD}.",
        pooled="An advisory lock belongs to a session of PostgreSQL, which such a pooler does not "
        "keep for its client: the backend then refuses to work, but for atomic(xact=True).",
    )
