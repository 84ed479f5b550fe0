"""What an error of a database means: try again, or what to do about it."""

from __future__ import annotations

from typing import Any

from django.db.utils import OperationalError

__all__ = [
    "EndRefused",
    "Outrun",
    "Overdue",
    "OwnTransaction",
    "is_conflict",
    "is_end_refused",
    "is_pooler_busy",
    "is_session_end",
    "is_wait_over",
    "remedy",
    "state_of",
]

# PostgreSQL: serialization failure, dead lock, lock not available.
_SQLSTATES = {"40001", "40P01", "55P03"}
# MariaDB: lock wait timeout, dead lock, record changed since last read (snapshot isolation),
# max_statement_time. MySQL: a commit that lost to another primary's.
_MARIADB = {1205, 1213, 1020, 1969, 3101}
_DURING_COMMIT = (1180, "Got error 149 ")  # a dead lock, as Group Replication tells it
# SQLite: SQLITE_BUSY and SQLITE_LOCKED, without the extended part.
_SQLITE = {5, 6}
_SNAPSHOT = 517  # SQLITE_BUSY_SNAPSHOT
# PostgreSQL: admin shutdown, crash shutdown, the limits on idle transactions, idle sessions and
# transactions. MariaDB: connection killed. MySQL: disconnected for inactivity.
_WAIT_OVER = {"55P03", "40P01", "57014", 1213, 1317, 1969, 3024}
_SESSION_END = {"57P01", "57P02", "25P03", "57P05", "25P04", 1927, 4031}

# PostgreSQL's SQLSTATE, MariaDB's number or SQLite's code; a driver that cannot connect has but the
# text.
_NO_TABLE = {"42P01", 1146}
_READ_ONLY = {"25006", 1792, 1836, 8}
_NO_CONNECTION = {"53300", 1040, 1203, 1226}
_NO_CONNECTION_AS = ("too many c", "no more connections", "connection slots are reserved")
_NO_SPACE = {"53100", 1021, 1114, 13}
_NO_RIGHT = {"42501", 1044, 1142}
_END_REFUSED = {"42501", 1095, 1227}
_REFUSED = {"28000", "28P01", "3D000", 1045, 1049, 1698}
_REFUSED_AS = ("authentication failed", "no pg_hba.conf entry", 'role "', 'database "')
_UNREACHED = {2002, 2003, 2005, 2026}
_UNREACHED_AS = ("connection to server", "resolve host", "translate host name")


class Outrun(OperationalError):
    """The row changed between a read and the write that goes by it: to be tried again."""


class Overdue(OperationalError):
    """The server did not answer in time; what it did is unknown."""


class EndRefused(OperationalError):
    """The server does not let this role end the session of another."""


class OwnTransaction(OperationalError):
    """The lock would wait for the caller's own transaction, which it keeps from going on."""


def is_conflict(error: Exception) -> bool:
    """Return whether the database asks to run the statement again."""
    if isinstance(error, Outrun):
        return True
    driver: Any = error.__cause__ or error
    if state_of(driver) in _SQLSTATES:
        return True
    code = getattr(driver, "sqlite_errorcode", None)
    if code is not None:
        # Whoever has read before another wrote can never write in the same transaction.
        return code != _SNAPSHOT and (code & 0xFF) in _SQLITE
    code, text = (*driver.args, None, None)[:2]
    if code == _DURING_COMMIT[0]:
        return str(text).startswith(_DURING_COMMIT[1])
    return code in _MARIADB


def is_wait_over(error: Exception) -> bool:
    """Return whether a wait in the queue has ended by its limit, or by a limit of the user's.

    PostgreSQL: lock_timeout, deadlock, statement_timeout. MariaDB answers without an error, but
    has a deadlock (1213), a statement's time (1969; 3024 on MySQL) and KILL QUERY (1317) as well.
    """
    return bool(_codes(error) & _WAIT_OVER)


def is_session_end(error: Exception) -> bool:
    """Return whether the server said that it had ended the session, in place of an answer."""
    return bool(_codes(error) & _SESSION_END)


def is_end_refused(error: Exception) -> bool:
    """Return whether the server does not let the role end a session, where that was asked for."""
    return bool(_codes(error) & _END_REFUSED)


def is_pooler_busy(error: Exception) -> bool:
    """Return whether PgBouncer said that it had no session of the server's for a statement."""
    return "query_wait_timeout" in str(error)


def _codes(error: Exception) -> set[str | int | None]:
    """Return PostgreSQL's SQLSTATE of an error, and MariaDB's number."""
    driver: Any = error.__cause__ or error
    return {state_of(driver), *driver.args[:1]}


def state_of(driver: Any) -> str | None:
    """Return the SQLSTATE of an error of PostgreSQL's drivers."""
    return getattr(driver, "sqlstate", None) or getattr(driver, "pgcode", None)


def remedy(error: Exception, database: str) -> str:
    """Return what to do about a database error."""
    where = f"DATABASES[{database!r}]"
    said = str(error).lower()
    driver: Any = error.__cause__ or error
    code = getattr(driver, "sqlite_errorcode", None)
    known = _codes(error) | {None if code is None else code & 0xFF}
    if "no such table" in said or known & _NO_TABLE:
        return f"Run 'manage.py migrate django_distlock --database {database}'"
    if isinstance(error, OwnTransaction):
        return "Commit before you take a lock, or use atomic() in place of autocommit"
    if code == _SNAPSHOT:
        return (
            "This transaction read the SQLite file before another connection wrote to it, so it "
            "can write no more: set 'transaction_mode': 'IMMEDIATE' in the OPTIONS of "
            f"{where}, or take the lock before atomic(), as lock(...).atomic() does"
        )
    if "is locked" in said:
        return (
            "Another connection was writing to the SQLite file for longer than the wait: keep "
            "its transactions short, and use WAL mode and transaction_mode IMMEDIATE"
        )
    # 1290 is any option of MariaDB's that forbids a statement.
    if known & _READ_ONLY or (1290 in known and "read" in said):
        return (
            f"{where} is read-only, a replica perhaps: locks need the primary, so "
            "name that in LOCATION"
        )
    if is_pooler_busy(error):
        return (
            f"The pooler of {where} had no session free for as long as its query_wait_timeout: "
            "raise the size of its pool, or keep transactions short"
        )
    if known & _NO_CONNECTION or any(words in said for words in _NO_CONNECTION_AS):
        return (
            "All connections that the database server, or the pooler before it, allows are in "
            "use: raise max_connections (PgBouncer's max_client_conn), or use fewer (threads, "
            "CONN_MAX_AGE, a pooler)"
        )
    if known & _NO_SPACE:
        return f"The disk of {where}, or its quota, is full: make room"
    if known & _NO_RIGHT:
        return (
            f"The role of {where} may not do that: GRANT it SELECT, INSERT, UPDATE "
            "and DELETE on the tables of django_distlock; on PostgreSQL USAGE, SELECT and UPDATE "
            "on their sequences, too"
        )
    if known & _REFUSED or any(words in said for words in _REFUSED_AS):
        return f"Look at NAME, USER and PASSWORD of {where}, which the server refuses"
    if known & _UNREACHED or any(words in said for words in _UNREACHED_AS):
        return f"Look at HOST, PORT and OPTIONS of {where}, and whether the server runs"
    if is_conflict(error):
        return (
            "Other transactions had the same row until the wait was over: wait longer, keep them "
            f"short, or set the isolation level of {where} to READ COMMITTED"
        )
    if isinstance(error, Overdue):
        return "Look at the database server: it hangs or is cut off (COMMAND_TIMEOUT)"
    return f"Look at the database server of {where} and its log"
