"""The lock table by Django's ORM alone, for databases without SQL text of their own.

Only what every SQL database does: SELECT, INSERT, and UPDATE with a plain comparison. An attempt
reads the row, decides here, and writes only if the row is still as it was seen. So losing writes
nothing and locks nothing, and no token is seen twice, so that "as it was seen" cannot be said of a
row that has changed and changed back.

The clock is the database's, read with the row and sent back with the write. It is then older than
the write by a round trip at least, which is on the safe side both ways: another's lease seems to
last longer, and our own ends earlier.

The queries are compiled for the connection that is given, because a QuerySet runs on
`connections[alias]` only, and the lock table's may be another one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, cast

from django.apps import apps
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field, QuerySet
from django.db.models.functions import Now
from django.db.models.sql import DeleteQuery, InsertQuery, Query, UpdateQuery
from django.db.models.sql.compiler import SQLCompiler
from django.db.utils import IntegrityError

from ...core.durations import in_microseconds
from ...core.names import readable
from ...core.values import Claim
from ...exceptions import InvalidLockBackendError
from .errors import Outrun
from .optimistic import Optimistic
from .statements import FIELDS, Row, Seen, fresh_token

__all__ = ["PortableStatements", "UtcNow", "check_clock", "fault_of", "microseconds", "read_clock"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KNOWN = ("sqlite", "postgresql", "mysql", "oracle", "microsoft")
"""The vendors whose clock in UTC has a name below; others have CURRENT_TIMESTAMP."""


class UtcNow(Now):
    """The database's clock in UTC, for `microseconds` to read.

    Django's `Now()` is local time on some databases: with daylight saving it jumps, and a jump
    ahead would end every lease at once. So the clock in UTC is asked for by the name that each
    database has for it, and read as the driver gives it, without Django's conversions.
    """

    output_field = Field()  # type: ignore[assignment]  # none of Django's conversions applies

    def as_sqlite(self, *_: Any, **__: Any) -> Any:
        # Its own clock has milliseconds only, while all who use the file share the host's.
        return "%s", [time.time_ns() // 1000]

    def as_postgresql(self, compiler: SQLCompiler, connection: Any, **more: Any) -> Any:
        named = "(CLOCK_TIMESTAMP() AT TIME ZONE 'UTC')"
        return self.as_sql(compiler, connection, template=named, **more)

    def as_mysql(self, compiler: SQLCompiler, connection: Any, **more: Any) -> Any:
        return self.as_sql(compiler, connection, template="UTC_TIMESTAMP(6)", **more)

    def as_oracle(self, compiler: SQLCompiler, connection: Any, **more: Any) -> Any:
        named = "SYS_EXTRACT_UTC(SYSTIMESTAMP)"
        return self.as_sql(compiler, connection, template=named, **more)

    def as_microsoft(self, compiler: SQLCompiler, connection: Any, **more: Any) -> Any:
        return self.as_sql(compiler, connection, template="SYSUTCDATETIME()", **more)


def microseconds(value: Any) -> int:
    """Return a reading of the clock in microseconds since 1970."""
    if isinstance(value, int):
        return value
    reading: datetime = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (reading - _EPOCH) // timedelta(microseconds=1)


def read_clock(connection: BaseDatabaseWrapper) -> Any:
    """Return what the clock of a connection's database shows, as the driver gives it."""
    query = Query(None)  # no table: the ORM knows what a database wants instead of one
    query.add_annotation(UtcNow(), "now")
    return next(query.get_compiler(connection=connection).results_iter(tuple_expected=True))[0]


def check_clock(connection: BaseDatabaseWrapper) -> None:
    """Refuse a database whose clock is none that leases can be judged by.

    Only one that is not KNOWN is asked.
    """
    if connection.vendor in KNOWN:
        return
    readings = [read_clock(connection) for _ in range(2)]
    if fault := fault_of(readings, in_utc=connection.timezone is UTC):
        raise InvalidLockBackendError(
            f"DATABASES[{connection.alias!r}]: the clock of {connection.display_name} {fault}. "
            "A lock table there would not be safe: name another database in LOCATION."
        )


def fault_of(readings: Sequence[Any], *, in_utc: bool) -> str:
    """Return what is wrong with some readings of CURRENT_TIMESTAMP, or nothing.

    ``in_utc`` tells whether Django takes times without a zone, from that database, for UTC.
    """
    for reading in readings:
        if not isinstance(reading, datetime):
            return f"is read as {type(reading).__name__}, not as datetime"
        if reading.tzinfo is None and not in_utc:
            return "is local time, which daylight saving sets back: set USE_TZ, and no TIME_ZONE"
    if not any(reading.microsecond for reading in readings):
        return "has no fractions of a second"
    return ""


PAGE = 500


class PortableStatements(Optimistic):
    """Statements that the ORM writes, with the clock as a parameter."""

    def take(
        self,
        connection: BaseDatabaseWrapper,
        claim: Claim,
        seen: Seen,
        token: int,
        patience: float | None,
    ) -> bool:
        mine = seen.owner == claim.owner
        won = self._update(
            connection,
            _as_seen(seen),
            owner=claim.owner,
            token=token,
            acquired=seen.acquired if mine else seen.now,
            expires=seen.now + in_microseconds(claim.ttl),
            name=readable(claim.name),
            note=claim.note,
        )
        return bool(won)

    def make(
        self, connection: BaseDatabaseWrapper, claim: Claim, patience: float | None
    ) -> IntegrityError | None:
        row = apps.get_model("django_distlock", "LockRow")(
            digest=claim.key, name=readable(claim.name), token=fresh_token()
        )
        query = InsertQuery(type(row))
        query.insert_values(row._meta.concrete_fields, [row])
        # A transaction of the caller's has to outlive the error: PostgreSQL would refuse all that
        # follows in it.
        savepoint = connection.savepoint() if connection.in_atomic_block else None
        try:
            query.get_compiler(connection=connection).execute_sql()
        except IntegrityError as error:
            if savepoint:
                connection.savepoint_rollback(savepoint)
            return error
        if savepoint:
            connection.savepoint_commit(savepoint)
        return None

    def swap(
        self,
        connection: BaseDatabaseWrapper,
        seen: Seen,
        new: Seen,
        patience: float,
        *,
        frees: bool = False,
    ) -> bool:
        values = {field: getattr(new, field) for field in FIELDS if field != "digest"}
        return self._update(connection, _as_seen(seen), **values) == 1

    def renew(self, connection: BaseDatabaseWrapper, claim: Claim) -> bool:
        # Only a row that is as it was seen: a renewal that was held up must not take back what a
        # later one, which the holder relies on, has given.
        for _ in range(2):
            seen = self.look(connection, claim.key)
            if seen is None or seen.owner != claim.owner or not seen.held():
                return False
            if self._update(
                connection, _as_seen(seen), expires=seen.now + in_microseconds(claim.ttl)
            ):
                return True
        raise Outrun("another renewal of the lock was faster, twice")

    def renew_many(
        self, connection: BaseDatabaseWrapper, claims: Sequence[Claim], ttl: float
    ) -> set[str]:
        now = self._now(connection)
        until = now + in_microseconds(ttl)
        owners = {claim.owner for claim in claims}
        # An owner belongs to one claim, so that the two lists cannot match crosswise.
        ours = _rows().filter(
            digest__in=[claim.key for claim in claims], owner__in=owners, expires__gt=now
        )
        # Nothing is made shorter, for the reason given in `renew`.
        if self._update(connection, ours.filter(expires__lte=until), expires=until) == len(claims):
            return owners
        return {owner for (owner,) in _select(connection, ours.values_list("owner").query)}

    def release(self, connection: BaseDatabaseWrapper, claim: Claim) -> bool:
        seen = self.look(connection, claim.key)
        if seen is None or seen.owner != claim.owner or not seen.held():
            return False
        ours = _rows().filter(digest=claim.key, owner=claim.owner)
        # Below zero it says since when the row is idle.
        return self._update(connection, ours, owner="", expires=-seen.now, note="") == 1

    def inspect(self, connection: BaseDatabaseWrapper, key: str) -> Row | None:
        seen = self.look(connection, key)
        return seen.row() if seen is not None and seen.held() else None

    def page(self, connection: BaseDatabaseWrapper, after: str) -> tuple[list[Row], str | None]:
        found, last = self._seen_page(connection, after)
        return [seen.row() for seen in found if seen.held()], last

    def expired(self, connection: BaseDatabaseWrapper, after: str) -> tuple[list[Row], str | None]:
        found, last = self._seen_page(connection, after)
        return [seen.row() for seen in found if seen.owner and not seen.held()], last

    def _seen_page(
        self, connection: BaseDatabaseWrapper, after: str
    ) -> tuple[list[Seen], str | None]:
        rows = _with_clock().filter(expires__gt=0)  # what was released is not even read
        if after:  # compared with '' nothing is greater where that is NULL (Oracle)
            rows = rows.filter(digest__gt=after)
        found = self._read(connection, rows.order_by("digest")[:PAGE])
        return found, found[-1].digest if found else None

    def rest(
        self, connection: BaseDatabaseWrapper, after: str, size: int, older: int
    ) -> list[tuple[str, bool]]:
        rows = _with_clock()
        if after:
            rows = rows.filter(digest__gt=after)
        found = self._read(connection, rows.order_by("digest")[:size])
        return [(seen.digest, seen.last_use() <= seen.now - older) for seen in found]

    def remove(self, connection: BaseDatabaseWrapper, digests: Sequence[str], older: int) -> int:
        since = self._now(connection) - older
        idle = _rows().filter(
            digest__in=digests, token__lt=since, expires__gte=-since, expires__lte=since
        )
        sql, parameters = idle.query.chain(DeleteQuery).get_compiler(connection=connection).as_sql()
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return int(cursor.rowcount)

    # -- one statement each ------------------------------------------------------------------------

    def look(self, connection: BaseDatabaseWrapper, key: str) -> Seen | None:
        found = self._read(connection, _with_clock().filter(digest=key))
        return found[0] if found else None

    def _read(self, connection: BaseDatabaseWrapper, rows: QuerySet[Any, Any]) -> list[Seen]:
        # The clock comes last, as it was asked for.
        return [Seen(microseconds(row[-1]), *row[:-1]) for row in _select(connection, rows.query)]

    def _update(self, connection: BaseDatabaseWrapper, rows: QuerySet[Any], **values: Any) -> int:
        query = cast("UpdateQuery", rows.query.chain(UpdateQuery))
        query.add_update_values(values)
        sql, parameters = query.get_compiler(connection=connection).as_sql()
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return int(cursor.rowcount)

    def _now(self, connection: BaseDatabaseWrapper) -> int:
        return microseconds(read_clock(connection))


def _rows() -> QuerySet[Any]:
    return QuerySet(apps.get_model("django_distlock", "LockRow"))


@cache  # most of what a read costs here; QuerySets are copied when they are filtered
def _with_clock() -> QuerySet[Any, Any]:
    rows: QuerySet[Any, Any] = _rows().annotate(now=UtcNow()).values_list(*FIELDS, "now")
    return rows


def _as_seen(seen: Seen) -> QuerySet[Any]:
    """Return the row if it is unchanged: each grant changes the token, all else the expiry."""
    return _rows().filter(digest=seen.digest, token=seen.token, expires=seen.expires)


def _select(connection: BaseDatabaseWrapper, query: Query) -> list[Row]:
    compiler = query.get_compiler(connection=connection)
    return list(compiler.results_iter(tuple_expected=True))
