"""The optimistic technique: read, decide, and write only if the row is still as it was seen.

The token is the version: each grant changes it, and none is seen twice, so that "as it was seen"
cannot be said of a row that has changed and changed back. Losing writes nothing and locks nothing.
"""

from __future__ import annotations

from abc import abstractmethod

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import IntegrityError

from ...core.values import Claim, Grant, Refusal
from .statements import Seen, Statements

__all__ = ["Optimistic"]

TURNS = 3  # of an attempt: to make the row, to try to win it, and to see who was faster
MANY = 20  # turns in which a row could be neither seen nor made: no race with a cleaning any more


class Optimistic(Statements):
    """An attempt made of a read and a conditional write."""

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
