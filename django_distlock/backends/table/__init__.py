"""Locks in a table of the project's own database: one row a name, found by a unique key."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from django.core.checks import CheckMessage
from django.db import connections
from django.db.utils import DatabaseError, InterfaceError

from ...conf import AliasConf
from ...exceptions import InvalidLockBackendError
from ...flow import LEAST_PATIENCE
from ...names import key_of, readable, unreadable
from ...values import Claim, Cleaned, CleanPolicy, Grant, LockInfo, Note, Refusal
from ...worker import close_connections
from ..base import BaseLockBackend
from . import checks, errors
from .connection import Borrowed, Connections
from .sql import MARIADB, POSTGRESQL, SQLITE, Dialect

__all__ = ["TableBackend"]

BATCH = 400  # claims a statement: two parameters each, and SQLite once took only 999
CONTENDED_FOR = 5.0  # seconds after a refusal for which a name counts as contended
MOST_CONTENDED = 1000  # names remembered
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TableBackend(BaseLockBackend):
    """The unique-key lock table, on SQLite, PostgreSQL or MariaDB.

    LOCATION is an alias of DATABASES, by default ``"default"``. OPTIONS: ``COMMAND_TIMEOUT``,
    the seconds (5) after which a statement without an answer counts as failed.
    """

    thread_sensitive = True
    cleans = True
    grace: ClassVar[float] = 1.0
    store_errors = (DatabaseError, InterfaceError)

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        database = "default" if conf.location is None else conf.location
        if not isinstance(database, str) or database not in connections.settings:
            known = ", ".join(map(repr, connections.settings))
            raise InvalidLockBackendError(
                f"DISTLOCKS[{alias!r}]['LOCATION'] is an alias of DATABASES ({known}), "
                f"not {database!r}."
            )
        self.database = database
        self._connections = Connections(database)
        self._dialect: Dialect | None = None
        # When a name was last refused: see Dialect.attempt.
        self._contended: dict[str, float] = {}
        if connections[database].vendor == "sqlite":
            self.scope = "host"
            # SQLite answers at once or is busy, and what it waits for is counted as our wait.
            self.least_patience = 0.05
        else:
            # For a row that another's transaction has locked; the answer itself may take longer.
            self.least_patience = 0.2

    def dialect(self) -> Dialect:
        """Return the SQL for the database, or refuse one that has none."""
        if self._dialect is None:
            # By the guarded way: MariaDB and MySQL are told apart by asking the server.
            self._dialect = self._connections.execute(
                lambda lent: self._choose(lent.connection), self.command_timeout
            )
        return self._dialect

    def _choose(self, connection: Any) -> Dialect:
        if connection.vendor == "sqlite":
            return SQLITE
        if connection.vendor == "postgresql":
            return POSTGRESQL
        if connection.vendor == "mysql" and connection.mysql_is_mariadb:
            return MARIADB
        raise InvalidLockBackendError(
            f"DISTLOCKS[{self.alias!r}]: the table backend has no SQL for {connection.display_name}"
            ", only for SQLite, PostgreSQL and MariaDB. Use a DATABASES alias of one of these."
        )

    # -- primitives ------------------------------------------------------------------------------

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        dialect = self.dialect()
        name = readable(claim.name)
        soon = limit < LEAST_PATIENCE and bool(dialect.acquire_soon)

        def patience(lent: Borrowed) -> float | None:
            # Not in a transaction of the caller's, of which PostgreSQL would then limit the rest.
            return limit if soon and not lent.in_transaction else None

        def work(lent: Borrowed) -> Grant | Refusal:
            def fetch(sql: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
                with lent.connection.cursor() as cursor:
                    cursor.execute(sql, parameters)
                    return list(cursor.fetchall())

            try:
                look_first = bool(self._contended) and self._is_contended(claim.key)
                answer = dialect.attempt(
                    fetch, claim, name, look_first=look_first, patience=patience(lent)
                )
            except DatabaseError as error:
                # A busy file that nevertheless says who holds the lock has answered.
                if not dialect.look or not self.is_conflict(error):
                    raise
                held = dialect.held(fetch, claim)
                if held is None:
                    raise
                answer = held
            if isinstance(answer, Refusal) and dialect.look:
                self._note_contention(claim.key)
            if isinstance(answer, Grant) and lent.in_transaction:
                return Grant(answer.fencing_token, answer.valid_for, lent.bound())
            return answer

        # The server itself keeps a short limit; but its answer may take longer, over a network.
        most = min(self.command_timeout, LEAST_PATIENCE) if soon else limit
        return self._connections.execute(work, most)

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
        return self._update(self.dialect().renew, claim)

    def renew_many(self, claims: Sequence[Claim]) -> list[bool]:
        """Renew in one statement for each ttl and 400 claims, and one more if some are lost."""
        ours: set[str] = set()
        by_ttl: dict[float, list[Claim]] = {}
        for claim in claims:
            by_ttl.setdefault(claim.ttl, []).append(claim)
        for ttl, same in by_ttl.items():
            for start in range(0, len(same), BATCH):
                ours |= self._renew_batch(same[start : start + BATCH], ttl)
        return [claim.owner in ours for claim in claims]

    def _renew_batch(self, claims: Sequence[Claim], ttl: float) -> set[str]:
        dialect = self.dialect()

        def work(lent: Borrowed) -> set[str]:
            with lent.connection.cursor() as cursor:
                cursor.execute(*dialect.many(dialect.renew_many, claims, ttl))
                if cursor.rowcount == len(claims):
                    return {claim.owner for claim in claims}
                cursor.execute(*dialect.many(dialect.owners, claims, ttl))
                return {owner for (owner,) in cursor.fetchall()}

        return self._connections.execute(work, self.command_timeout)

    def release(self, claim: Claim) -> bool:
        return self._update(self.dialect().release, claim)

    def _update(self, sql: str, claim: Claim) -> bool:
        parameters = self.dialect().parameters(claim, "")

        def work(lent: Borrowed) -> bool:
            with lent.connection.cursor() as cursor:
                cursor.execute(sql, parameters)
                return bool(cursor.rowcount == 1)

        return self._connections.execute(work, self.command_timeout)

    def inspect(self, name: str) -> LockInfo | None:
        rows = self._select(self.dialect().inspect, key=self.key(name))
        return _info(rows[0]) if rows else None

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        after = ""
        while rows := self._select(self.dialect().scan, after=after):
            after = rows[-1][0]
            for row in rows:
                info = _info(row)
                # The table is shared by aliases with other PREFIXes: the digest tells whose it is.
                if info.name.startswith(prefix) and row[0] == key_of(self.conf.prefix, info.name):
                    yield info

    def clean_batch(self, policy: CleanPolicy, cursor: str) -> Cleaned:
        """Look at a page of the table, then remove of it what is idle still.

        Two statements, each a transaction of its own: what is looked at is not locked.
        """
        older = round(policy.older_than * 1_000_000)
        rows = self._select(self.dialect().page, after=cursor, size=policy.batch, older=older)
        idle = [digest for digest, is_idle in rows if is_idle]
        removed = len(idle) if policy.dry_run or not idle else self._remove(idle, older)
        following = rows[-1][0] if len(rows) == policy.batch else None
        return Cleaned(removed=removed, seen=len(rows), cursor=following)

    def _remove(self, digests: Sequence[str], older: int) -> int:
        def work(lent: Borrowed) -> int:
            with lent.connection.cursor() as cursor:
                cursor.execute(*self.dialect().removing(digests, older))
                return int(cursor.rowcount)

        return self._connections.execute(work, self.command_timeout)

    def _select(self, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        given = {**parameters, **self.dialect().clock()}

        def work(lent: Borrowed) -> list[tuple[Any, ...]]:
            with lent.connection.cursor() as cursor:
                cursor.execute(sql, given)
                return list(cursor.fetchall())

        return self._connections.execute(work, self.command_timeout)

    # -- for the layers above ----------------------------------------------------------------------

    def place(self) -> object:
        return connections.settings.get(self.database, {}).get("NAME")

    def is_conflict(self, error: Exception) -> bool:
        return errors.is_conflict(error)

    def remedy(self, error: Exception) -> str:
        return errors.remedy(error, self.database)

    def check(self) -> list[CheckMessage]:
        return checks.check(self.alias, self.database)

    def check_deploy(self) -> list[CheckMessage]:
        return checks.check_deploy(self.alias, self.database)

    def cleaned_with(self) -> Hashable:
        where = connections[self.database].settings_dict
        return ("table", *(str(where[key]) for key in ("ENGINE", "HOST", "PORT", "NAME")))

    def close_thread(self) -> None:
        close_connections()

    def close(self) -> None:
        super().close()
        self._connections.close()

    def forget_parent(self) -> None:
        super().forget_parent()
        self._connections.forget_parent()


def _info(row: tuple[Any, ...]) -> LockInfo:
    _, name, owner, token, acquired, expires, note = row
    seen = Note.loads(note)
    return LockInfo(
        name=unreadable(name),
        holder=seen.holder,
        fencing_token=int(token),
        acquired_at=_EPOCH + timedelta(microseconds=int(acquired)),
        expires_at=_EPOCH + timedelta(microseconds=int(expires)),
        metadata=seen.metadata,
        owner=owner,
    )
