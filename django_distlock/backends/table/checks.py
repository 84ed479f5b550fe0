"""What `manage.py check` says of a lock table's database; only `--deploy` asks it."""

from __future__ import annotations

from collections.abc import Callable

from django.core.checks import CheckMessage
from django.db import connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import Error

from ...core import checking
from ...core.descriptors import is_multi_primary
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
    alias: str,
    database: str,
    inspect: Callable[[str], LockInfo | None],
    *,
    durable: bool = False,
) -> list[CheckMessage]:
    """Return the messages for production, where the database can be asked.

    With ``durable`` a crash of the server is not to undo what was committed.
    """
    found: list[CheckMessage] = []
    where = f"DISTLOCKS[{alias!r}]: LOCATION {database!r}"
    try:
        inspect("distlock: is the table there?")
        found += _judged(where, connections[database], durable=durable)
    except (LockBackendError, InvalidLockBackendError, Error) as error:
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


# What each database is asked: whether it is a replica, and what a crash may undo, in its own words.
_POSTGRESQL = """SELECT current_setting('transaction_read_only') = 'on',
 (SELECT min(name) FROM pg_settings
 WHERE name IN ('fsync', 'synchronous_commit') AND setting = 'off')"""
_MYSQL = """SELECT CONCAT(@@GLOBAL.read_only) NOT IN ('0', 'OFF'),
 IF(@@GLOBAL.innodb_flush_log_at_trx_commit = 1, NULL, 'innodb_flush_log_at_trx_commit')"""


def _judged(where: str, connection: BaseDatabaseWrapper, *, durable: bool) -> list[CheckMessage]:
    """Return what is wrong with how a database server is set up."""
    asked = {"postgresql": _POSTGRESQL, "mysql": _MYSQL}.get(connection.vendor)
    if asked is None:
        return []
    found: list[CheckMessage] = []
    with connection.cursor() as cursor:
        cursor.execute(asked)
        is_replica, setting = cursor.fetchone()
    if is_replica:
        found.append(
            checking.error(
                f"{where} is a replica, or set to be read only.",
                hint="It grants no lock: name the primary.",
                id="distlock.E003",
            )
        )
    if durable and setting:
        found.append(
            checking.warning(
                f"{where} confirms a commit before it is on the disk ({setting}).",
                hint="A crash of the server can undo the last grants, and two processes hold one "
                "lock: set it to what waits for the disk, or silence this.",
                id="distlock.W016",
            )
        )
    if connection.vendor == "mysql" and is_multi_primary(connection):
        found.append(
            checking.warning(
                f"{where} is one of several servers that are written at once (Galera, or Group "
                "Replication in multi-primary mode).",
                hint="Two of them may grant one lock: have all that takes locks use the same one, "
                "and silence this.",
                id="distlock.W017",
            )
        )
    return found
