"""What `manage.py check` says of a lock table's database, without connecting to it."""

from __future__ import annotations

from django.core.checks import CheckMessage, Error, Info, Warning
from django.db import connections, router

__all__ = ["check", "check_deploy"]

_DOCS = "docs/reference/checks.md"


def check(
    alias: str, database: str, sql: str, *, model: str = "lockrow", schema: str | None = None
) -> list[CheckMessage]:
    """Return the messages for ``alias``, whose ``model`` is on the DATABASES alias ``database``."""
    found: list[CheckMessage] = []
    connection = connections[database]
    where = f"DISTLOCKS[{alias!r}]: LOCATION {database!r}"
    if connection.settings_dict.get("TEST", {}).get("MIRROR"):
        found.append(
            Error(
                f"{where} is a replica (TEST MIRROR is set).",
                hint=f"A replica lags, so two processes could hold one lock: name the primary. "
                f"See {_DOCS}.",
                id="distlock.E003",
            )
        )
    if not router.allow_migrate(database, "django_distlock", model_name=model):
        found.append(
            Error(
                f"{where} gets no lock table: the routers of DATABASE_ROUTERS keep it away.",
                hint="Have allow_migrate() allow the app django_distlock there, or name the "
                f"database that has the table as LOCATION. See {_DOCS}.",
                id="distlock.E007",
            )
        )
    if connection.vendor not in ("sqlite", "postgresql", "mysql"):
        found.append(
            Info(
                f"{where} is {connection.display_name}, for which there is no SQL of its own "
                "here, so that Django's ORM writes it.",
                hint="It takes more round trips, and has not been tested on this database. "
                f"See {_DOCS}.",
                id="distlock.I001",
            )
        )
    if "tenant" in connection.settings_dict["ENGINE"] and schema is None:
        found.append(
            Warning(
                f"{where} has a schema for each tenant, and the lock table is looked for in that "
                "of the moment.",
                hint="Locks of different schemas do not exclude each other, and the watchdog "
                "renews in the default one: put django_distlock into SHARED_APPS and set OPTIONS "
                f"{{'SCHEMA': 'public'}}. See {_DOCS}.",
                id="distlock.W006",
            )
        )
    if connection.vendor == "sqlite":
        import sqlite3

        if sql == "auto" and sqlite3.sqlite_version_info < (3, 35):
            found.append(
                Error(
                    f"{where}: SQLite {sqlite3.sqlite_version} has no RETURNING.",
                    hint="SQLite 3.35 or later is needed, or OPTIONS {'SQL': 'portable'}. "
                    f"See {_DOCS}.",
                    id="distlock.E005",
                )
            )
        if str(connection.settings_dict["NAME"]) == ":memory:":
            found.append(
                Warning(
                    f"{where} is SQLite in memory, of which each thread has its own.",
                    hint="Locks then exclude no other connection: name a file, or "
                    f"'file:NAME?mode=memory&cache=shared'. See {_DOCS}.",
                    id="distlock.W003",
                )
            )
    return found


def check_deploy(alias: str, database: str) -> list[CheckMessage]:
    """Return the messages for production."""
    connection = connections[database]
    mode = connection.settings_dict["OPTIONS"].get("transaction_mode") or "DEFERRED"
    if connection.vendor != "sqlite" or mode.upper() in ("IMMEDIATE", "EXCLUSIVE"):
        return []
    return [
        Warning(
            f"DISTLOCKS[{alias!r}]: LOCATION {database!r} is SQLite with transactions that begin "
            "as readers.",
            hint="A lock, or any write, inside atomic() then fails at once with 'database is "
            "locked' when another connection wrote since the transaction's first read: set "
            f"'transaction_mode': 'IMMEDIATE' in its OPTIONS. See {_DOCS}.",
            id="distlock.W004",
        )
    ]
