"""Advisory locks: the lock that the database server itself has, which waits for no disk.

``pg_advisory_lock`` on PostgreSQL, ``GET_LOCK`` on MariaDB and MySQL. Such a lock belongs to a
session. The locks of a process share a few sessions, one for each ttl. A waiter has a session of
its own, which holds the lock when it is granted. A session that is silent for its ttl is ended by
the server, and with it go its locks: that is the lease.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from functools import partial

from django.db import connections
from django.db.utils import Error

from ...core import clock
from ...core.flow import MIN_ATTEMPT_TIMEOUT
from ...core.values import Claim, Grant, Refusal
from ...exceptions import UnsupportedOperationError
from ..row.session import Ended, Row
from ..row.sessions import ABANDONED, GLANCE, MOMENT, Exhausted
from ..table.errors import Overdue
from .checks import no_transactions
from .dialect import FORCE
from .session import AdvisorySession
from .sessions import TICK, AdvisorySessions
from .xact import try_in_transaction, wait_in_transaction

__all__ = ["AdvisoryBackend"]

ANSWERS = 3.0  # seconds after which a holder's process is taken to be hung by a forced release


class AdvisoryBackend(AdvisorySessions):
    """Advisory locks of sessions, on PostgreSQL, MariaDB and MySQL.

    LOCATION is an alias of DATABASES, by default ``"default"``. OPTIONS: ``COMMAND_TIMEOUT``, the
    seconds (5) after which a statement without an answer counts as failed; ``CONNECTIONS``, how
    many connections (20) a process may have to wait for locks, in addition to those that are
    shared: beyond it a waiter asks again and again; ``IDLE``, how many of them (4) it keeps when
    they are not in use.
    """

    # -- primitives ------------------------------------------------------------------------------

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        """Attempt once, and with a ``limit`` above 0 leave a session in the server's queue."""
        if claim.in_transaction:
            return try_in_transaction(self.database, claim)
        answered = min(self.command_timeout, max(limit, MIN_ATTEMPT_TIMEOUT))
        session = self._session_of(claim)
        if session is not None:
            answer = self._ask_again(session, claim, answered, wait=limit > 0)
            if answer is not None:
                return answer
        answer = self._try_shared(claim, answered)
        if isinstance(answer, Refusal) and limit > 0:
            self._queue(claim, answered)
        return answer

    def _try_shared(self, claim: Claim, limit: float) -> Grant | Refusal:
        """Attempt on a session that many locks share; once more if that had been ended."""
        need = self.dialect.limit_of(claim.ttl)
        for last in (False, True):
            session = self._share(need)
            try:
                return self._with(session, limit, partial(self._try, session, need, claim))
            except Ended:
                if last:
                    raise
        raise AssertionError  # the loop's last round returns or raises

    def _try(
        self, session: AdvisorySession, need: int, claim: Claim, limit: float, left: float
    ) -> Grant | Refusal:
        if session not in self._shared:
            raise Ended("it held nothing, and was ended meanwhile", reported=True)
        dialect = self.dialect
        self._ready(session, need, left)
        lock = dialect.lock_of(session, claim.key)
        joins = lock in session.owners
        if joins:
            session.settle(limit)  # of a release that was answered late, say
            if not session.may_join(claim, lock):
                return Refusal()  # to the server, it would be the same session that asks
        try:
            send = partial(dialect.send_try, session, lock, claim)
            row = session.ask(
                partial(dialect.send_join, session, lock) if joins else send,
                limit,
                late=lambda row: self._undo(session, lock, shared=claim.shared),
            )
            token = dialect.token(session, lock, claim.key, row)
        except (Ended, Overdue):
            raise
        except Error:
            # The lock may be there, and the token not: on a replica that is read-only, say.
            if session.connection.connection is not None:
                self._undo(session, lock, shared=claim.shared)
            raise
        if token is None:
            return Refusal()
        self._granted(session, lock, claim, token)
        return Grant(token, claim.ttl)

    def _undo(self, session: AdvisorySession, lock: str, *, shared: bool) -> None:
        """Free a lock that may have been granted after its claim had given up."""
        if lock not in session.owners:
            self.dialect.send_unlock(session, lock, shared=shared)
            session.receive()

    # -- waiting -----------------------------------------------------------------------------------

    def queue(self, claim: Claim, limit: float, left: float | None) -> Grant | Refusal | bool:
        """Wait, with a lock of the caller's transaction; a session's own waits by itself."""
        return claim.in_transaction and wait_in_transaction(self.database, claim, limit)

    def _queue(self, claim: Claim, limit: float) -> None:
        """Have a session of the claim's own wait for the lock, if there may be one more."""
        try:
            session = self._pool.take()
        except Exhausted:
            return  # it polls
        with session.mutex:
            session.owner, session.key = claim.owner, claim.key
            with self._mutex:
                self._sessions[claim.owner] = session
            if self._guarded(session, lambda: self._send_wait(session, claim, limit)):
                session.looked = clock.now()
                session.until = session.looked + ABANDONED
            else:
                self._drop(session, sound=True)
        self._maintain_in(TICK)

    def _send_wait(self, session: AdvisorySession, claim: Claim, limit: float) -> bool:
        """Have a session wait; False if its driver can only wait for an answer at once."""
        while True:
            used = session.connection.connection is not None
            try:
                self._ready(session, self.dialect.limit_of(claim.ttl), limit)
                if not session.can_send():
                    return False
                lock = self.dialect.lock_of(session, claim.key)
                session.run(partial(self.dialect.send_wait, session, lock, claim), limit)
                return True
            except Ended:
                if not used:
                    raise
                # It had been kept from an earlier use, and the server has ended it.

    def _ask_again(
        self, session: AdvisorySession, claim: Claim, limit: float, *, wait: bool
    ) -> Grant | Refusal | None:
        """Answer a claim that has or awaits the lock by a session; None if it has none any more."""
        try:
            return self._with(session, limit, partial(self._answer, session, claim, wait))
        except Ended:
            return None  # its queue entry is gone: it asks once more

    def _answer(
        self, session: AdvisorySession, claim: Claim, wait: bool, limit: float, left: float
    ) -> Grant | Refusal | None:
        if self._session_of(claim) is not session:
            return None
        lock = self.dialect.lock_of(session, claim.key)
        held = session.held.get(claim.owner)
        if held is not None:
            return Grant(held.token, claim.ttl) if self._keep(session, [claim], limit) else None
        now, before = clock.now(), session.looked
        session.looked, session.until = now, now + ABANDONED
        # Who pauses in between is woken by the answer; who asks again at once may be faster than
        # the server's message that it is his turn.
        if not session.is_answered(GLANCE if wait and now - before < GLANCE else 0.0):
            return Refusal()
        try:
            token = session.run(
                lambda: self.dialect.token(session, lock, claim.key, session.receive()), left
            )
            if token is None:  # the server's limit on waiting
                self._drop(session, sound=True)
                return None
            passed = clock.now() - session.sent_at
            if passed > claim.ttl * MOMENT:
                # The server's limit runs since the grant, of which the time is not known.
                session.ask(partial(self.dialect.send_look, session), left)
                passed = 0.0
        except Error:
            # It has the lock, perhaps, of which nothing is noted: both end.
            self._lose(session)
            raise
        session.until = math.inf
        self._granted(session, lock, claim, token)
        return Grant(token, claim.ttl - passed)

    # -- renewing and releasing --------------------------------------------------------------------

    def renew(self, claim: Claim) -> bool:
        return claim.in_transaction or self.renew_many([claim])[0]

    def renew_many(self, claims: Sequence[Claim]) -> list[bool]:
        """Renew in one statement for each session, of which most have one."""
        by_session: dict[int, tuple[AdvisorySession, list[Claim]]] = {}
        for claim in claims:
            session = self._session_of(claim)
            if session is not None:
                by_session.setdefault(id(session), (session, []))[1].append(claim)
        ours: set[str] = set()
        for session, some in by_session.values():
            with contextlib.suppress(Ended):
                ours |= self._with(
                    session,
                    self.command_timeout,
                    lambda limit, left: self._keep(session, some, limit),  # noqa: B023
                )
        return [claim.owner in ours for claim in claims]

    def _keep(self, session: AdvisorySession, claims: Sequence[Claim], limit: float) -> set[str]:
        """Restart the ttls; return the owners whose locks the session holds."""
        held = session.held
        kept = [claim for claim in claims if claim.owner in held]
        if not kept:
            return set()
        need = max(self.dialect.limit_of(claim.ttl) for claim in kept)
        if need > session.idle:
            session.limit = need
            session.settle(limit)
            session.run(lambda: self.dialect.set_limit(session), limit)
        self._look_for_forced(session, limit)
        now = clock.now()
        # What was freed by a statement that was answered late is noted as held still.
        kept = [c for c in kept if c.owner in held and c.owner not in session.freed]
        for claim in kept:
            if claim.shared and not held[claim.owner].claim.shared:
                self._downgrade(session, claim, limit)
            held[claim.owner].until = now + claim.ttl
        self._maintain_in(min(TICK, *(claim.ttl for claim in claims)))
        return {claim.owner for claim in kept}

    def _downgrade(self, session: AdvisorySession, claim: Claim, limit: float) -> None:
        held = session.held[claim.owner]
        session.settle(limit)
        session.run(partial(self.dialect.downgrade, session, held.lock), limit)
        self._holders.remove(held.token)
        held.claim = claim
        self._holders.add(held, session.number)

    def release(self, claim: Claim) -> bool:
        if claim.in_transaction:
            return True  # by the commit
        if not claim.owner:
            raise UnsupportedOperationError(
                "The lock is held by a session that is none of this backend's, or whose process "
                "has not written what it holds: end it by the server's own means",
                name=claim.name,
                alias=self.alias,
            )
        session = self._session_of(claim)
        if session is None:
            return claim.owner not in self._parents and self._force_out(claim)
        over = session.is_closed()
        try:
            return self._with(
                session,
                self.command_timeout,
                lambda limit, left: self._release(session, claim, limit),
            )
        except Ended as error:
            # If only the answer is missing, the lock was held until now, and is free by now.
            return not (over or error.reported)

    def _release(self, session: AdvisorySession, claim: Claim, limit: float) -> bool:
        if self._session_of(claim) is not session:
            return False
        if claim.owner not in session.held:
            self._withdraw(session)
            return False
        return self._free(session, claim.owner, limit)

    def withdraw(self, claim: Claim) -> bool:
        return self._session_of(claim) is not None and self.release(claim)

    # -- forced releases ---------------------------------------------------------------------------

    def _force_out(self, claim: Claim) -> bool:
        """Have the process that holds the lock release it; end its session if it does not."""
        dialect = self.dialect
        given = {"digest": claim.key, "owner": claim.owner}
        self._holders.write(dialect)  # what this process has released is gone

        def holds() -> Row | None:
            rows = self._look(lambda session: dialect.holders_of(session, claim.key))
            return next((row for row in rows if row[2] == claim.owner), None)

        row = holds()
        if row is None or not self._look(lambda session: session.change(FORCE, given)):
            return False
        end = clock.now() + ANSWERS
        ended = False
        while holds() is not None:
            if clock.now() > end:
                if ended:
                    raise Overdue("the session was told to end, and has not")
                ended, end = True, clock.now() + self.command_timeout
                self._end_other(partial(dialect.end, number=int(row[5])))
            time.sleep(0.01)
        return True

    # -- for the layers above ----------------------------------------------------------------------

    def transaction_database(self) -> str:
        if connections[self.database].vendor != "postgresql":
            raise UnsupportedOperationError(no_transactions(self.database), alias=self.alias)
        return self.database
