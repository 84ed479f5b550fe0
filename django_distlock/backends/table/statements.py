"""What the backend does with the lock table, and how it is done with SQL text of our own."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import IntegrityError

from ...core.names import readable
from ...core.values import Claim, Grant, Refusal
from .dialect import COLUMNS, Dialect, WaitQueueSql, patient

__all__ = [
    "FIELDS",
    "MySQLStatements",
    "Row",
    "Seen",
    "Statements",
    "TextStatements",
    "fetch",
    "fresh_token",
    "write",
]

FIELDS = COLUMNS.split(", ")

Row: TypeAlias = tuple[Any, ...]
"""A row's columns, in the order of `sql.COLUMNS`, and the database's clock."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The database's clock, and the row that was read with it."""

    now: int
    digest: str
    name: str
    owner: str
    token: int
    acquired: int
    expires: int
    note: str

    def held(self) -> bool:
        """Return whether a process held the lock then."""
        return self.expires > self.now

    def last_use(self) -> int:
        """When the lock was last granted or freed, or has run out; a token may be ahead of that."""
        return max(self.token + 1, abs(self.expires))

    def row(self) -> Row:
        """Return the columns and the clock, as a `Row`."""
        return (*(getattr(self, field) for field in FIELDS), self.now)

    def refusal(self) -> Refusal:
        """Return what a loser is told."""
        return Refusal((self.expires - self.now) / 1_000_000, self.note)


class Statements(ABC):
    """The operations on the lock table, each on the connection that it is given.

    Each may be repeated: asked again with the same claim, it does no harm.
    """

    looks = False
    """Whether one that was refused is to be asked next with ``look_first``, as it writes."""
    wait_queue: WaitQueueSql | None = None
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
        """Try to get the lock once. With ``look_first`` ask for it only if a read says it is free.

        Where a losing attempt only reads, ``look_first`` changes nothing. The server is
        told to wait ``patience`` seconds for a row that is locked, if it can be told.
        """

    def held(self, connection: BaseDatabaseWrapper, claim: Claim) -> Refusal | None:
        """Look, without writing, and return the refusal if another holds the lock."""
        seen = self.look(connection, claim.key)
        if seen is None or seen.owner == claim.owner or not seen.held():
            return None
        return seen.refusal()

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

    def attempt_many(
        self, connection: BaseDatabaseWrapper, claims: Sequence[Claim], patience: float
    ) -> list[Grant | None]:
        """Try to get each lock once; not asked for where `TableBackend.at_once` is 1."""
        raise NotImplementedError

    def release_many(self, connection: BaseDatabaseWrapper, claims: Sequence[Claim]) -> list[bool]:
        """Free each lock that its claim's owner holds; not asked for as `attempt_many`."""
        raise NotImplementedError

    @abstractmethod
    def look(self, connection: BaseDatabaseWrapper, key: str) -> Seen | None:
        """Read the row and the clock with one statement that locks nothing."""

    @abstractmethod
    def make(
        self, connection: BaseDatabaseWrapper, claim: Claim, patience: float | None
    ) -> IntegrityError | None:
        """Make the row of a name never seen, or cleaned away: free, and there to be competed for.

        Not with a token: drawn before the row is there it could be older than those of holders
        in between, whose row was cleaned away again. See `fresh_token`. Returns the error if there
        is such a row by now.
        """

    @abstractmethod
    def swap(
        self,
        connection: BaseDatabaseWrapper,
        seen: Seen,
        new: Seen,
        patience: float,
        *,
        frees: bool = False,
    ) -> bool:
        """Write a row as ``new`` if it is as it was seen; return whether it was.

        With ``frees`` it gives up a lease, so that a crash of the database may undo it.
        """

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
        self.wait_queue = dialect.wait_queue

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

    def renew(self, connection: BaseDatabaseWrapper, claim: Claim) -> bool:
        return write(connection, self.dialect.renew, self.dialect.renewing(claim)) == 1

    def renew_many(
        self, connection: BaseDatabaseWrapper, claims: Sequence[Claim], ttl: float
    ) -> set[str]:
        dialect = self.dialect
        with connection.cursor() as cursor:
            cursor.execute(*dialect.many(dialect.renew_many, claims, ttl))
            if cursor.rowcount == len(claims):
                return {claim.owner for claim in claims}
        return set(self._tokens(connection, claims))

    def _tokens(self, connection: BaseDatabaseWrapper, claims: Sequence[Claim]) -> dict[str, int]:
        """Return the owners of those claims that hold their lock, with their tokens."""
        sql, given = self.dialect.many(self.dialect.owners, claims)
        return {owner: int(token) for owner, token in fetch(connection, sql, given)}

    def attempt_many(
        self, connection: BaseDatabaseWrapper, claims: Sequence[Claim], patience: float
    ) -> list[Grant | None]:
        """Try to get the locks by one statement, and read who was granted which by another."""
        sql, given = self.dialect.acquiring_many(claims, patience)
        with connection.cursor() as cursor:
            cursor.execute(sql, given)
            if cursor.description:
                cursor.fetchall()  # SQLite goes on only as rows are read
        tokens = self._tokens(connection, claims)
        return [
            Grant(tokens[claim.owner], claim.ttl) if claim.owner in tokens else None
            for claim in claims
        ]

    def release_many(self, connection: BaseDatabaseWrapper, claims: Sequence[Claim]) -> list[bool]:
        """Read which are held still, and free those by one statement."""
        ours = self._tokens(connection, claims)
        held = [claim for claim in claims if claim.owner in ours]
        if held:
            write(connection, *self.dialect.many(self.dialect.release_many, held))
        return [claim.owner in ours for claim in claims]

    def release(self, connection: BaseDatabaseWrapper, claim: Claim) -> bool:
        return write(connection, self.dialect.release, self.dialect.parameters(claim)) == 1

    def look(self, connection: BaseDatabaseWrapper, key: str) -> Seen | None:
        rows = self._select(connection, self.dialect.see, key=key)
        if not rows:
            return None
        digest, name, owner, token, acquired, expires, note, now = rows[0]
        return Seen(int(now), digest, name, owner, int(token), int(acquired), int(expires), note)

    def make(
        self, connection: BaseDatabaseWrapper, claim: Claim, patience: float | None
    ) -> IntegrityError | None:
        given = {"key": claim.key, "name": readable(claim.name), "fresh": fresh_token()}
        if patience is None:
            write(connection, self.dialect.make, given)
        else:
            write(connection, self.dialect.make_soon, given | patient(patience))
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
        given = {field: getattr(new, field) for field in FIELDS} | patient(patience)
        given |= {"seen_token": seen.token, "seen_expires": seen.expires}
        return write(connection, self.dialect.free if frees else self.dialect.swap, given) == 1

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
        with connection.cursor() as cursor:
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
        with connection.cursor() as cursor:
            cursor.execute(self.dialect.acquire, given)
            token = int(cursor.lastrowid)
        if token:
            return Grant(token, claim.ttl)
        rows = fetch(connection, self.dialect.look, self.dialect.parameters(claim))
        if rows and rows[0][0] == claim.owner:
            return Grant(int(rows[0][1]), claim.ttl)  # a trigger of the table hides the answer
        return self.dialect.refusal(rows) or Refusal()  # freed in between: try again soon


def write(connection: BaseDatabaseWrapper, sql: str, parameters: dict[str, Any]) -> int:
    """Run a statement and return how many rows it has changed."""
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return int(cursor.rowcount)


def fetch(connection: BaseDatabaseWrapper, sql: str, parameters: dict[str, Any]) -> list[Row]:
    """Run a statement and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


def fresh_token() -> int:
    """Return what stands for the token in a row that was never granted.

    Below zero it is no token yet, and random so that it is never seen twice.
    """
    return -1 - secrets.randbits(62)
