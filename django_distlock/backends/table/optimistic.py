"""The optimistic technique: look, decide, and write only if the row is still as it was seen.

The token is the version: each grant changes it, and none is seen twice, so that "as it was seen"
cannot be said of a row that has changed and changed back. Losing writes nothing and locks nothing.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from dataclasses import dataclass

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import IntegrityError

from ...core.values import Claim, Grant, Refusal
from .sql import COLUMNS
from .statements import Row, Statements

__all__ = ["FIELDS", "Optimistic", "Seen", "fresh_token", "length"]

TURNS = 3  # of an attempt: to make the row, to try to win it, and to see who was faster
MANY = 20  # turns in which a row could be neither seen nor made: no race with a cleaning any more
FIELDS = COLUMNS.split(", ")


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
        """Return the columns without the clock."""
        return tuple(getattr(self, field) for field in FIELDS)

    def refusal(self) -> Refusal:
        """Return what a loser is told."""
        return Refusal((self.expires - self.now) / 1_000_000, self.note)


class Optimistic(Statements):
    """An attempt made of a look and a conditional write."""

    @abstractmethod
    def look(self, connection: BaseDatabaseWrapper, key: str) -> Seen | None:
        """Read the row and the clock with one statement that locks nothing."""

    @abstractmethod
    def take(
        self,
        connection: BaseDatabaseWrapper,
        claim: Claim,
        seen: Seen,
        token: int,
        patience: float | None,
    ) -> bool:
        """Write the claim into the row if it is as it was seen; return whether it was.

        Asked again by its owner, the row keeps the token and the time of the grant.
        """

    @abstractmethod
    def make(
        self, connection: BaseDatabaseWrapper, claim: Claim, patience: float | None
    ) -> IntegrityError | None:
        """Make the row of a name never seen, or cleaned away: free, and there to be competed for.

        Not with a token: drawn before the row is there it could be older than those of holders
        in between, whose row was cleaned away again. See `fresh_token`. Returns the error if there
        is such a row by now.
        """

    def attempt(
        self,
        connection: BaseDatabaseWrapper,
        claim: Claim,
        *,
        look_first: bool = False,
        patience: float | None = None,
    ) -> Grant | Refusal:
        error: IntegrityError | None = None
        for turn in range(1, MANY + 1):
            seen = self.look(connection, claim.key)
            if seen is None:
                error = self.make(connection, claim, patience)
            else:
                error = None
                mine = seen.owner == claim.owner
                if seen.held() and not mine:
                    return seen.refusal()
                token = seen.token if mine else max(seen.token + 1, seen.now)
                if self.take(connection, claim, seen, token, patience):
                    return Grant(token, claim.ttl)
            if turn >= (TURNS if error is None else MANY):
                break
        if error is not None:
            raise error
        return Refusal()

    def held(self, connection: BaseDatabaseWrapper, claim: Claim) -> Refusal | None:
        seen = self.look(connection, claim.key)
        if seen is None or seen.owner == claim.owner or not seen.held():
            return None
        return seen.refusal()


def fresh_token() -> int:
    """Return what stands for the token in a row that was never granted.

    Below zero it is no token yet, and random so that it is never seen twice.
    """
    return -1 - secrets.randbits(62)


def length(ttl: float) -> int:
    """Return a ttl in the microseconds of the table."""
    return max(1, round(ttl * 1_000_000))
