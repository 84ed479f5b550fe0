"""Locking the application's own rows, in its own transaction, with the errors of this package."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, QuerySet
from django.db.utils import DatabaseError, Error, InterfaceError, OperationalError

from .core.descriptors import engine_of
from .core.durations import UNSET, Wait, check_wait
from .core.text import shown
from .decorators import check_contention
from .exceptions import (
    InvalidLockError,
    LockBackendError,
    LockDeadlockError,
    LockError,
    LockNotAcquiredError,
    LockTimeoutError,
    UnsupportedOperationError,
)

__all__ = ["lock_rows"]

M = TypeVar("M", bound=Model)

# PostgreSQL: lock not available. MariaDB: lock wait timeout, max_statement_time. MySQL: NOWAIT.
_BUSY = {"55P03", 1205, 1969, 3572}
_DEADLOCK = {"40P01", 1213}
SEEN = 400  # characters of each thing that an error says of a deadlock
_GRANT = "GRANT pg_read_all_stats TO it"

_FEATURE = {
    "nowait": "has_select_for_update_nowait",
    "skip_locked": "has_select_for_update_skip_locked",
    "of": "has_select_for_update_of",
    "no_key": "has_select_for_no_key_update",
}
# What to do on a database without it.
_INSTEAD = {
    "nowait": "leave it (or wait=0) out, and its own limit holds",
    "skip_locked": "leave it out, and wait for all rows",
    "of": "leave it out, and the joined rows are locked too; or leave select_related() out",
    "no_key": "leave it out, and rows that refer to these wait as well",
}


def lock_rows(
    queryset: QuerySet[M, M],
    *,
    nowait: bool = False,
    skip_locked: bool = False,
    of: Sequence[str] = (),
    no_key: bool = False,
    wait: Wait = UNSET,
    on_contention: Literal["raise", "skip"] | Callable[[LockNotAcquiredError], list[M]] = "raise",
) -> list[M]:
    """Lock the rows of ``queryset`` until the transaction around the call ends, and return them.

    ``nowait``, ``skip_locked``, ``of`` and ``no_key`` are those of `select_for_update`. ``wait``
    limits in the server how long it waits for rows that others have locked: ``0`` is ``nowait``, a
    number of seconds or a timedelta is a limit (MySQL rounds it up to whole seconds), None is no
    limit, and without it the server's own limit holds. Rows that are not to be had raise
    LockNotAcquiredError (``nowait``) or LockTimeoutError; with ``on_contention="skip"`` the answer
    is then an empty list, and a callable is given the error and returns the answer. A deadlock
    raises LockDeadlockError, always. The transaction can go on after each of them but a deadlock on
    MariaDB and MySQL, which undoes it. Rows that are not to be had raise, too, where the server
    undoes the transaction for them: its option innodb_rollback_on_timeout. A server that dies or
    ends the session meanwhile raises LockBackendError.

    Raises InvalidLockError outside of ``atomic()``, where nothing would stay locked, and
    UnsupportedOperationError on a database without row locks, such as SQLite, or without what is
    asked for: MariaDB has no ``of`` and no ``no_key``.
    """
    # That of writing, whatever a router says of reading.
    using = queryset.select_for_update().db
    connection = connections[using]
    check_contention(on_contention)
    limit = None if wait is UNSET else check_wait(wait)
    if limit == 0:
        nowait = True
    if (nowait and wait not in (UNSET, 0)) or (skip_locked and wait is not UNSET):
        raise InvalidLockError("wait is not given beside nowait or skip_locked, which do not wait")
    if nowait and skip_locked:
        raise InvalidLockError(
            "nowait and skip_locked are not given together: nowait raises for rows that others "
            "have locked, skip_locked leaves them out"
        )
    if not connection.features.has_select_for_update:
        raise UnsupportedOperationError(
            f"{connection.display_name} has no row locks, and Django leaves FOR UPDATE out there "
            "without a word: take a lock() around the transaction",
            alias=using,
        )
    if not connection.in_atomic_block:
        raise InvalidLockError(
            f"lock_rows() is called inside of atomic(using={using!r}): the rows are locked "
            "until that transaction ends"
        )
    _check_features(connection, nowait=nowait, skip_locked=skip_locked, of=of, no_key=no_key)
    _check_engines(connection, queryset.model)
    rows = queryset.select_for_update(
        nowait=nowait, skip_locked=skip_locked, of=tuple(of), no_key=no_key
    )
    try:
        # In a savepoint: on PostgreSQL an error ends all that it is part of.
        with transaction.atomic(using=using):
            if wait is UNSET or nowait:
                return list(rows)
            with _limit(connection, limit):
                return list(rows)
    except (DatabaseError, InterfaceError) as error:
        told = _translated(error, connection, rows, wait=not nowait)
        if told is None:
            raise
        undone = connection.needs_rollback  # what was written before is lost: say so
        if isinstance(told, LockNotAcquiredError) and on_contention != "raise" and not undone:
            return on_contention(told) if callable(on_contention) else []
        raise told from error


# Tables that were seen to have row locks, with their database.
_lockable: set[tuple[object, str]] = set()


def _check_engines(connection: BaseDatabaseWrapper, model: type[Model]) -> None:
    """Refuse tables of engines that have no row locks, which leave FOR UPDATE out in silence."""
    if connection.vendor != "mysql":
        return
    tables = {each._meta.db_table for each in (model, *model._meta.get_parent_list())}
    for table in tables:
        known = (connection.settings_dict["NAME"], table)
        if known in _lockable:
            continue
        engine = engine_of(connection, table)
        if engine not in (None, "innodb"):
            raise UnsupportedOperationError(
                f"The table {table} is of the engine {engine}, which has no row locks: "
                f"ALTER TABLE {table} ENGINE=InnoDB",
                alias=connection.alias,
            )
        _lockable.add(known)


def _check_features(connection: BaseDatabaseWrapper, **asked: object) -> None:
    """Refuse what the database lacks, which Django says in an error of its own."""
    for option, value in asked.items():
        if value and not getattr(connection.features, _FEATURE[option]):
            raise UnsupportedOperationError(
                f"{connection.display_name} cannot lock rows with {option}: {_INSTEAD[option]}",
                alias=connection.alias,
            )


@contextmanager
def _limit(connection: BaseDatabaseWrapper, seconds: float | None) -> Iterator[None]:
    """Limit the server's wait for locked rows; None is no limit."""
    if connection.vendor == "postgresql":
        wanted = "0" if seconds is None else str(max(1, round(seconds * 1000)))
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)",
                [wanted],
            )
            before = cursor.fetchone()[0]
        yield
        # After an error the savepoint has put it back.
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [before])
        return
    if connection.vendor != "mysql":
        raise UnsupportedOperationError(
            f"wait cannot be limited on {connection.display_name}: use nowait",
            alias=connection.alias,
        )
    if not connection.mysql_is_mariadb:  # type: ignore[attr-defined]
        # Of the session, in whole seconds: there is no limit for one statement that locks rows.
        whole = 1_000_000 if seconds is None else max(1, math.ceil(seconds))
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@SESSION.innodb_lock_wait_timeout")
            (before,) = cursor.fetchone()
            cursor.execute("SET SESSION innodb_lock_wait_timeout = %s", [whole])
        try:
            yield
        finally:
            raw: Any = connection.connection
            if raw is not None:  # past Django's cursor, which is refused until the block has ended
                with contextlib.suppress(raw.Error), raw.cursor() as cursor:
                    cursor.execute("SET SESSION innodb_lock_wait_timeout = %s", [before])
        return
    longest = 1_000_000 if seconds is None else max(1, round(seconds + 0.5))
    most = 0 if seconds is None else seconds

    def limited(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        # Our own numbers, not user input. Only max_statement_time has parts of a second.
        settings = f"max_statement_time = {most:.6f}, innodb_lock_wait_timeout = {longest:d}"
        return execute(f"SET STATEMENT {settings} FOR {sql}", params, many, context)

    with connection.execute_wrapper(limited):
        yield


def _translated(
    error: Error, connection: BaseDatabaseWrapper, rows: QuerySet[M, M], *, wait: bool
) -> LockError | None:
    """Return what a driver's error says in words of ours, or None if it is about something else."""
    driver: Any = error.__cause__ or error
    code = getattr(driver, "sqlstate", None) or getattr(driver, "pgcode", None)
    if code is None and driver.args:
        code = driver.args[0]
    table = rows.model._meta.db_table
    if code in _BUSY:
        kind = LockTimeoutError if wait else LockNotAcquiredError
        undone = ". The server has undone this transaction for that: run it again"
        return kind(
            f"Rows of {table} are locked by another transaction"
            f"{undone if connection.needs_rollback else ''}"
        )
    if code not in _DEADLOCK:
        return None if _is_alive(error, connection) else _gone(error, connection, table)
    said = [f"This one runs: {_short(str(rows.query))}"]
    with contextlib.suppress(Exception):  # it only explains
        more = _postgresql if connection.vendor == "postgresql" else _mariadb
        said += more(connection, driver)
    seen = "".join(f"{shown(each, SEEN)}. " for each in said)
    return LockDeadlockError(
        f"Rows of {table} were waited for by two transactions, each of which has locked what the "
        f"other one wants, and the database has ended this one. {seen}Lock in the same order "
        "everywhere, and run this transaction again"
    )


def _is_alive(error: Error, connection: BaseDatabaseWrapper) -> bool:
    if not isinstance(error, (OperationalError, InterfaceError)):
        return True  # about the statement: to ask would cost a round trip for nothing
    return connection.connection is not None and connection.is_usable()


def _gone(error: Error, connection: BaseDatabaseWrapper, table: str) -> LockBackendError:
    # Otherwise Django would connect again at the end of atomic(), and that error hide this one.
    with contextlib.suppress(Error):
        connection.close()
    return LockBackendError(
        f"The connection was lost while rows of {table} were locked, and with it the transaction: "
        f"{shown(str(error).strip(), SEEN)}. Look at the database server of "
        f"DATABASES[{connection.alias!r}] and its log, and run this transaction again",
        alias=connection.alias,
    )


def _short(sql: str) -> str:
    """Leave out the columns of a statement, so that what tells the rows is not cut off."""
    sql = re.sub(r"(?s)\b(SELECT(?: DISTINCT)?) .*? FROM ", r"\1 … FROM ", sql, count=1)
    return re.sub(r"(?s)^(UPDATE \S+ SET) .* WHERE ", r"\1 … WHERE ", sql)


def _postgresql(connection: BaseDatabaseWrapper, driver: Any) -> list[str]:
    detail = driver.diag.message_detail or ""
    said = [driver.diag.context or "", *detail.splitlines()]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, query, octet_length(query) >"
            " pg_size_bytes(current_setting('track_activity_query_size')) - 5"
            " FROM pg_stat_activity WHERE pid = ANY(%s) AND pid <> pg_backend_pid()",
            [[int(pid) for pid in re.findall(r"(?m)^Process (\d+)", detail)]],
        )
        for pid, query, is_cut in cursor.fetchall():
            if query == "<insufficient privilege>":
                said.append(f"This role may not see what process {pid} runs: {_GRANT}")
                continue
            cut = ", cut off by the server (track_activity_query_size)" if is_cut else ""
            said.append(f"Process {pid} runs{cut}: {_short(query)}")
    return [each.rstrip(".") for each in said if each]


def _mariadb(connection: BaseDatabaseWrapper, driver: Any) -> list[str]:
    raw: Any = connection.connection
    with raw.cursor() as cursor:  # Django would refuse one until the block has ended
        try:
            cursor.execute("SHOW ENGINE INNODB STATUS")
        except raw.Error as error:
            if error.args[0] != 1227:
                raise
            return ["This account may not see what the other one runs: GRANT PROCESS ON *.* TO it"]
        status = str(cursor.fetchone()[2])
    section = status.partition("LATEST DETECTED DEADLOCK")[2].partition("\nTRANSACTIONS\n")[0]
    sides = dict(re.findall(r"(?s)thread id (\d+), [^\n]*\n(.*?)\n\*\*\*", section))
    if sides.pop(str(raw.thread_id()), None) is None:
        return []  # it tells of another one, which came later
    tables = re.findall(r"RECORD LOCKS .*? of table (\S+)", section)
    said = [f"Locked are rows of {', '.join(dict.fromkeys(tables))}"] if tables else []
    return said + [f"The other one runs: {_short(each)}" for each in sides.values()]
