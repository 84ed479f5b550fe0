"""A session of the database that holds advisory locks, one or many of them.

A statement on it is sent, and its answer waited for no longer than its caller may wait: an answer
that comes later is read by the next who uses the session. To close the session, as is done with a
connection that holds nothing, would free all of its locks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import Error

from ...core import clock
from ...core.values import Claim
from ..row.session import LockSession, Row
from ..table.errors import Overdue

__all__ = ["AdvisorySession", "Held"]

MARGIN = 1.0  # seconds that an answer which has begun may take beyond its limit


class Held:
    """A lock that a session holds: for whom, under which token, and until when."""

    __slots__ = ("claim", "lock", "since", "token", "until")

    def __init__(self, claim: Claim, lock: str, token: int) -> None:
        self.claim = claim
        self.lock = lock
        self.token = token
        self.since = clock.now()
        self.until = self.since + claim.ttl


class AdvisorySession(LockSession):
    """A connection of our own, used by one thread at a time under its ``mutex``."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        super().__init__(connection)
        self.number = 0
        """The server's id of the session."""
        self.held: dict[str, Held] = {}
        """What it holds, by the owner of the claim."""
        self.owners: dict[str, set[str]] = {}
        """Who holds each lock by it: one, or several that share what is one share to the server."""
        self.limit = 0
        """How long the server shall let it be silent, in the unit of the server's limit."""
        self.freed: dict[str, bool] = {}
        """Whether the lock of an owner was released, if its caller did not wait for the answer."""
        self.empty_since = clock.now()
        self._late: Callable[[Row | None], None] | None = None
        self._known: list[Row | None] = []

    def add(self, held: Held) -> None:
        """Note what it holds."""
        self.held[held.claim.owner] = held
        self.owners.setdefault(held.lock, set()).add(held.claim.owner)

    def remove(self, owner: str) -> None:
        """Forget what it holds for an owner."""
        held = self.held.pop(owner)
        # An interruption may have come after the first half of `add`.
        others = self.owners.get(held.lock, set())
        others.discard(owner)
        if not others:
            self.owners.pop(held.lock, None)

    def may_join(self, claim: Claim, lock: str) -> bool:
        """Return whether a claim may share a lock that the session holds."""
        owners = self.owners[lock]
        return (
            claim.shared
            and all(self.held[owner].claim.shared for owner in owners)
            # Its release was sent, and is not known to have failed: the server's share is gone.
            and owners.isdisjoint(self.freed)
        )

    def ask(
        self,
        send: Callable[[], None],
        limit: float,
        *,
        late: Callable[[Row | None], None] | None = None,
    ) -> Row | None:
        """Return the answer to what ``send`` sends, within ``limit`` seconds.

        Raises Overdue when it does not come in time; ``late`` is then called with it, by whoever
        uses the session next. Raises Ended when the session, and all that it holds, is gone.
        """
        return self.run(lambda: self._ask(send, limit, late), limit + MARGIN)

    def _ask(
        self,
        send: Callable[[], None],
        limit: float,
        late: Callable[[Row | None], None] | None,
    ) -> Row | None:
        end = clock.now() + limit
        self._settle(limit)
        self._late = late
        send()
        return self._answered(max(0.0, end - clock.now()))

    def settle(self, limit: float) -> None:
        """Read the answer that an earlier caller did not wait for, if there is one."""
        if self.sent:
            self.run(lambda: self._settle(limit), limit + MARGIN)

    def _settle(self, limit: float) -> None:
        if self.sent:
            row = None
            try:
                row = self._answered(limit)
            except Overdue:
                raise
            except Error:
                if not self._is_alive(limit):
                    raise
                # An error in the place of the answer was for who asked then.
            late, self._late = self._late, None
            if late is not None:
                late(row)

    def _answered(self, limit: float) -> Row | None:
        if not self.is_answered(limit):
            raise Overdue(f"no answer within {limit:g} s")
        return self.receive()

    # -- statements --------------------------------------------------------------------------------

    def send(self, statements: Sequence[str], parameters: dict[str, Any]) -> None:
        """Send statements; by a driver that cannot wait later, wait for the answer now."""
        if self.can_send():
            super().send(statements, parameters)
        else:
            self._known = [self.execute(statements, parameters)]
            self.sent = True

    def send_prepared(self, name: str, parameter: str) -> None:
        """Send for the execution of a statement that the session has prepared on PostgreSQL."""
        raw: Any = self.connection.connection
        if self.can_send():
            with self.connection.wrap_database_errors:
                raw.pgconn.send_query_prepared(name.encode(), [parameter.encode()])
                raw.pgconn.flush()
            self.sent = True
        else:
            self.send([f"EXECUTE {name} (%(parameter)s)"], {"parameter": parameter})

    def is_answered(self, seconds: float = 0.0) -> bool:
        return bool(self._known) or super().is_answered(seconds)

    def receive(self) -> Row | None:
        if self._known:
            self.sent = False
            return self._known.pop()
        return super().receive()
