"""Advisory locks: the lock that the database server itself has, which waits for no disk.

``pg_advisory_lock`` on PostgreSQL, ``GET_LOCK`` on MariaDB and MySQL. Such a lock belongs to a
session. As long as nobody waits, the locks of a process share a few sessions, one for each ttl; who
waits does so on a session of its own, which has the lock when it is granted. A session that is
silent for its ttl is ended by the server, and with it go its locks: that is the lease.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, TypeVar

from django.db.utils import Error

from ...conf import AliasConf
from ...core.flow import MIN_ATTEMPT_TIMEOUT
from ...core.threads import Mutex, is_mine
from ...core.values import Claim, Grant, Refusal
from ...core.worker import Worker, close_connections
from ...exceptions import UnsupportedOperationError
from ..row import pausing
from ..row.pool import IDLE, Exhausted
from ..row.session import Ended, Row
from ..table.connection import is_testing
from ..table.errors import Overdue
from .dialect import FORCE
from .inspect import Looks
from .session import AdvisorySession, Held

__all__ = ["AdvisoryBackend"]

T = TypeVar("T")

logger = logging.getLogger("django_distlock.advisory")

SHARED = 3  # sessions that the locks of a process share, so that they may have as many ttls
TICK = 0.5  # seconds between two questions whether another process wants a lock released
SOON = 0.03  # seconds after which a grant is written for others to see
ABANDONED = 4.0  # seconds without a look after which a claim waits no more
GLANCE = 0.2  # seconds that an answer is waited for by one who has only just looked
SLICE = 0.25  # seconds that an answer is waited for at first, with the session kept
MOMENT = 0.02  # of the ttl: by which the lease of one who has waited may be shorter
ANSWERS = 3.0  # seconds after which a holder's process is taken to be hung by a forced release


class AdvisoryBackend(Looks):
    """Advisory locks of sessions, on PostgreSQL, MariaDB and MySQL.

    LOCATION is an alias of DATABASES, by default ``"default"``. OPTIONS: ``COMMAND_TIMEOUT``, the
    seconds (5) after which a statement without an answer counts as failed; ``CONNECTIONS``, how
    many connections (20) a process may have to wait for locks, besides those that are shared:
    beyond it a waiter asks again and again; ``IDLE``, how many of them (4) it keeps when they are
    not in use.
    """

    queues = fair = notifies = True
    transferable = False
    # Whoever does not wait at all asks once and waits for the answer only.
    min_attempt_timeout = 0.0
    # A waiter is woken by the server; its looks in between ask this process only.
    poll = (0.5, 1.0)
    # What fits in the milliseconds of PostgreSQL's limit.
    longest_ttl: ClassVar[float] = 2_147_483.0

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        self._worker = Worker(f"distlock-advisory-{alias}", close_connections)
        self._parents: frozenset[str] = frozenset()
        self._reset()

    def _reset(self) -> None:
        self._mutex = Mutex()
        self._shared: list[AdvisorySession] = []
        self._sessions: dict[str, AdvisorySession] = {}
        """Where a claim holds its lock or waits for it, by the claim's owner."""
        self._job, self._due = 0, math.inf
        self._ticked = 0.0

    # -- primitives ------------------------------------------------------------------------------

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        """Attempt once, and with a ``limit`` above 0 leave a session in the server's queue."""
        answered = min(self.command_timeout, max(limit, MIN_ATTEMPT_TIMEOUT))
        session = self._of(claim)
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
        if lock in session.held:
            return Refusal()  # to the server, it would be the same session that asks
        try:
            row = session.ask(
                partial(dialect.send_try, session, lock, claim.key),
                limit,
                late=lambda row: self._undo(session, lock),
            )
            token = dialect.token(session, lock, claim.key, row)
        except (Ended, Overdue):
            raise
        except Error:
            # The lock may be there, and the token not: on a replica that is read-only, say.
            if session.connection.connection is not None:
                self._undo(session, lock)
            raise
        if token is None:
            return Refusal()
        self._granted(session, lock, claim, token)
        return Grant(token, claim.ttl)

    def _undo(self, session: AdvisorySession, lock: str) -> None:
        """Free a lock that may have been granted after its claim had given up."""
        if lock not in session.held:
            self.dialect.send_unlock(session, lock)
            session.receive()

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

    def _granted(self, session: AdvisorySession, lock: str, claim: Claim, token: int) -> None:
        held = Held(claim, token)
        session.held[lock] = held
        with self._mutex:
            self._sessions[claim.owner] = session
        self._holders.add(held, lock, session.number)
        self._maintain_in(SOON)

    # -- waiting -----------------------------------------------------------------------------------

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
                session.looked = time.monotonic()
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
                session.run(partial(self.dialect.send_wait, session, lock, claim.key), limit)
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
            return None  # its place in the queue is gone: it asks once more

    def _answer(
        self, session: AdvisorySession, claim: Claim, wait: bool, limit: float, left: float
    ) -> Grant | Refusal | None:
        if self._of(claim) is not session:
            return None
        lock = self.dialect.lock_of(session, claim.key)
        held = session.held.get(lock)
        if held is not None and held.claim.owner == claim.owner:
            return Grant(held.token, claim.ttl) if self._keep(session, [claim], limit) else None
        now, before = time.monotonic(), session.looked
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
            passed = time.monotonic() - session.sent_at
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
        return self.renew_many([claim])[0]

    def renew_many(self, claims: Sequence[Claim]) -> list[bool]:
        """Renew in one statement for each session, of which most have one."""
        by_session: dict[int, tuple[AdvisorySession, list[Claim]]] = {}
        for claim in claims:
            session = self._of(claim)
            if session is None:
                self._not_elsewhere(claim)
            else:
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
        """Start the ttls anew; return the owners whose locks the session holds."""
        held = {each.claim.owner: each for each in session.held.values()}
        kept = [claim for claim in claims if claim.owner in held]
        if not kept:
            return set()
        need = max(self.dialect.limit_of(claim.ttl) for claim in kept)
        if need > session.idle:
            session.limit = need
            session.settle(limit)
            session.run(lambda: self.dialect.set_limit(session), limit)
        self._look_for_forced(session, limit)
        now = time.monotonic()
        for claim in kept:
            held[claim.owner].until = now + claim.ttl
        self._maintain_in(min(TICK, *(claim.ttl for claim in kept)))
        return {claim.owner for claim in kept if self._of(claim) is session}

    def _not_elsewhere(self, claim: Claim) -> None:
        """Raise if another process holds the lock for this very claim: it cannot be renewed here.

        Asked only when there is no session for it, so when the lease is lost, or was handed over.
        """
        if claim.owner in self._parents:
            return
        row = self._holder(claim.key)
        if row and row[2] == claim.owner and self._of(claim) is None:
            raise UnsupportedOperationError(
                "An advisory lock is of a session of the process that took it, and cannot be "
                "handed to another one: release it there, or use the table backend",
                name=claim.name,
                alias=self.alias,
            )

    def release(self, claim: Claim) -> bool:
        if not claim.owner:
            raise UnsupportedOperationError(
                "The lock is held by a session that is none of this backend's, or whose process "
                "has not written what it holds: end it by the server's own means",
                name=claim.name,
                alias=self.alias,
            )
        session = self._of(claim)
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
        if self._of(claim) is not session:
            return False
        lock = self.dialect.lock_of(session, claim.key)
        held = session.held.get(lock)
        if held is None or held.claim.owner != claim.owner:
            self._withdraw(session)
            return False
        return self._free(session, lock, limit)

    def withdraw(self, claim: Claim) -> bool:
        return self._of(claim) is not None and self.release(claim)

    def _free(self, session: AdvisorySession, lock: str, limit: float) -> bool:
        """Free a lock of a session's; return whether it was held until now."""
        session.settle(limit)
        freed = session.freed.pop(lock, None)
        if freed is None:
            row = session.ask(
                partial(self.dialect.send_unlock, session, lock),
                limit,
                late=lambda row: session.freed.__setitem__(lock, self.dialect.freed(row)),
            )
            freed = self.dialect.freed(row)
        self._forget(session, lock)
        if not session.held:
            session.empty_since = time.monotonic()
            if session.owner:
                self._drop(session, sound=True)
            elif is_testing():
                # Django's test runner drops the test database: nothing may be connected then.
                session.close()
        return freed

    def _withdraw(self, session: AdvisorySession) -> None:
        """Have the server end a wait; whatever it answers, the session is closed."""
        try:
            if session.sent and not session.is_answered():
                other = self._pool.take(counted=False)
                try:
                    with other.mutex:
                        self.dialect.cancel(session, other, self.command_timeout)
                finally:
                    self._pool.give_back(other, counted=False)
        finally:
            # A cancellation that comes late must not hit whoever has the session next.
            self._drop(session, sound=False)

    # -- sessions ----------------------------------------------------------------------------------

    def _of(self, claim: Claim) -> AdvisorySession | None:
        return self._sessions.get(claim.owner)

    def _with(self, session: AdvisorySession, limit: float, work: Callable[[float, float], T]) -> T:
        """Do ``work`` under the session's mutex, within ``limit`` seconds.

        It is given how long it may wait for an answer, and how long in all. A server that does not
        answer is waited for in slices, between which others of this process have their turn.
        """
        if is_mine(session.mutex):
            raise Overdue("a signal handler asks while its thread asks by the same session")
        end, slice_ = time.monotonic() + limit, SLICE
        while True:
            with session.mutex:
                left = end - time.monotonic()
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

    def _forget(self, session: AdvisorySession, lock: str) -> None:
        held = session.held.pop(lock)
        with self._mutex:
            self._sessions.pop(held.claim.owner, None)
        self._holders.remove(held.token)

    def _lose(self, session: AdvisorySession) -> None:
        """Close a session, and note that its locks are lost. Called under its mutex."""
        lost = list(session.held)
        for lock in lost:
            self._forget(session, lock)
        session.freed.clear()
        session.empty_since = time.monotonic()
        if session.owner:
            self._drop(session, sound=False)
        else:
            session.close()
        if lost:
            self._tell_losses()

    def _tell_losses(self) -> None:
        # Not under a session's mutex: the holds have their own.
        self._worker.submit(self.notice_losses)

    def _drop(self, session: AdvisorySession, *, sound: bool) -> None:
        """Part a session of a waiter's from its claim; called under its mutex."""
        with self._mutex:
            self._sessions.pop(session.owner, None)
        # The server would end it when it has been silent for its limit.
        seconds = min(IDLE, session.limit * self.dialect.unit / 2)
        self._pool.give_back(session, sound=sound, seconds=seconds)

    # -- forced releases ---------------------------------------------------------------------------

    def _force_out(self, claim: Claim) -> bool:
        """Have the process that holds the lock release it; end its session if it does not."""
        dialect = self.dialect
        given = {"digest": claim.key, "owner": claim.owner}
        self._holders.write(dialect)  # what this process has released is gone

        def holds() -> Row | None:
            row = self._look(lambda session: dialect.holder(session, claim.key))
            return row if row is not None and row[2] == claim.owner else None

        row = holds()
        if row is None or not self._look(lambda session: session.change(FORCE, given)):
            return False
        end = time.monotonic() + ANSWERS
        ended = False
        while holds() is not None:
            if time.monotonic() > end:
                if ended:
                    raise Overdue("the session was told to end, and has not")
                ended, end = True, time.monotonic() + self.command_timeout
                self._look(partial(dialect.end, number=int(row[5])))
            time.sleep(0.01)
        return True

    def _look_for_forced(self, session: AdvisorySession, limit: float) -> None:
        """Release what another process wants released; this also keeps the session."""
        row = session.ask(partial(self.dialect.send_look, session), limit)
        owners = set(self.dialect.forced(row))
        forced = [lock for lock, held in session.held.items() if held.claim.owner in owners]
        for lock in forced:
            self._free(session, lock, limit)
        if forced:
            self._tell_losses()

    # -- in the background -------------------------------------------------------------------------

    def _maintain_in(self, seconds: float) -> None:
        """Have `_maintain` run in so many seconds, or before."""
        due = time.monotonic() + seconds
        if due < self._due - SOON:
            with self._mutex:
                self._due = due
                self._job += 1
                self._worker.submit(partial(self._maintain, self._job), seconds)

    def _maintain(self, job: int) -> None:
        """Write what others are to see, free what has run out, and ask what is forced."""
        if job != self._job:
            return  # another one is due before
        self._due = math.inf
        try:
            self._holders.write(self.dialect, SOON)
        except self.store_errors:
            # It is kept for the next time, and whoever uses a lock is told of the database.
            logger.debug("The holders of %r were not written", self.alias, exc_info=True)
        now = time.monotonic()
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
        expired = [lock for lock, held in session.held.items() if held.until <= now]
        for lock in expired:
            self._free(session, lock, SLICE)
        if expired:
            self._tell_losses()
        if session.held and ticks and self._holders.is_written():
            self._look_for_forced(session, SLICE)
        if session.held:
            return min(TICK, *(held.until - now for held in session.held.values()))
        if session.owner and session.until <= now:
            self._withdraw(session)
        elif not session.owner:
            idle = min(IDLE, session.limit * self.dialect.unit / 2)
            if session.is_empty(now, idle):
                self._end_shared(session)
        return TICK

    def _end_shared(self, session: AdvisorySession) -> None:
        with self._mutex:
            if session.held or session not in self._shared:
                return
            self._shared.remove(session)
        self._pool.give_back(session, counted=False, sound=False)

    # -- for the layers above ----------------------------------------------------------------------

    def sure_until(self, claim: Claim, *, foreseen: bool = False) -> float | None:
        """Return that a lease is lost when its session is gone, or it was forced."""
        return None if claim.owner in self._sessions else -math.inf

    def is_queued(self, claim: Claim) -> bool:
        """Return whether a claim that was refused stands in the server's queue."""
        return claim.owner in self._sessions

    def pause(self, claim: Claim, seconds: float) -> None:
        """Return when the server has answered the waiting statement."""
        pausing.pause(self._watched(claim), seconds)

    async def apause(self, claim: Claim, seconds: float) -> None:
        """Pause on the event loop, which watches the socket; it occupies no thread."""
        await pausing.apause(self._watched(claim), seconds)

    def _watched(self, claim: Claim) -> int | None:
        session = self._of(claim)
        return None if session is None else session.watched()

    # -- its end -----------------------------------------------------------------------------------

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
        self._reset()
        self._holders.forget_parent()
        self._pool.forget_parent(sessions)
