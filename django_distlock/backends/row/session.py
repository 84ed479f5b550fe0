"""A session of the database for one lease, and how it waits for a row without a thread.

The lock is the session's transaction: the server frees it when the session ends, however it ends.
To wait, the locking statement is sent and not waited for; the socket tells when its answer is
there. So a waiter costs no thread, in either mode, and can be interrupted.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import DatabaseError, Error, InterfaceError, OperationalError

from ...core import clock
from ...core.descriptors import descriptor_of
from ...core.threads import Mutex
from ...exceptions import InvalidLockBackendError
from ..table.connection import _open, is_kept_open
from ..table.errors import Overdue, is_conflict, is_session_end
from ..table.sentry import within
from .checks import kept_open

__all__ = ["Ended", "LockSession", "Row"]

T = TypeVar("T")
Row = tuple[Any, ...]
_CLOSED: int | None = getattr(select, "POLLRDHUP", None)
"""What poll() says of a connection that the other side has closed; known on Linux."""


class Ended(OperationalError):
    """The server has ended the session, and with it the lock.

    It is ``reported`` if the server said so in place of an answer: then it did not do what it was
    asked. A connection that breaks may have taken the answer with it.
    """

    def __init__(self, message: str, *, reported: bool) -> None:
        super().__init__(message)
        self.reported = reported


class LockSession:
    """A connection of our own, used by one thread at a time under its ``mutex``."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.connection = connection
        self.mutex = Mutex()
        self.owner = ""
        self.key = ""
        self.token: int | None = None
        self.sent = False
        """Whether a locking statement is under way, whose answer was not read yet."""
        self.sent_at = -math.inf
        """When the last one was sent; `clock.now`."""
        self.until = math.inf
        """When the server has ended it unless it is renewed or waits; `clock.now`."""
        self.looked = -math.inf
        """When it was last asked for the lock."""
        self.idle = -1.0
        """The limit on being idle in a transaction that the session was given last."""
        self.direct: bool | None = None
        """Whether the server's session is ours alone; None until that was asked."""
        self._words: Any = None

    # -- statements ----------------------------------------------------------------------------

    def run(self, work: Callable[[], T], limit: float, *, fresh: bool = False) -> T:
        """Do ``work`` within ``limit`` seconds; raise Ended when the session turns out to be gone.

        A ``fresh`` session has no lock yet: one that is dead is opened again.
        """
        connection = self.connection
        if fresh:
            connection.close_if_unusable_or_obsolete()
        used = connection.connection is not None
        if not used and not fresh:
            raise Ended("the session of the lock has ended", reported=True)
        try:
            return self._limited(work, limit)
        except Error as error:
            if isinstance(error, Overdue) or is_conflict(error) or self._is_alive(limit):
                raise
            connection.close()
            if not fresh:
                message = f"the session of the lock has ended: {error}"
                raise Ended(message, reported=is_session_end(error)) from error
            if not used:
                raise
        return self._limited(work, limit)

    def _limited(self, work: Callable[[], T], limit: float) -> T:
        if self.connection.connection is None:
            self.idle, self.direct, self._words = -1.0, None, None
            _open(self.connection, limit)
            if is_kept_open(self.connection):
                self.connection.close()
                raise InvalidLockBackendError(kept_open(self.connection.alias))
        with within(self.connection.connection, limit) as watch:
            try:
                return work()
            except Error as error:
                if watch is None or not watch.cut:
                    raise
                lost = error
        self.connection.close()
        raise Overdue(f"no answer within {limit:g} s") from lost

    def _is_alive(self, limit: float) -> bool:
        raw: Any = self.connection.connection
        if raw is None or getattr(raw, "closed", False) is True:
            return False
        with within(raw, limit):
            return self.connection.is_usable()

    def execute(self, statements: Sequence[str], parameters: dict[str, Any]) -> Row | None:
        """Run statements, in one round trip where the driver can, and return the last one's row.

        On MariaDB a statement without rows answers by what it has put into LAST_INSERT_ID(), and
        its count of rows. By psycopg a row is of bytes.
        """
        if self.can_send():
            with self.connection.wrap_database_errors:
                self._tell("; ".join(statements), parameters)
                return self._answer()
        with self.connection.cursor() as cursor:
            for sql in ["; ".join(statements)] if not self._is_mysql() else statements:
                cursor.execute(sql, parameters)
            # psycopg stands at the first result, psycopg2 at the last and only one.
            while hasattr(self.connection.connection, "pgconn") and cursor.nextset():
                pass
            if cursor.description:
                return cursor.fetchone()  # type: ignore[no-any-return]
            return (cursor.lastrowid, cursor.rowcount) if self._is_mysql() else None

    def _tell(self, sql: str, parameters: dict[str, Any]) -> None:
        """Send a message past the driver's cursors, which take longer than the statements do."""
        raw: Any = self.connection.connection
        if parameters:
            if self._words is None:
                self._words = raw.cursor()
            text = self._words.mogrify(sql, parameters)
            sql = text if isinstance(text, str) else text.decode()
        if self._is_mysql():
            raw.send_query(sql.encode())
        else:
            raw.pgconn.send_query(sql.encode())
            _flush(raw.pgconn)

    def _answer(self) -> Row | None:
        """Read all that was answered to a message; return the last row."""
        raw: Any = self.connection.connection
        if not self._is_mysql():
            return _last_row(raw)
        raw.read_query_result()
        while True:
            result = raw.store_result()
            if result is not None:
                row = next(iter(result.fetch_row(1)), None)
            else:
                row = (raw.insert_id(), raw.affected_rows())  # which the next call forgets
            if raw.next_result() == -1:
                return row

    def fetch(self, sql: str, parameters: dict[str, Any]) -> list[Row]:
        """Run a statement and return its rows."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())

    def change(self, sql: str, parameters: dict[str, Any]) -> int:
        """Run a statement and return the number of rows that it changed."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return int(cursor.rowcount)

    def _is_mysql(self) -> bool:
        return self.connection.vendor == "mysql"

    # -- waiting -------------------------------------------------------------------------------

    def can_send(self) -> bool:
        """Return whether the driver can send a statement without waiting for its answer."""
        raw: Any = self.connection.connection
        # Sockets are watched by a call that Windows does not have.
        return hasattr(select, "poll") and (hasattr(raw, "send_query") or hasattr(raw, "pgconn"))

    def send(self, statements: Sequence[str], parameters: dict[str, Any]) -> None:
        """Send statements together, and do not wait for the answer."""
        self.sent_at = clock.now()
        with self.connection.wrap_database_errors:
            self._tell("; ".join(statements), parameters)
        self.sent = True

    def is_answered(self, seconds: float = 0.0) -> bool:
        """Return whether there is something to read, now or in so many seconds."""
        descriptor = descriptor_of(self.connection.connection)
        if descriptor is None or descriptor < 0:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def receive(self) -> Row | None:
        """Read the answer to what was sent: as `execute` returns it."""
        self.sent = False
        with self.connection.wrap_database_errors:
            return self._answer()

    def watched(self) -> int | None:
        """Return a descriptor of the socket, the caller's to close, that outlives the session."""
        descriptor = descriptor_of(self.connection.connection) if self.sent else None
        if descriptor is None or descriptor < 0:
            return None
        try:
            return os.dup(descriptor)
        except OSError:
            return None  # closed meanwhile

    def is_over(self, now: float) -> bool:
        """Return whether it holds and waits for nothing any more, as far as is known here."""
        if self.until < now:
            return True
        # Without a token it waits, or has just been lent: then its user finds out.
        return self.token is not None and self.is_closed()

    def is_closed(self) -> bool:
        """Return whether the connection has ended, as far as this machine knows; on Linux only."""
        descriptor = descriptor_of(self.connection.connection)
        if descriptor is None or descriptor < 0 or _CLOSED is None:
            return False
        # gevent's lets others run, and knows of no end.
        monkey: Any = sys.modules.get("gevent.monkey")
        poll = select.poll() if monkey is None else monkey.get_original("select", "poll")()
        poll.register(descriptor, _CLOSED)
        return bool(poll.poll(0))

    # -- its end -------------------------------------------------------------------------------

    def close(self) -> None:
        """End the session, and its lock."""
        self.sent = False
        with contextlib.suppress(DatabaseError, InterfaceError):
            self.connection.close()


def _last_row(raw: Any) -> Row | None:
    """Read all results of what was sent by psycopg; return the first row of the last one.

    An error is raised only then: what is left unread would be the answer to the next question.
    """
    from psycopg import OperationalError, errors

    pgconn, last, failed = raw.pgconn, None, None
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    while True:
        try:
            while pgconn.is_busy():
                poll.poll()
                pgconn.consume_input()
        except OperationalError:
            if failed is None:
                raise
            break  # the server reported why it would close the connection
        result = pgconn.get_result()
        if result is None:
            break
        if result.error_message:
            failed = result
        last = result
    if failed is not None:
        raise errors.error_from_result(failed)
    if last is None or not last.ntuples:
        return None
    return tuple([last.get_value(0, column) for column in range(last.nfields)])


def _flush(pgconn: Any) -> None:
    """Send what libpq still keeps, of a message that is longer than the socket takes at once."""
    while pgconn.flush():
        poll = select.poll()
        poll.register(pgconn.socket, select.POLLOUT)
        poll.poll()
