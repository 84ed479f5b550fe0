"""The clock of a database in UTC, whatever zones its session, its server and Django are set to.

Django's `Now()` is local time on some databases: with daylight saving it jumps, and a jump ahead
would end every lease at once. So the clock in UTC is asked for by the name that each database has
for it, and read as the driver gives it, without Django's conversions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field
from django.db.models.functions import Now
from django.db.models.sql import Query
from django.db.models.sql.compiler import SQLCompiler

from ...exceptions import InvalidLockBackendError

__all__ = ["UtcNow", "check_clock", "fault_of", "microseconds", "read_clock"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KNOWN = ("sqlite", "postgresql", "mysql", "oracle", "microsoft")
"""The vendors whose clock in UTC has a name below; others have CURRENT_TIMESTAMP."""


class UtcNow(Now):
    """The database's clock in UTC, for `microseconds` to read."""

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
