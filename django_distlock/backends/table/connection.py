"""Which connection a statement of the lock table runs on, and how it is limited and mended.

The caller's own connection whenever it is in autocommit: a lone statement is its own transaction,
and CONN_MAX_AGE, health checks, pools, `close_old_connections` and the test guard are Django's to
do. Inside a `TestCase`, and on SQLite inside any `atomic()`, also the caller's: the lock is then
part of that transaction. Only inside a real `atomic()` on a server database a connection of ours,
from a few that are kept for seconds. (A private connection per thread broke 12 of 14 user tests on
SQLite and kept PostgreSQL's test database from being dropped.)
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from django.core import mail
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import Error

from ...core.descriptors import descriptor_of, mute
from ...core.fork import park
from ...core.worker import begin, on_worker
from ...transactions import of_testcase, on_end, own_connection
from .errors import Overdue, OwnTransaction, is_conflict
from .kept import Kept
from .sentry import within

__all__ = [
    "Borrowed",
    "Connections",
    "TransactionBound",
    "is_direct",
    "is_kept_open",
    "is_testing",
    "limited",
]

T = TypeVar("T")

MOST_IDLE = 4
IDLE = 5.0  # seconds that an unused connection of ours is kept, whatever CONN_MAX_AGE is
LEAST_BY_LIBPQ = 2.0  # seconds; libpq raises a shorter connect_timeout to this
CONNECT_TIMEOUTS = {
    "postgresql": "connect_timeout",
    "mysql": "connect_timeout",
    "oracle": "tcp_connect_timeout",
}
"""What the drivers call the limit; one that is given a name it does not know refuses to connect."""


class TransactionBound:
    """A grant written inside the caller's transaction: gone with its rollback."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection
        self._committed = False
        self._discarded = False
        tests = [block for block in connection.atomic_blocks if of_testcase(block)]
        self._block = tests[-1] if tests else connection.atomic_blocks[0]
        self.in_testcase = bool(tests)
        if not tests:
            on_end(connection, self._commit, self._discard)

    def _commit(self) -> None:
        self._committed = True

    def _discard(self) -> None:
        self._discarded = not self._committed

    def open(self) -> bool:
        """Return whether the transaction still goes on."""
        return not self._committed and self._block in self._connection.atomic_blocks

    def undone(self) -> bool:
        """Return whether the transaction was rolled back, as far as can be told.

        Django drops the callback also when another one fails after the commit: then this says
        True of a lock that the store still has, which errs on the safe side.
        """
        return not self.open() if self.in_testcase else self._discarded


class Borrowed:
    """A connection for one statement, and the caller's transaction if it is part of one."""

    __slots__ = ("connection", "in_transaction", "private", "repeated")

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        *,
        in_transaction: bool = False,
        private: bool = False,
    ) -> None:
        self.connection = connection
        self.in_transaction = in_transaction
        self.private = private
        self.repeated = False
        """Whether the work is done once more, as the answer to the first time was lost."""

    @property
    def is_plain(self) -> bool:
        """Whether it is the caller's own, in autocommit."""
        return not (self.in_transaction or self.private)

    def bound(self) -> TransactionBound | None:
        """Return what ties a grant to the caller's transaction, if anything."""
        return TransactionBound(self.connection) if self.in_transaction else None


class Connections:
    """The connections that the lock table of one database alias is reached by."""

    def __init__(self, database: str) -> None:
        self.database = database
        self._idle: Kept[BaseDatabaseWrapper] = Kept(MOST_IDLE, BaseDatabaseWrapper.close)

    def _lend(self) -> Borrowed:
        own = own_connection(self.database)
        if is_pooled(own) and (on_worker() or _is_dry(own)):
            # With all of the pool's connections in the hands of holders, none could be renewed.
            return Borrowed(self._take(own), private=True)
        if own.in_atomic_block:
            if own.vendor == "sqlite" or of_testcase(own.atomic_blocks[0]):
                return Borrowed(own, in_transaction=True)
        elif _is_writing_by_hand(own):
            raise OwnTransaction(
                "this connection has an open transaction, with autocommit off, which a lock on "
                "another connection would wait for"
            )
        elif own.settings_dict["AUTOCOMMIT"] and (own.connection is None or own.autocommit):
            return Borrowed(own)
        return Borrowed(self._take(own), private=True)

    def _take(self, own: BaseDatabaseWrapper) -> BaseDatabaseWrapper:
        private = self._idle.take() or _copy(own)
        private.close_if_unusable_or_obsolete()
        return private

    def for_a_wait_queue(self, limit: float) -> BaseDatabaseWrapper:
        """Return a new connection for the wait queue, made within ``limit`` seconds."""
        private = _copy(own_connection(self.database))
        # The statements of the wait queue have parameters that the client fills in.
        private.settings_dict["OPTIONS"].pop("server_side_binding", None)
        _open(private, limit)
        return private

    def in_transaction(self) -> bool:
        """Return whether this thread has a transaction open."""
        return own_connection(self.database).in_atomic_block

    def _give_back(self, private: BaseDatabaseWrapper) -> None:
        # One that met an error would be asked whether it still works, by whoever takes it next.
        sound = not private.errors_occurred
        if not (sound and not is_testing() and self._idle.give(private, IDLE)):
            private.close()

    def execute(self, work: Callable[[Borrowed], T], limit: float) -> T:
        """Do ``work`` on a borrowed connection, for ``limit`` seconds at most.

        A connection that turns out to be dead (closed by the server since its last use) is opened
        again and the work done once more: every statement of ours can be repeated.
        """
        lent = self._lend()
        connection = lent.connection
        try:
            _check_health(connection, limit)
            used = connection.connection is not None
            try:
                return limited(connection, limit, partial(work, lent))
            except Error as error:
                if lent.in_transaction or isinstance(error, Overdue) or is_conflict(error):
                    raise
                if not used or _is_alive(connection, limit):
                    raise
            lent.repeated = True
            return limited(connection, limit, partial(work, lent))
        except Error:
            raise
        except BaseException:
            # Interrupted in the middle: what the driver would read next is not known. Celery's soft
            # time limit is an Exception.
            if not lent.in_transaction:
                connection.close()
            raise
        finally:
            if lent.private:
                self._give_back(connection)

    def close_idle(self) -> None:
        """Close the connections that are not in use."""
        self._idle.clear()

    def forget_parent(self) -> None:
        """Leave, in a forked child, the parent's connections alone and unclosed."""
        idle = self._idle.forget_parent()
        for private in idle:
            mute(descriptor_of(private.connection))
        park(*idle)


def limited(connection: BaseDatabaseWrapper, limit: float, work: Callable[[], T]) -> T:
    """Do ``work`` on ``connection``, and let it wait ``limit`` seconds at most for the server."""
    if connection.vendor == "sqlite":
        usual = float(connection.settings_dict["OPTIONS"].get("timeout", 5.0))
        if connection.connection is None and usual <= limit:
            return work()  # which connects, or is kept from it by the guard of a test
        with _busy_limit(connection, limit):
            return work()
    _open(connection, limit)
    with within(connection.connection, limit) as watch:
        try:
            return work()
        except Error as error:
            if watch is None or not watch.cut:
                raise
            lost = error
    if not connection.in_atomic_block:
        connection.close()
    raise Overdue(f"no answer within {limit:g} s") from lost


def is_pooled(connection: BaseDatabaseWrapper) -> bool:
    """Return whether Django has a psycopg pool for a connection."""
    return bool(connection.settings_dict["OPTIONS"].get("pool"))


def _is_dry(own: BaseDatabaseWrapper) -> bool:
    """Return whether a pool has no connection to give, so that one would be waited for."""
    if own.connection is not None:
        return False
    pool: Any = own.pool  # type: ignore[attr-defined]
    figures = pool.get_stats()
    return bool(figures["pool_available"] == 0 and figures["pool_size"] >= figures["pool_max"])


def _is_writing_by_hand(own: BaseDatabaseWrapper) -> bool:
    """Return whether the caller has a transaction on SQLite open, without `atomic()`."""
    raw: Any = own.connection
    return own.vendor == "sqlite" and raw is not None and not own.autocommit and raw.in_transaction


def is_testing() -> bool:
    """Return whether Django's test runner is at work, which drops its databases at the end.

    Nothing of ours may be connected then. (`setup_test_environment` makes the outbox.)
    """
    return hasattr(mail, "outbox")


def _copy(own: BaseDatabaseWrapper) -> BaseDatabaseWrapper:
    private = own.copy()
    private.inc_thread_sharing()
    # Not from the user's pool: the caller has one of its connections already, and with all
    # callers inside atomic() waiting for a second the pool would run dry.
    private.settings_dict["OPTIONS"].pop("pool", None)
    private.settings_dict["AUTOCOMMIT"] = True
    # Its age is limited as that of the program's own; 0 would close it with each request.
    private.settings_dict["CONN_MAX_AGE"] = private.settings_dict["CONN_MAX_AGE"] or None
    return private


def _check_health(connection: BaseDatabaseWrapper, limit: float) -> None:
    """Do now what CONN_HEALTH_CHECKS has Django do at the first cursor of a request.

    There it would open another socket while the sentry watches the one before, whose number may
    soon be a stranger's.
    """
    if not connection.settings_dict["CONN_HEALTH_CHECKS"]:
        return
    with within(connection.connection, limit) as watch:
        connection.close_if_health_check_failed()
    if watch is not None and watch.cut:
        connection.close()
        raise Overdue(f"no answer within {limit:g} s")


def _is_alive(connection: BaseDatabaseWrapper, limit: float) -> bool:
    """Ask the server whether the session still exists; close the connection if it does not."""
    if connection.connection is None:
        return False
    with within(connection.connection, limit):
        alive = connection.is_usable()
    if not alive:
        connection.close()
    return alive


def _open(connection: BaseDatabaseWrapper, limit: float) -> None:
    """Connect within about ``limit`` seconds, if not connected."""
    if connection.connection is not None:
        return
    if is_pooled(connection):
        connection.ensure_connection()  # by the pool's own limits; see _is_dry
        return
    option = CONNECT_TIMEOUTS.get(connection.vendor)
    if option is None:
        connection.ensure_connection()
        return
    # Django offers no limit but in the user's OPTIONS; so it goes in where it makes its arguments.
    make = connection.get_connection_params

    def limited() -> dict[str, Any]:
        return {option: max(1, math.ceil(limit)), **make()}

    connection.get_connection_params = limited  # type: ignore[method-assign]
    libpq = connection.vendor == "postgresql" and limit < LEAST_BY_LIBPQ
    if libpq:
        connect = connection.get_new_connection
        connection.get_new_connection = (  # type: ignore[method-assign]
            lambda conn_params: _on_a_thread(partial(connect, conn_params), limit)
        )
    try:
        connection.ensure_connection()
    finally:
        del connection.get_connection_params
        if libpq:
            del connection.get_new_connection


def _on_a_thread(connect: Callable[[], Any], limit: float) -> Any:
    """Return what ``connect`` returns within ``limit`` seconds; what comes later is closed."""
    made: Future[Any] = Future()

    def run(made: Future[Any]) -> None:
        try:
            made.set_result(connect())
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits for it
            made.set_exception(error)

    thread = threading.Thread(target=run, args=(made,), name="distlock-connect", daemon=True)
    if begin(thread) is None:
        return connect()  # the interpreter ends
    try:
        return made.result(limit)
    except BaseException as error:
        if made.done():
            raise  # the driver's own
        made.add_done_callback(lambda made: made.exception() or made.result().close())
        if isinstance(error, TimeoutError):
            raise Overdue(f"no connection within {limit:g} s") from None
        raise
    finally:
        del made  # it knows its error, which knows this frame: see flow.run


def is_kept_open(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a session outlives `close`: in SQLAlchemy's pool, by an ENGINE that has one.

    Whatever is set or locked in it would come to whoever has it next.
    """
    raw: Any = connection.connection
    return hasattr(raw, "detach") and hasattr(raw, "invalidate")


def is_direct(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a session of PostgreSQL's is the connection's own.

    A pooler tells its clients of a session's id that is not the server's.
    """
    raw: Any = connection.connection
    told = raw.info.backend_pid
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return bool(cursor.fetchone() == (told,))


@contextmanager
def _busy_limit(connection: BaseDatabaseWrapper, limit: float) -> Iterator[None]:
    """Let SQLite wait for other writers for ``limit`` seconds, and then for as long as before."""
    if connection.connection is None:
        connection.ensure_connection()
    raw: Any = connection.connection
    # Asked each time: the program may have set it, in whatever way.
    (before,) = raw.execute("PRAGMA busy_timeout").fetchone()
    milliseconds = max(0, int(limit * 1000))
    if before <= milliseconds:
        yield
        return
    raw.execute(f"PRAGMA busy_timeout = {milliseconds}")
    try:
        yield
    finally:
        if connection.connection is raw:
            raw.execute(f"PRAGMA busy_timeout = {before}")
