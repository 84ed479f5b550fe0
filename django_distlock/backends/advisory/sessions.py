"""The sessions of a process: on which one a lock is, what is due for them, and their end."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from django.db.utils import Error

from ...conf import AliasConf
from ...core import clock
from ...core.threads import Mutex, is_mine
from ...core.values import Claim
from ...core.worker import Worker, close_connections
from ..row.session import Ended
from ..row.sessions import IDLE
from ..table.connection import is_testing
from ..table.errors import Overdue
from .inspect import AdvisoryInspection
from .session import AdvisorySession, Held

__all__ = ["SHARED", "TICK", "AdvisorySessions"]

T = TypeVar("T")

logger = logging.getLogger("django_distlock.advisory")

SHARED = 3  # sessions that the locks of a process share, so that they may have as many ttls
TICK = 0.5  # seconds between two questions whether another process wants a lock released
SOON = 0.03  # seconds after which a grant is written for others to see
SLICE = 0.25  # seconds that an answer is waited for at first, with the session kept


class AdvisorySessions(AdvisoryInspection):
    """The half of the backend that keeps the sessions, and what each of them holds."""

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        self._worker = Worker(f"distlock-advisory-{alias}", close_connections)
        # What it writes may wait for the server's disk: no lease ends late for that.
        self._writer = Worker(f"distlock-advisory-rows-{alias}", close_connections)
        self._reset()

    def _reset(self) -> None:
        self._shared: list[AdvisorySession] = []
        self._job, self._due = 0, math.inf
        self._ticked = 0.0

    # -- on which session --------------------------------------------------------------------------

    def _share(self, need: int) -> AdvisorySession:
        """Return the shared session for leases of so long, or what is next to it."""
        with self._mutex:
            # Not one in the middle of whose use a signal handler asks.
            shared = [each for each in self._shared if not is_mine(each.mutex)]
            for session in shared:
                if session.limit == need:
                    return session
            if len(shared) < SHARED:
                session = self._pool.take(counted=False)
                session.limit = need
                self._shared.append(session)
                return session
            fitting = [each for each in shared if not each.held]
            fitting = fitting or [each for each in shared if each.limit > need] or shared
            return min(fitting, key=lambda each: abs(each.limit - need))

    def _ready(self, session: AdvisorySession, need: int, limit: float) -> None:
        """Make a session one that may have a lease of so long. Called under its mutex."""
        if session.connection.connection is None or session.direct is None:
            session.run(lambda: self._begin(session), limit, fresh=True)
        # A longer limit is right for shorter leases, too: they are freed by this process.
        session.limit = max(need, session.limit) if session.held else need
        if session.limit != session.idle:
            session.settle(limit)
            session.run(lambda: self.dialect.set_limit(session), limit)

    def _begin(self, session: AdvisorySession) -> None:
        self.dialect.begin(session)
        self._holders.begun(session.number)

    def _with(self, session: AdvisorySession, limit: float, work: Callable[[float, float], T]) -> T:
        """Do ``work`` under the session's mutex, within ``limit`` seconds.

        It is given how long it may wait for an answer, and how long in all. A server that does not
        answer is waited for in slices, between which others of this process have their turn.
        """
        if is_mine(session.mutex):
            raise Overdue("a signal handler asks while its thread asks by the same session")
        end, slice_ = clock.now() + limit, SLICE
        while True:
            with session.mutex:
                left = end - clock.now()
                if left <= 0:
                    raise Overdue(f"no answer within {limit:g} s")
                try:
                    return self._guarded(
                        session,
                        lambda: work(min(slice_, left), left),  # noqa: B023 - called at once
                    )
                except Overdue:
                    if left <= slice_ or session.connection.connection is None:
                        raise
            slice_ *= 2

    def _guarded(self, session: AdvisorySession, work: Callable[[], T]) -> T:
        """Do ``work`` under the session's mutex; note the loss of its locks if it is gone."""
        try:
            return work()
        except Error as error:
            if isinstance(error, Ended) or session.connection.connection is None:
                self._lose(session)
            raise
        except BaseException:
            # Interrupted in the middle, say: what the next answer is to is not known.
            self._lose(session)
            raise

    # -- what they hold ----------------------------------------------------------------------------

    def _granted(self, session: AdvisorySession, lock: str, claim: Claim, token: int) -> None:
        held = Held(claim, lock, token)
        session.add(held)
        with self._mutex:
            self._sessions[claim.owner] = session
        self._holders.add(held, session.number)
        self._maintain_in(SOON)

    def _free(
        self, session: AdvisorySession, owner: str, limit: float, *, lost: bool = False
    ) -> bool:
        """Free a lock of a session's, which is ``lost`` if it has run out or is forced.

        Returns whether it was its holder's until now.
        """
        session.settle(limit)
        freed = session.freed.pop(owner, None)
        if freed is None:
            freed = self._send_free(session, session.held[owner], limit, lost=lost)
        self._forget(session, owner)
        if not session.held:
            session.empty_since = clock.now()
            if session.owner:
                self._drop(session, sound=True)
            elif is_testing():
                # Django's test runner drops the test database: nothing may be connected then.
                session.close()
        return freed

    def _send_free(self, session: AdvisorySession, held: Held, limit: float, *, lost: bool) -> bool:
        if len(session.owners[held.lock]) > 1:
            # The server's share is the others' still; whether it was ours is asked of the server.
            session.ask(partial(self.dialect.send_look, session), limit)
            return True
        owner, shared = held.claim.owner, held.claim.shared
        row = session.ask(
            partial(self.dialect.send_unlock, session, held.lock, shared=shared),
            limit,
            late=lambda row: session.freed.__setitem__(owner, self.dialect.freed(row) and not lost),
        )
        return self.dialect.freed(row)

    def _forget(self, session: AdvisorySession, owner: str, *, lost: bool = False) -> None:
        with self._mutex:
            self._sessions.pop(owner, None)
        self._holders.remove(session.held[owner].token, lost=lost)
        session.remove(owner)  # last: until then `_lose`, after an interruption, finds it

    def _lose(self, session: AdvisorySession) -> None:
        """Close a session, and note that its locks are lost. Called under its mutex."""
        lost = list(session.held)
        for owner in lost:
            self._forget(session, owner, lost=True)
        session.owners.clear()  # an interruption may have come after the first half of `remove`
        session.freed.clear()
        session.empty_since = clock.now()
        if session.owner:
            self._drop(session, sound=False)
        else:
            session.close()
        if lost:
            self._tell_losses()

    def _tell_losses(self) -> None:
        # Not under a session's mutex: the holds have their own.
        self._worker.submit(self.notice_losses)

    def _withdraw(self, session: AdvisorySession) -> None:
        """Have the server end a wait; whatever it answers, the session is closed."""
        try:
            if session.sent and not session.is_answered():
                # Until then what others free may be handed to it.
                self._cancel(session, self.dialect.cancel)
        finally:
            # A cancellation that comes late must not hit whoever has the session next.
            self._drop(session, sound=False)

    def _drop(self, session: AdvisorySession, *, sound: bool) -> None:
        """Part a session of a waiter's from its claim; called under its mutex."""
        with self._mutex:
            self._sessions.pop(session.owner, None)
        self._pool.give_back(session, sound=sound, seconds=self._kept_for(session))

    def _kept_for(self, session: AdvisorySession) -> float:
        """Return for how long an empty session is kept: the server ends it after its limit."""
        return min(IDLE, session.limit * self.dialect.unit / 2)

    def _look_for_forced(self, session: AdvisorySession, limit: float) -> None:
        """Release what another process wants released; this also keeps the session."""
        row = session.ask(partial(self.dialect.send_look, session), limit)
        owners = set(self.dialect.forced(row))
        forced = [owner for owner in session.held if owner in owners]
        for owner in forced:
            self._free(session, owner, limit, lost=True)
        if forced:
            self._tell_losses()

    # -- in the background -------------------------------------------------------------------------

    def _maintain_in(self, seconds: float) -> None:
        """Have `_maintain` run in so many seconds, or before."""
        due = clock.now() + seconds
        if due < self._due - SOON:
            with self._mutex:
                self._due = due
                self._job += 1
                self._worker.submit(partial(self._maintain, self._job), seconds)

    def _maintain(self, job: int) -> None:
        """Free what has run out, ask what is forced, and have written what others are to see."""
        if job != self._job:
            return  # another one is due before
        self._due = math.inf
        if self._holders.is_due() and self._writer.is_idle():
            self._writer.submit(self._write_holders)
        now = clock.now()
        ticks = now - self._ticked >= TICK * 0.9
        if ticks:
            self._ticked = now
        with self._mutex:
            sessions = {id(each): each for each in (*self._shared, *self._sessions.values())}
        due = [self._maintain_session(session, now, ticks=ticks) for session in sessions.values()]
        if self._holders.is_due():
            due.append(SOON)
        if due:
            self._maintain_in(max(SOON, min(due)))

    def _write_holders(self) -> None:
        try:
            self._holders.write(self.dialect, SOON)
        except self.store_errors:
            # It is kept for the next time, and whoever uses a lock is told of the database.
            logger.debug("The holders of %r were not written", self.alias, exc_info=True)

    def _maintain_session(self, session: AdvisorySession, now: float, *, ticks: bool) -> float:
        """Do what is due for a session; return in how many seconds there is something again."""
        if not session.mutex.acquire(blocking=False):
            return SOON  # it is in use
        try:
            return self._guarded(session, lambda: self._do_what_is_due(session, now, ticks=ticks))
        except self.store_errors:
            logger.debug("Looking after locks of %r failed", self.alias, exc_info=True)
            return TICK
        finally:
            session.mutex.release()

    def _do_what_is_due(self, session: AdvisorySession, now: float, *, ticks: bool) -> float:
        expired = [owner for owner, held in session.held.items() if held.until <= now]
        for owner in expired:
            self._free(session, owner, SLICE, lost=True)
        if expired:
            self._tell_losses()
        if session.held and ticks and self._holders.is_written():
            self._look_for_forced(session, SLICE)
        if session.held:
            return min(TICK, *(held.until - now for held in session.held.values()))
        if session.owner and session.until <= now:
            self._withdraw(session)
        elif not session.owner and now - session.empty_since >= self._kept_for(session):
            self._end_shared(session)
        return TICK

    def _end_shared(self, session: AdvisorySession) -> None:
        with self._mutex:
            if session.held or session not in self._shared:
                return
            self._shared.remove(session)
        self._pool.give_back(session, counted=False, sound=False)

    # -- their end ---------------------------------------------------------------------------------

    def close_idle(self) -> None:
        """End the sessions that hold nothing and wait for nothing."""
        with self._mutex:
            shared = [session for session in self._shared if not session.held]
        for session in shared:
            with session.mutex:
                self._end_shared(session)
        self._pool.close()

    def close(self) -> None:
        """End all sessions, and with them the locks."""
        super().close()
        self._worker.close()
        self._writer.close()
        with self._mutex:
            sessions = {*self._shared, *self._sessions.values()}
            self._shared, self._sessions = [], {}
        for session in sessions:
            session.close()
        self._pool.close()

    def forget_parent(self) -> None:
        super().forget_parent()
        sessions = list({*self._shared, *self._sessions.values()})
        self._parents |= frozenset(self._sessions)
        self._mutex, self._sessions = Mutex(), {}
        self._reset()
        self._holders.forget_parent()
        self._pool.forget_parent(sessions)
