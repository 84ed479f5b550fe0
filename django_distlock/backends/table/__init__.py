"""Locks in a table of the project's own database: one row a name, found by a unique key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeVar

from django.core.checks import CheckMessage
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import DatabaseError

from ...conf import AliasConf, OptionSpec
from ...core.descriptors import is_multi_primary
from ...core.flow import MIN_ATTEMPT_TIMEOUT
from ...core.fork import park
from ...core.names import unreadable
from ...core.threads import Mutex
from ...core.values import Claim, Grant, LockInfo, Refusal, moment, noted
from ...core.worker import close_connections
from ..base import BaseLockBackend, attempt_each
from . import checks, errors, members, options
from .connection import Borrowed, Connections, is_direct, is_kept_open, is_testing, limited
from .dialect import Dialect, qualified
from .located import InDatabase
from .portable import PortableStatements, check_clock
from .queue_connections import QueueConnection
from .queue_server import QueueServer
from .sql import MARIADB, MYSQL, POSTGRESQL, POSTGRESQL_HASTY, SQLITE
from .statements import MySQLStatements, Row, Statements, TextStatements
from .wait_queue import WaitQueues

__all__ = ["TableBackend", "text_for"]

T = TypeVar("T")

BATCH = 400  # claims a statement: two parameters each, and SQLite once took only 999
CONTENDED_FOR = 5.0  # seconds after a refusal for which a name counts as contended
MOST_CONTENDED = 1000  # names remembered


class TableBackend(InDatabase):
    """The unique-key lock table, on any database of Django's.

    LOCATION is an alias of DATABASES, by default ``"default"``. OPTIONS: ``COMMAND_TIMEOUT``,
    the seconds (5) after which a statement without an answer counts as failed; ``SQL``, which is
    ``"auto"`` or, to have Django's ORM write the statements also where there are better ones (on
    SQLite, PostgreSQL, MariaDB and MySQL), ``"portable"``; ``DURABLE``, which on PostgreSQL may be
    False so that no statement of a lock waits for the server's disk; ``WAITING``, how waiters wait:
    ``"queue"`` in a queue of the server's or the kernel's, or ``"poll"``; ``QUEUE_CONNECTIONS``,
    the connections (4) that a process may use to queue; ``SCHEMA``, that of the table on
    PostgreSQL, for projects whose ``search_path`` changes, as with django-tenants.
    """

    thread_sensitive = supports_shared = supports_limit = True
    grace: ClassVar[float] = 1.0
    at_once = 150  # claims in one statement: six parameters each
    options: ClassVar[OptionSpec] = {**BaseLockBackend.options, **options.SPEC}

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        database = self.database
        options.check_schema(alias, self.opts, connections[database])
        self._durable = options.is_durable(alias, self.opts, connections[database])
        self._connections = Connections(database)
        self._statements: Statements | None = None
        self._wait_queues: WaitQueues | None = None
        self._mutex = Mutex()
        self.notifies = options.queues(alias, self.opts, connections[database])
        if self.opts.get("SQL") == "portable":
            self.at_once = 1  # the ORM asks for each by itself; see `_choose` for other databases
        # When a name was last refused: see Statements.attempt.
        self._contended: dict[str, float] = {}
        if connections[database].vendor == "sqlite":
            self.scope = "host"
            # SQLite answers at once or is busy, and what it waits for is counted as our wait.
            self.min_attempt_timeout = 0.05
        else:
            # For a row that another's transaction has locked; the answer itself may take longer.
            self.min_attempt_timeout = 0.2

    def statements(self, limit: float | None = None) -> Statements:
        """Return how the database is talked to: by its own SQL text, else by the ORM's."""
        if self._statements is None:
            # By the guarded way: MariaDB and MySQL are told apart by asking the server.
            chosen = self._connections.execute(
                lambda lent: self._choose(lent.connection), limit or self.command_timeout
            )
            with self._mutex:
                if self._statements is None:
                    self._wait_queues = self._open_wait_queues(chosen)
                    self.notifies = self._wait_queues is not None
                    self._statements = chosen
        return self._statements

    def _open_wait_queues(self, statements: Statements) -> WaitQueues | None:
        if not self.notifies:
            return None
        make: Callable[[], QueueConnection] | None = None
        if statements.wait_queue is not None:
            connect = partial(self._connections.for_a_wait_queue, self.command_timeout)
            make = partial(QueueServer, statements.wait_queue, connect, limited, self.clock)
        elif connections[self.database].vendor == "sqlite":
            from .queue_file import QueueFile  # what it needs is not on every system

            name = connections[self.database].settings_dict["NAME"]
            make = partial(QueueFile, str(name), self.clock)
        most = self.opts.get("QUEUE_CONNECTIONS", options.QUEUE_CONNECTIONS)
        return None if make is None else WaitQueues(make, self.clock, most)

    def _choose(self, connection: BaseDatabaseWrapper) -> Statements:
        if is_kept_open(connection):
            self.notifies = False  # the lock of the wait queue would be left behind in the pool
        asked_to_queue = self.opts.get("WAITING") == "queue"
        if self.notifies and not asked_to_queue and connection.vendor == "postgresql":
            # Else session locks would be left behind in the pooler's sessions.
            self.notifies = is_direct(connection)
        text = None if self.opts.get("SQL") == "portable" else text_for(connection)
        if text is not None:
            text = text if self._durable else POSTGRESQL_HASTY
            made = MySQLStatements if text is MYSQL else TextStatements
            return made(qualified(text, self.opts.get("SCHEMA")))
        check_clock(connection)
        self.at_once = 1
        return PortableStatements()

    def _ask(self, work: Callable[[Statements, BaseDatabaseWrapper], T]) -> T:
        statements = self.statements()
        return self._connections.execute(
            lambda lent: work(statements, lent.connection), self.command_timeout
        )

    # -- primitives ------------------------------------------------------------------------------

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        statements = self.statements(max(limit, MIN_ATTEMPT_TIMEOUT))
        soon = limit < MIN_ATTEMPT_TIMEOUT and self.scope == "cluster"

        def patience(lent: Borrowed) -> float | None:
            # Not in a transaction of the caller's, of which PostgreSQL would then limit the rest.
            return limit if soon and not lent.in_transaction else None

        def work(lent: Borrowed) -> Grant | Refusal:
            if not claim.is_exclusive:
                seconds = patience(lent) or self.command_timeout
                return _bound(lent, members.join(statements, lent.connection, claim, seconds))
            try:
                look_first = bool(self._contended) and self._is_contended(claim.key)
                answer = statements.attempt(
                    lent.connection, claim, look_first=look_first, patience=patience(lent)
                )
            except DatabaseError as error:
                # A store that nevertheless says who holds the lock has answered; but a server
                # whose conflict has ended the caller's transaction says no more in it.
                ended = lent.in_transaction and lent.connection.vendor != "sqlite"
                if ended or not self.is_conflict(error):
                    raise
                held = statements.held(lent.connection, claim)
                if held is None:
                    raise
                answer = held
            if isinstance(answer, Refusal):
                if (met := members.told(claim, answer)) is not answer:
                    answer = met
                    if claim.waits and met.other_limit is None:
                        seconds = self.command_timeout
                        members.keep_out(statements, lent.connection, claim, seconds)
                if statements.looks:
                    self._note_contention(claim.key)
                # Inside atomic() two connections are in use already, and Django's test runner
                # wants none of ours.
                if self._wait_queues is not None and lent.is_plain and not is_testing():
                    self._wait_queues.refused(claim.key)
                    return replace(answer, queue=True)
            return _bound(lent, answer)

        # The server itself keeps a short limit (the portable statements have none), but its answer
        # may take longer, over a network.
        most = min(self.command_timeout, MIN_ATTEMPT_TIMEOUT) if soon else limit
        answer = self._connections.execute(work, most)
        if self._wait_queues is not None and isinstance(answer, Grant):
            self._wait_queues.granted(claim)
        return answer

    def try_acquire_many(self, claims: Sequence[Claim], limit: float) -> list[Grant | None]:
        """Attempt all by one statement; one after the other where they are part of a transaction.

        They wait together, and so but for a moment, for a row that another's transaction has
        locked: of the others each may be wanted meanwhile.
        """
        statements = self.statements(max(limit, MIN_ATTEMPT_TIMEOUT))
        if self.at_once == 1:
            return super().try_acquire_many(claims, limit)
        patience = min(limit, self.min_attempt_timeout)

        def work(lent: Borrowed) -> list[Grant | None]:
            if not lent.in_transaction:
                return statements.attempt_many(lent.connection, claims, patience)
            return attempt_each(
                lambda claim: _bound(lent, statements.attempt(lent.connection, claim)), claims
            )

        return self._connections.execute(work, max(limit, MIN_ATTEMPT_TIMEOUT))

    def release_many(self, claims: Sequence[Claim]) -> list[bool]:
        """Read which are held, and free them, by one statement each; see `release`."""
        if self.at_once == 1:
            return super().release_many(claims)
        answered = False
        try:
            statements = self.statements()

            def work(lent: Borrowed) -> list[bool]:
                ours = statements.release_many(lent.connection, claims)
                return [each or lent.repeated for each in ours]

            ours = self._connections.execute(work, self.command_timeout)
            answered = True
        finally:
            if self._wait_queues is not None:
                for claim in claims:
                    self._wait_queues.leave(claim, sound=answered)
        return ours

    def queue(self, claim: Claim, limit: float, left: float | None) -> bool:
        return self._wait_queues is not None and self._wait_queues.queue(claim, limit, left)

    async def aqueue(self, claim: Claim, limit: float, left: float | None) -> bool:
        """Queue as `queue`, on no thread of Django's or asyncio's."""
        return self._wait_queues is not None and await self._wait_queues.aqueue(claim, limit, left)

    def is_contended(self, claim: Claim) -> bool:
        # In a transaction as after a Refusal: no third connection. (An event loop has none.)
        busy = (
            claim.is_exclusive
            and self._wait_queues is not None
            and self._wait_queues.is_busy(claim.key)
        )
        return busy and not is_testing() and not self._connections.in_transaction()

    def is_queued(self, claim: Claim) -> bool:
        return self._wait_queues is not None and claim.owner in self._wait_queues

    def _is_contended(self, key: str) -> bool:
        refused = self._contended.get(key)
        if refused is not None and self.clock() - refused > CONTENDED_FOR:
            self._contended.pop(key, None)
            return False
        return refused is not None

    def _note_contention(self, key: str) -> None:
        if len(self._contended) >= MOST_CONTENDED:
            self._contended.clear()  # a hint only: forgetting costs one write lock a name
        self._contended[key] = self.clock()

    def renew(self, claim: Claim) -> bool:
        if not claim.is_exclusive:
            return self._ask(partial(self._renew_member, claim))
        ours = self._ask(lambda statements, connection: statements.renew(connection, claim))
        if ours and self._wait_queues is not None:
            self._wait_queues.renewed(claim)
        return ours

    def renew_many(self, claims: Sequence[Claim]) -> list[bool]:
        """Renew in one statement for each ttl and 400 claims, and one more if some are lost.

        And one after the other those of locks that several hold.
        """
        ours: set[str] = set()
        by_ttl: dict[float, list[Claim]] = {}
        for claim in claims:
            if claim.is_exclusive:
                by_ttl.setdefault(claim.ttl, []).append(claim)
            elif self._ask(partial(self._renew_member, claim)):
                ours.add(claim.owner)
        for ttl, same in by_ttl.items():
            for start in range(0, len(same), BATCH):
                ours |= self._renew_batch(same[start : start + BATCH], ttl)
        if self._wait_queues is not None:
            for claim in claims:
                if claim.owner in ours:
                    self._wait_queues.renewed(claim)
        return [claim.owner in ours for claim in claims]

    def _renew_member(
        self, claim: Claim, statements: Statements, connection: BaseDatabaseWrapper
    ) -> bool:
        return members.renew(statements, connection, claim, self.command_timeout)

    def _renew_batch(self, claims: Sequence[Claim], ttl: float) -> set[str]:
        return self._ask(
            lambda statements, connection: statements.renew_many(connection, claims, ttl)
        )

    def release(self, claim: Claim) -> bool:
        answered = False
        try:
            statements = self.statements()
            # Repeated, it finds what the first time has freed, of which the answer was lost.
            free = statements.release
            if not claim.is_exclusive:
                free = partial(members.leave, statements, patience=self.command_timeout)
            ours = self._connections.execute(
                lambda lent: free(lent.connection, claim) or lent.repeated,
                self.command_timeout,
            )
            answered = True
        finally:
            # After the row is free, so that the woken waiter finds it free.
            if self._wait_queues is not None:
                self._wait_queues.leave(claim, sound=answered)
        return ours

    def withdraw(self, claim: Claim) -> bool:
        # The row is not asked: on SQLite that would be a write, in the way of whoever writes.
        if self._wait_queues is not None:
            self._wait_queues.leave(claim)
        return False

    def inspect(self, name: str) -> LockInfo | None:
        held = self.holders(name)
        return held[0] if held else None

    def holders(self, name: str) -> list[LockInfo]:
        key = self.key(name)
        row = self._ask(lambda statements, connection: statements.inspect(connection, key))
        return [] if row is None else list(self._told_by(row))

    def _page(self, after: str) -> tuple[list[Row], str | None]:
        return self._ask(lambda statements, connection: statements.page(connection, after))

    def _lapsed_page(self, after: str) -> tuple[list[Row], str | None]:
        return self._ask(lambda statements, connection: statements.expired(connection, after))

    def _told_by(self, row: Row) -> Iterator[LockInfo]:
        return map(self._info, members.rows_of(row))

    def _info(self, row: Row) -> LockInfo:
        _, name, owner, token, acquired, expires, note, _, *slot = row
        return noted(
            note,
            name=unreadable(name),
            fencing_token=int(token),
            acquired_at=moment(int(acquired)),
            expires_at=moment(int(expires)),
            owner=owner,
            slot=slot[0] if slot else None,
        )

    def _rest(self, after: str, size: int, older: int) -> list[tuple[str, bool]]:
        return self._ask(
            lambda statements, connection: statements.rest(connection, after, size, older)
        )

    def _remove(self, digests: Sequence[str], older: int) -> int:
        return self._ask(
            lambda statements, connection: statements.remove(connection, digests, older)
        )

    # -- for the layers above ----------------------------------------------------------------------

    def is_conflict(self, error: Exception) -> bool:
        return errors.is_conflict(error)

    def remedy(self, error: Exception) -> str:
        return errors.remedy(error, self.database)

    def check(self) -> list[CheckMessage]:
        sql, schema = self.opts.get("SQL", "auto"), self.opts.get("SCHEMA")
        return checks.check(self.alias, self.database, sql, schema=schema)

    def check_deploy(self) -> list[CheckMessage]:
        inspect = partial(self.call, "inspect")
        return checks.check_deploy(self.alias, self.database, inspect, durable=self._durable)

    def close_thread(self) -> None:
        close_connections()

    def close_idle(self) -> None:
        """Close the connections of our own that are not in use; they are closed soon anyway."""
        if self._wait_queues is not None:
            self._wait_queues.close_idle()
        self._connections.close_idle()

    def close(self) -> None:
        super().close()
        if self._wait_queues is not None:
            self._wait_queues.close()
        self._connections.close_idle()

    def forget_parent(self) -> None:
        super().forget_parent()
        self._mutex = Mutex()
        if self._wait_queues is not None:
            park(*self._wait_queues.forget_parent())
        self._connections.forget_parent()


def _bound(lent: Borrowed, answer: Grant | Refusal) -> Grant | Refusal:
    """Return an answer that says, where a transaction of the caller's was asked, of which."""
    if isinstance(answer, Grant) and lent.in_transaction:
        return answer._replace(bound=lent.bound())
    return answer


OLDEST_MYSQL = (8, 0, 19)  # which has "AS new" in INSERT


def text_for(connection: Any) -> Dialect | None:
    """Return the SQL text for the database of a connection, if there is one."""
    if connection.vendor == "mysql":
        # Galera runs a statement once more that has lost to another server's, and gives the answer
        # of the first time: RETURNING tells both that they have won.
        if is_multi_primary(connection):
            return None
        if connection.mysql_is_mariadb:
            return MARIADB
        return MYSQL if connection.mysql_version >= OLDEST_MYSQL else None
    return {"sqlite": SQLITE, "postgresql": POSTGRESQL}.get(connection.vendor)
