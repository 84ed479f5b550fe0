"""Row locks: the database itself locks a row, queues the waiters, and frees it with its session.

``SELECT ... FOR UPDATE`` in a transaction on a connection of the lease's own, on PostgreSQL,
MariaDB and MySQL. There is no polling and no expiry to judge: the lock is the session. The ttl is
the server's limit on being idle, and any statement on the session renews it.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial

from django.db.utils import DatabaseError

from ...conf import AliasConf
from ...core import clock
from ...core.flow import MIN_ATTEMPT_TIMEOUT
from ...core.threads import Mutex
from ...core.values import Claim, Grant, Refusal
from ...core.worker import Worker, close_connections
from ..table import errors
from .dialect import Missing, RowDialect
from .inspect import RowInspection
from .session import Ended, LockSession
from .sessions import ABANDONED, GLANCE, MOMENT

__all__ = ["RowBackend"]

MOST_KNOWN = 10_000  # names remembered whose row has been made
MOST_REFUSED = 1000  # claims remembered that left nothing to withdraw
SPARE = 0.1  # seconds that a server may take to end a session
LONG = 60.0  # seconds; a lock held for longer tells at its end that its name was used

reaper = Worker("distlock-row", close_connections, drained=False)
"""Where sessions of waiters that have gone are withdrawn."""


class RowBackend(RowInspection):
    """Rows locked by ``SELECT ... FOR UPDATE``, on PostgreSQL, MariaDB and MySQL.

    LOCATION is an alias of DATABASES, by default ``"default"``. OPTIONS: ``COMMAND_TIMEOUT``, the
    seconds (5) after which a statement without an answer counts as failed; ``CONNECTIONS``, how
    many connections (50) a process may have for locks that it holds or waits for; ``IDLE``, how
    many of them (4) it keeps when they are not in use.
    """

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        self._known: set[str] = set()
        self._refused: set[str] = set()

    # -- primitives ------------------------------------------------------------------------------

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        """Attempt once, and with a ``limit`` above 0 leave a session in the server's queue."""
        answered = min(self.command_timeout, max(limit, MIN_ATTEMPT_TIMEOUT))
        dialect = self.dialect(answered)
        self._reap()
        session = self._session_of(claim)
        if session is None:
            session = self._pool.take()
            session.owner, session.key = claim.owner, claim.key
            with self._mutex:
                self._refused.discard(claim.owner)
                self._sessions[claim.owner] = session
        with session.mutex:
            if session.owner != claim.owner:
                return Refusal()  # withdrawn meanwhile
            try:
                if session.token is not None:
                    session.run(lambda: dialect.renew(session, claim), answered)
                    self._lasts(session, claim)
                    return Grant(session.token, claim.ttl)
                return self._attempt(dialect, session, claim, wait=limit > 0, limit=answered)
            except BaseException as error:
                held = session.token is not None
                self._drop(session, sound=False)
                if not isinstance(error, Ended) or not held:
                    raise
        return self.try_acquire(claim, limit)  # the lock went with its session: ask again

    def _attempt(
        self, dialect: RowDialect, session: LockSession, claim: Claim, *, wait: bool, limit: float
    ) -> Grant | Refusal:
        now, before = clock.now(), session.looked
        session.looked, session.until = now, now + ABANDONED
        if session.sent:
            # Who pauses in between is woken by the answer; who asks again at once may be faster
            # than the server's message that it is his turn.
            glance = GLANCE if now - before < GLANCE and wait else 0.0
            if not session.is_answered(glance):
                return Refusal()
            token = session.run(lambda: dialect.waited(session, claim, session.receive()), limit)
            if token is not None:
                session.token = token
                return Grant(token, self._left(dialect, session, claim, now, limit))
            self._known.discard(claim.key)  # the row was removed while we waited for it
            _roll_back(session, limit)
        session.token = self._lock_now(dialect, session, claim, limit)
        if session.token is not None:
            self._lasts(session, claim)
            return Grant(session.token, claim.ttl)
        if wait and session.can_send():
            session.run(lambda: dialect.send_wait(session, claim), limit)
            return Refusal()
        _roll_back(session, limit)
        self._drop(session, sound=True)
        with self._mutex:
            if len(self._refused) >= MOST_REFUSED:
                self._refused.clear()  # forgetting costs a question when they are withdrawn
            self._refused.add(claim.owner)
        return Refusal()

    def _left(
        self, dialect: RowDialect, session: LockSession, claim: Claim, now: float, limit: float
    ) -> float:
        """Return what is left of a lease that the server granted at some time since it was asked.

        Its limit runs from then on. So the lease is counted from the question, if that was a moment
        ago, or else from now, when the server is told to begin again.
        """
        passed = now - session.sent_at
        if passed > claim.ttl * MOMENT:
            session.run(lambda: dialect.renew(session, claim), limit)
            passed = 0.0
        self._lasts(session, claim)
        return claim.ttl - passed

    def _lock_now(
        self, dialect: RowDialect, session: LockSession, claim: Claim, limit: float
    ) -> int | None:
        """Lock the row if it is free, having made it if need be; return the token."""
        for _ in range(3):
            if claim.key not in self._known:
                session.run(lambda: dialect.make(session, claim), limit, fresh=True)
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                self._known.add(claim.key)
            try:
                return session.run(lambda: dialect.attempt(session, claim), limit, fresh=True)
            except Missing:
                self._known.discard(claim.key)
                _roll_back(session, limit)
        raise errors.Outrun("the row of the lock was removed each time that it was made")

    def _lasts(self, session: LockSession, claim: Claim) -> None:
        """Note until when the server keeps the session unless it is renewed."""
        session.until = clock.now() + self.max_ttl(claim.ttl) + SPARE

    def _reap(self) -> None:
        """Give up sessions that will not be asked for again.

        Those that the server has ended by now, of leases that were not released, and those of
        waiters that have stopped to ask without being withdrawn.
        """
        now = clock.now()
        with self._mutex:
            over = [session for session in self._sessions.values() if session.is_over(now)]
        for session in over:
            if session.sent:
                # The server is asked for that, which whoever takes a lock now is not to wait for.
                reaper.submit(partial(self._give_up, session))
            else:
                self._give_up(session)

    def _give_up(self, session: LockSession) -> None:
        if not session.mutex.acquire(blocking=False):
            return
        try:
            if not session.owner or not session.is_over(clock.now()):
                return
            if session.sent:
                self._withdraw(self.dialect(), session)
            else:
                self._drop(session, sound=False)
        finally:
            session.mutex.release()

    def _drop(self, session: LockSession, *, sound: bool) -> None:
        """Part a session from its claim; called under its mutex."""
        with self._mutex:
            self._sessions.pop(session.owner, None)
        self._pool.give_back(session, sound=sound)

    def renew(self, claim: Claim) -> bool:
        dialect = self.dialect()
        session = self._session_of(claim)
        if session is None:
            return False
        with session.mutex:
            if session.owner != claim.owner or session.token is None:
                return False
            try:
                session.run(lambda: dialect.renew(session, claim), self.command_timeout)
                self._lasts(session, claim)
            except Ended:
                self._drop(session, sound=False)
                return False
            except BaseException:
                if session.connection.connection is None:
                    self._drop(session, sound=False)
                raise
            return True

    def release(self, claim: Claim) -> bool:
        """Commit; a waiter leaves the queue, and a session of another process is ended."""
        dialect = self.dialect()
        session = self._session_of(claim)
        if session is None:
            with self._mutex:
                nothing = claim.owner in self._refused or claim.owner in self._parents
                self._refused.discard(claim.owner)
            return not nothing and self._end(dialect, claim)
        with session.mutex:
            if session.owner != claim.owner:
                return False
            if session.token is None:
                self._withdraw(dialect, session)
                return False
            long = abs(time.time() - session.token / 1_000_000) > LONG
            lost = session.is_over(clock.now())
            try:
                session.run(
                    lambda: dialect.release(session, claim, long=long), self.command_timeout
                )
            except Ended as error:
                # If only the answer is missing, the lock was held until now, and is free by now.
                self._drop(session, sound=False)
                return not (lost or error.reported)
            except BaseException:
                self._drop(session, sound=False)
                raise
            self._drop(session, sound=True)
            return True

    def _withdraw(self, dialect: RowDialect, session: LockSession) -> None:
        """Have the server end a wait, and see that it has."""
        try:
            if session.sent and not session.is_answered():
                self._cancel(session, dialect.cancel)
            if session.sent:
                with contextlib.suppress(DatabaseError):
                    session.run(session.receive, self.command_timeout)
            session.run(lambda: session.execute(["ROLLBACK"], {}), self.command_timeout)
        except Ended:
            return
        finally:
            # A cancellation that comes late must not hit whoever has the session next.
            self._drop(session, sound=False)

    def _end(self, dialect: RowDialect, claim: Claim) -> bool:
        """End the session by which another process holds the lock, and wait until it is free."""
        if not self._end_other(lambda session: dialect.end(session, claim.key, claim.owner)):
            return False
        end = clock.now() + self.command_timeout
        while clock.now() < end:
            row = self._look(lambda session: dialect.holder(session, claim.key))
            if row is None or row[2] != claim.owner:
                return True
            time.sleep(0.01)
        raise errors.Overdue("the session was told to end, and has not")

    # -- its end ----

    def close_idle(self) -> None:
        """End the sessions that hold nothing and wait for nothing."""
        self._reap()
        self._pool.close()

    def close(self) -> None:
        """End all sessions, and with them the locks."""
        super().close()
        with self._mutex:
            sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            session.close()
        self._pool.close()

    def forget_parent(self) -> None:
        super().forget_parent()
        sessions, self._sessions = self._sessions, {}
        self._mutex = Mutex()
        self._parents |= frozenset(sessions)
        self._pool.forget_parent(list(sessions.values()))


def _roll_back(session: LockSession, limit: float) -> None:
    """End a transaction that holds nothing, unless the server has, as it does after the ttl."""
    with contextlib.suppress(Ended):
        session.run(lambda: session.execute(["ROLLBACK"], {}), limit)
