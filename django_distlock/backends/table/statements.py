"""What the backend does with the lock table, and how it is done with SQL text of our own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

from django.db.backends.base.base import BaseDatabaseWrapper

from ...core.names import readable
from ...core.values import Claim, Grant, Refusal
from .cursor import cursor_of
from .sql import Dialect, Room

__all__ = ["MySQLStatements", "Row", "Statements", "TextStatements", "fetch"]

Row: TypeAlias = tuple[Any, ...]
"""A row's columns, in the order of `sql.COLUMNS`."""


class Statements(ABC):
    """The operations on the lock table, each on the connection that it is given.

    Each may be repeated: asked again with the same claim, it does no harm.
    """

    looks = True
    """Whether `held` tells a loser who holds the lock."""
    room: Room | None = None
    """The server's own queue for waiters, if it has one."""

    @abstractmethod
    def attempt(
        self,
        connection: BaseDatabaseWrapper,
        claim: Claim,
        *,
        look_first: bool = False,
        patience: float | None = None,
    ) -> Grant | Refusal:
        """Try to get the lock once. With ``look_first`` ask for it only if a look says it is free.

        Where a losing attempt is nothing but a look, ``look_first`` changes nothing. The server is
        told to wait ``patience`` seconds for a row that is locked, if it can be told.
        """

    @abstractmethod
    def held(self, connection: BaseDatabaseWrapper, claim: Claim) -> Refusal | None:
        """Look, without writing, and return the refusal if another holds the lock."""

    @abstractmethod
    def renew(self, connection: BaseDatabaseWrapper, claim: Claim) -> bool:
        """Start the ttl again if the claim's owner holds the lock."""

    @abstractmethod
    def renew_many(
        self, connection: BaseDatabaseWrapper, claims: Sequence[Claim], ttl: float
    ) -> set[str]:
        """Renew those of ``claims`` that still hold their lock; return their owners."""

    @abstractmethod
    def release(self, connection: BaseDatabaseWrapper, claim: Claim) -> bool:
        """Free the lock if the claim's owner holds it."""

    @abstractmethod
    def inspect(self, connection: BaseDatabaseWrapper, key: str) -> Row | None:
        """Return the row of a lock that is held."""

    @abstractmethod
    def page(self, connection: BaseDatabaseWrapper, after: str) -> tuple[list[Row], str | None]:
        """Return the next held rows after a digest, and where to go on; None where it ends."""

    @abstractmethod
    def expired(self, connection: BaseDatabaseWrapper, after: str) -> tuple[list[Row], str | None]:
        """Return as `page` the rows whose lease ran out, and that was not released."""

    @abstractmethod
    def rest(
        self, connection: BaseDatabaseWrapper, after: str, size: int, older: int
    ) -> list[tuple[str, bool]]:
        """Return the next ``size`` digests, and of each whether its row is idle.

        Idle since ``older`` microseconds: its last grant, its expiry and its release are further
        back, and no token is ahead of that, so that the name's next one is higher.
        """

    @abstractmethod
    def remove(self, connection: BaseDatabaseWrapper, digests: Sequence[str], older: int) -> int:
        """Delete those of the rows that are idle still; return how many."""


class TextStatements(Statements):
    """SQL text of a database's dialect, run by a cursor."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.looks = bool(dialect.look)
        self.room = dialect.room

    def attempt(
        self,
        connection: BaseDatabaseWrapper,
        claim: Claim,
        *,
        look_first: bool = False,
        patience: float | None = None,
    ) -> Grant | Refusal:
        def ask(sql: str, parameters: dict[str, Any]) -> list[Row]:
            return fetch(connection, sql, parameters)

        return self.dialect.attempt(
            ask, claim, readable(claim.name), look_first=look_first, patience=patience
        )

    def held(self, connection: BaseDatabaseWrapper, claim: Claim) -> Refusal | None:
        return self.dialect.held(lambda sql, given: fetch(connection, sql, given), claim)

    def renew(self, connection: BaseDatabaseWrapper, claim: Claim) -> bool:
        return _update(connection, self.dialect.renew, self.dialect.renewing(claim))

    def renew_many(
        self, connection: BaseDatabaseWrapper, claims: Sequence[Claim], ttl: float
    ) -> set[str]:
        dialect = self.dialect
        with cursor_of(connection) as cursor:
            cursor.execute(*dialect.many(dialect.renew_many, claims, ttl))
            if cursor.rowcount == len(claims):
                return {claim.owner for claim in claims}
            cursor.execute(*dialect.many(dialect.owners, claims, ttl))
            return {owner for (owner,) in cursor.fetchall()}

    def release(self, connection: BaseDatabaseWrapper, claim: Claim) -> bool:
        return _update(connection, self.dialect.release, self.dialect.parameters(claim))

    def inspect(self, connection: BaseDatabaseWrapper, key: str) -> Row | None:
        rows = self._select(connection, self.dialect.inspect, key=key)
        return rows[0] if rows else None

    def page(self, connection: BaseDatabaseWrapper, after: str) -> tuple[list[Row], str | None]:
        rows = self._select(connection, self.dialect.scan, after=after)
        return rows, rows[-1][0] if rows else None

    def expired(self, connection: BaseDatabaseWrapper, after: str) -> tuple[list[Row], str | None]:
        rows = self._select(connection, self.dialect.expired, after=after)
        return rows, rows[-1][0] if rows else None

    def rest(
        self, connection: BaseDatabaseWrapper, after: str, size: int, older: int
    ) -> list[tuple[str, bool]]:
        rows = self._select(connection, self.dialect.page, after=after, size=size, older=older)
        return [(digest, bool(idle)) for digest, idle in rows]

    def remove(self, connection: BaseDatabaseWrapper, digests: Sequence[str], older: int) -> int:
        with cursor_of(connection) as cursor:
            cursor.execute(*self.dialect.removing(digests, older))
            return int(cursor.rowcount)

    def _select(self, connection: BaseDatabaseWrapper, sql: str, **given: Any) -> list[Row]:
        return fetch(connection, sql, {**given, **self.dialect.clock()})


class MySQLStatements(TextStatements):
    """Those of MySQL, whose acquire answers by LAST_INSERT_ID() instead of a row."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self.looks = False  # what a loser is told is no reason to ask another way the next time

    def attempt(
        self,
        connection: BaseDatabaseWrapper,
        claim: Claim,
        *,
        look_first: bool = False,
        patience: float | None = None,
    ) -> Grant | Refusal:
        given = self.dialect.acquiring(claim, readable(claim.name))
        with cursor_of(connection) as cursor:
            cursor.execute(self.dialect.acquire, given)
            token = int(cursor.lastrowid)
        if token:
            return Grant(token, claim.ttl)
        rows = fetch(connection, self.dialect.look, self.dialect.parameters(claim))
        if rows and rows[0][0] == claim.owner:
            return Grant(int(rows[0][1]), claim.ttl)  # a trigger of the table hides the answer
        return self.dialect.refusal(rows) or Refusal()  # freed in between: look again soon


def _update(connection: BaseDatabaseWrapper, sql: str, parameters: dict[str, Any]) -> bool:
    with cursor_of(connection) as cursor:
        cursor.execute(sql, parameters)
        return bool(cursor.rowcount == 1)


def fetch(connection: BaseDatabaseWrapper, sql: str, parameters: dict[str, Any]) -> list[Row]:
    """Run a statement and return its rows."""
    with cursor_of(connection) as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())
