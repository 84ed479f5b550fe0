"""What the row backend asks of a database; each of the two answers in its own words."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from ...core.names import readable
from ...core.values import Claim
from .session import LockSession, Row

__all__ = ["LONGEST_WAIT", "Missing", "RowDialect", "milliseconds"]

LONGEST_WAIT: Final = 300.0
"""Seconds after which the server ends a wait, so that no dead client's lasts without limit."""


class Missing(Exception):
    """There is no row to lock: it was never made, or removed."""


class RowDialect(ABC):
    """The statements of one database."""

    removed_at_once: ClassVar[int] = 500
    """Rows that one call of `remove` is given; COMMAND_TIMEOUT is for each call."""

    def given(self, claim: Claim) -> dict[str, Any]:
        """Return the parameters of the statements about a claim."""
        return {
            "key": claim.key,
            "name": readable(claim.name),
            "owner": claim.owner,
            "note": claim.note,
        }

    @abstractmethod
    def make(self, session: LockSession, claim: Claim) -> None:
        """Make the row if there is none, in autocommit and without waiting for its lock.

        Beforehand, because locking a row that is missing locks the gap for it on MariaDB, and
        deadlocks follow between different names.
        """

    @abstractmethod
    def attempt(self, session: LockSession, claim: Claim) -> int | None:
        """Lock the row if that needs no wait, and draw the token; None if another has locked it.

        The transaction stays open in any case. Raises Missing when there is no such row.
        """

    @abstractmethod
    def send_wait(self, session: LockSession, claim: Claim) -> None:
        """Send what waits for the row, and then draws the token.

        Only then: drawn together with the wait it would be as old as its beginning.
        """

    @abstractmethod
    def waited(self, session: LockSession, claim: Claim, row: Row | None) -> int | None:
        """Return the token that the answer to that brings; None if the row was gone."""

    @abstractmethod
    def renew(self, session: LockSession, claim: Claim) -> None:
        """Have the limit on being idle begin again, with the claim's ttl."""

    @abstractmethod
    def release(self, session: LockSession, claim: Claim, *, long: bool) -> None:
        """Commit, so that the token is kept. After a ``long`` hold, tell that it was used."""

    @abstractmethod
    def cancel(self, session: LockSession, other: LockSession, limit: float) -> None:
        """Have the server end the wait of ``session``, by way of ``other``."""

    @abstractmethod
    def holder(self, session: LockSession, key: str) -> Row | None:
        """Return (digest, name, owner, token, note, session id) of who holds a row."""

    @abstractmethod
    def holders(self, session: LockSession, after: str, size: int) -> tuple[list[Row], str | None]:
        """Return the same of the next held rows, and where to go on; None where it ends."""

    @abstractmethod
    def end(self, session: LockSession, key: str, owner: str) -> bool:
        """End the session that holds a row for ``owner``; False if there is none."""

    @abstractmethod
    def idle_rows(
        self, session: LockSession, after: str, size: int, older: int
    ) -> list[tuple[str, bool]]:
        """Return the next digests, and of each whether its row was not used for ``older`` µs."""

    @abstractmethod
    def remove(self, session: LockSession, digests: Sequence[str], older: int) -> int:
        """Delete those of the rows that are idle still, and not locked."""

    def tidy(self, session: LockSession) -> None:  # noqa: B027 - one database has nothing to tidy
        """Remove what sessions that have ended left behind."""


def milliseconds(ttl: float) -> int:
    """Return a ttl in whole milliseconds, rounded up."""
    return max(1, math.ceil(ttl * 1000))
