"""What `manage.py check` says of a lock table's database; only `--deploy` asks it."""

from __future__ import annotations

from collections.abc import Callable

from django.core.checks import CheckMessage
from django.db import connections, router

from ...core import checking
from ...core.values import LockInfo
from ...exceptions import InvalidLockBackendError, LockBackendError

__all__ = ["check", "check_deploy"]


def check(
    alias: str, database: str, sql: str, *, model: str = "lockrow", schema: str | None = None
) -> list[CheckMessage]:
    """Return the messages for ``alias``, whose ``model`` is on the DATABASES alias ``database``."""
    found: list[CheckMessage] = []
    connection = connections[database]
    where = f"DISTLOCKS[{alias!r}]: LOCATION {database!r}"
    if connection.settings_dict.get("TEST", {}).get("MIRROR"):
        found.append(
            checking.error(
                f"{where} is a replica (TEST MIRROR is set).",
                hint="A replica lags, so two processes could hold one lock: name the primary.",
                id="distlock.E003",
            )
        )
    if not router.allow_migrate(database, "django_distlock", model_name=model):
        found.append(
            checking.error(
                f"{where} gets no lock table: the routers of DATABASE_ROUTERS keep it away.",
                hint="Have allow_migrate() allow the app django_distlock there, or name the "
                "database that has the table as LOCATION.",
                id="distlock.E007",
            )
        )
    if connection.vendor not in ("sqlite", "postgresql", "mysql"):
        found.append(
            checking.info(
                f"{where} is {connection.display_name}, for which there is no SQL of its own "
                "here, so that Django's ORM writes it.",
                hint="It takes more round trips, and has not been tested on this database.",
                id="distlock.I001",
            )
        )
    if "tenant" in connection.settings_dict["ENGINE"] and schema is None:
        found.append(
            checking.warning(
                f"{where} has a schema for each tenant, and the lock table is looked for in that "
                "of the moment.",
                hint="Locks of different schemas do not exclude each other, and the watchdog "
                "renews in the default one: put django_distlock into SHARED_APPS and set OPTIONS "
                "{'SCHEMA': 'public'}.",
                id="distlock.W006",
            )
        )
    if connection.vendor == "sqlite":
        import sqlite3

        if sql == "auto" and sqlite3.sqlite_version_info < (3, 35):
            found.append(
                checking.error(
                    f"{where}: SQLite {sqlite3.sqlite_version} has no RETURNING.",
                    hint="SQLite 3.35 or later is needed, or OPTIONS {'SQL': 'portable'}.",
                    id="distlock.E005",
                )
            )
        if str(connection.settings_dict["NAME"]) == ":memory:":
            found.append(
                checking.warning(
                    f"{where} is SQLite in memory, of which each thread has its own.",
                    hint="Locks then exclude no other connection: name a file, or "
                    "'file:NAME?mode=memory&cache=shared'.",
                    id="distlock.W003",
                )
            )
    return found


def check_deploy(
    alias: str, database: str, inspect: Callable[[str], LockInfo | None]
) -> list[CheckMessage]:
    """Return the messages for production, where the database can be asked."""
    found: list[CheckMessage] = []
    where = f"DISTLOCKS[{alias!r}]: LOCATION {database!r}"
    try:
        inspect("distlock: is the table there?")
    except (LockBackendError, InvalidLockBackendError) as error:
        found.append(
            checking.warning(
                f"{where} could not be asked for a lock. {error}",
                hint="Make the table by migrate, or run the check where the database can be "
                "reached.",
                id="distlock.W009",
            )
        )
    connection = connections[database]
    mode = connection.settings_dict["OPTIONS"].get("transaction_mode") or "DEFERRED"
    if connection.vendor == "sqlite" and mode.upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        found.append(
            checking.warning(
                f"{where} is SQLite with transactions that begin as readers.",
                hint="A lock, or any write, inside atomic() then fails at once with 'database is "
                "locked' when another connection wrote since the transaction's first read: set "
                "'transaction_mode': 'IMMEDIATE' in its OPTIONS.",
                id="distlock.W004",
            )
        )
    return found
