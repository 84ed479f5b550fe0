"""What row locks and advisory locks share: each lock belongs to a session of this process.

The sessions are pooled: so many may hold or wait, and some are kept for the next claim.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import select
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Generic, TypeVar

from django.core.checks import CheckMessage
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import DatabaseError, OperationalError

from ...conf import AliasConf
from ...core import clock
from ...core.descriptors import descriptor_of, mute
from ...core.fork import park
from ...core.threads import Mutex
from ...core.values import Claim
from ...transactions import own_connection
from ..table import errors
from ..table.checks import check_deploy
from ..table.connection import is_testing
from ..table.kept import Kept
from ..table.located import InDatabase
from . import checks
from .session import LockSession

__all__ = ["ABANDONED", "GLANCE", "MOMENT", "MOST", "Exhausted", "InSessions", "SessionPool"]

S = TypeVar("S", bound=LockSession)
T = TypeVar("T")

MOST = 10_000  # connections that an option may ask for
GLANCE = 0.2  # seconds for which a claim that has just asked waits for an answer
ABANDONED = 4.0  # seconds without an attempt after which a claim no longer waits
NAP = 0.05  # seconds between two checks where the server cannot be waited for
CANCELLED = 0.05  # seconds in which a wait that is cancelled ends, if it had begun
MOMENT = 0.02  # of the ttl: by which the lease of a claim that has waited may be shorter
IDLE = 60.0  # seconds that an unused session is kept


class Exhausted(OperationalError):
    """All sessions that this process may have are holding or waiting."""


class SessionPool(Generic[S]):
    """Sessions to a DATABASES alias: ``most`` at a time that hold or wait, ``idle`` kept."""

    def __init__(
        self, database: str, most: int, idle: int, make: Callable[[BaseDatabaseWrapper], S]
    ) -> None:
        self.database = database
        self.most = most
        self._make = make
        self._mutex = Mutex()
        self._out = 0
        self._idle: Kept[S] = Kept(idle, LockSession.close)

    def take(self, *, counted: bool = True) -> S:
        """Return a session for a lease, or one that is not ``counted``, for a moment."""
        with self._mutex:
            if counted:
                if self._out >= self.most:
                    raise Exhausted(
                        f"all {self.most} sessions that this process may have for locks on "
                        f"{self.database!r} hold one or wait for one"
                    )
                self._out += 1
        try:
            return self._idle.take() or self._make(self._connection())
        except BaseException:
            if counted:
                self._forget()
            raise

    def _connection(self) -> BaseDatabaseWrapper:
        private = own_connection(self.database).copy()
        private.inc_thread_sharing()
        options = private.settings_dict["OPTIONS"]
        # Not from the user's pool, which would run dry. Several statements go in one round trip,
        # which binding on the server cannot do.
        options.pop("pool", None)
        options.pop("server_side_binding", None)
        # How many are kept is an option of the backend's; CONN_MAX_AGE is for the program's own.
        private.settings_dict.update(AUTOCOMMIT=True, CONN_MAX_AGE=None)
        return private

    def _forget(self) -> None:
        with self._mutex:
            self._out -= 1

    def give_back(
        self, session: S, *, counted: bool = True, sound: bool = True, seconds: float | None = None
    ) -> None:
        """Keep the session for the next who needs one, so long or a minute, or end it."""
        seconds = IDLE if seconds is None else seconds
        if counted:
            self._forget()
        session.owner, session.key, session.token, session.until = "", "", None, math.inf
        connection = session.connection
        # Django's test runner drops the test database: nothing of ours may be connected then.
        keep = sound and not is_testing() and not connection.errors_occurred
        if not (keep and connection.connection is not None and self._idle.give(session, seconds)):
            session.close()

    def close(self) -> None:
        """End the idle ones."""
        self._idle.clear()

    def forget_parent(self, held: Sequence[LockSession]) -> None:
        """Leave, in a forked child, the parent's sessions alone, the ``held`` ones too."""
        self._mutex = Mutex()
        inherited: list[LockSession] = [*self._idle.forget_parent(), *held]
        for session in inherited:
            mute(descriptor_of(session.connection.connection))
            park(session)
        self._out = 0


class InSessions(InDatabase, Generic[S]):
    """Locks of sessions, in whose queue at the server the waiters are."""

    queues = fair = notifies = True
    transferable = False
    # A claim that does not wait at all asks once and waits for the answer only.
    min_attempt_timeout = 0.0
    # A waiter is woken by the server; its attempts in between ask this process only.
    poll = (0.5, 1.0)
    # What fits in the milliseconds of PostgreSQL's limit.
    longest_ttl: ClassVar[float] = 2_147_483.0
    reason: ClassVar[str]
    """Why another process's session is ended, for the error that it may not be."""

    _pool: SessionPool[S]

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        self._mutex = Mutex()
        self._sessions: dict[str, S] = {}
        """Where a claim holds its lock or waits for it, by the claim's owner."""
        self._parents: frozenset[str] = frozenset()

    def _session_of(self, claim: Claim) -> S | None:
        return self._sessions.get(claim.owner)

    def _look(self, work: Callable[[S], T], limit: float | None = None) -> T:
        """Do something in autocommit, on a session that holds nothing."""
        limit = limit or self.command_timeout
        session = self._pool.take(counted=False)
        sound = False
        try:
            with session.mutex:
                answer = session.run(lambda: work(session), limit, fresh=True)
            sound = True
            return answer
        finally:
            self._pool.give_back(session, counted=False, sound=sound)

    def _end_other(self, end: Callable[[S], T]) -> T:
        """Have the server ``end`` the session of another process. Raises EndRefused."""
        try:
            return self._look(end)
        except DatabaseError as error:
            if errors.is_end_refused(error):
                raise errors.EndRefused(str(error)) from error
            raise

    # -- waiting -----------------------------------------------------------------------------------

    def _cancel(self, session: S, cancel: Callable[[S, S, float], None]) -> None:
        """Have the server end a wait, by ``cancel``; return when its answer is there.

        It is asked again and again: a server that has not begun the statement yet does not heed it.
        """
        end, pause = clock.now() + self.command_timeout, CANCELLED
        other = self._pool.take(counted=False)
        try:
            with other.mutex:
                while True:
                    cancel(session, other, self.command_timeout)
                    if session.is_answered(pause):
                        return
                    if clock.now() >= end:
                        raise errors.Overdue(f"the wait did not end in {self.command_timeout:g} s")
                    pause *= 2
        finally:
            self._pool.give_back(other, counted=False)

    def is_queued(self, claim: Claim) -> bool:
        """Return whether a claim that was refused is in the server's queue."""
        return self._session_of(claim) is not None

    def pause(self, claim: Claim, seconds: float) -> None:
        """Return when the server has answered the waiting statement."""
        descriptor = self._watched(claim)
        if descriptor is None:
            time.sleep(min(seconds, _nap()))
            return
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(seconds * 1000)
        finally:
            os.close(descriptor)

    async def apause(self, claim: Claim, seconds: float) -> None:
        """Pause on the event loop, which watches the socket; it occupies no thread."""
        descriptor = self._watched(claim)
        if descriptor is None:
            await asyncio.sleep(min(seconds, _nap()))
            return
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        try:
            loop.add_reader(descriptor, answered.set)
            try:
                async with asyncio.timeout(seconds):
                    await answered.wait()
            except TimeoutError:
                return
            finally:
                loop.remove_reader(descriptor)
        except NotImplementedError:  # an event loop that cannot watch sockets
            await asyncio.sleep(min(seconds, _nap()))
        finally:
            os.close(descriptor)

    def _watched(self, claim: Claim) -> int | None:
        session = self._session_of(claim)
        return None if session is None else session.watched()

    # -- for the layers above ----------------------------------------------------------------------

    def sure_until(self, claim: Claim, *, foreseen: bool = False) -> float | None:
        """Return that a lease is lost when its session is gone, or it was forced.

        The connection is inspected, not asked: the server frees the lock as soon as it breaks.
        """
        if claim.in_transaction:
            return None
        session = self._session_of(claim)
        return -math.inf if session is None or session.is_closed() else None

    def max_ttl(self, ttl: float) -> float:
        """Return the ttl, which on MariaDB and MySQL is of whole seconds."""
        if connections[self.database].vendor == "mysql":
            return max(1.0, float(-(-ttl // 1)))
        return ttl

    def is_conflict(self, error: Exception) -> bool:
        return errors.is_conflict(error)

    def remedy(self, error: Exception) -> str:
        if isinstance(error, errors.EndRefused):
            return checks.permission(self.database, self.reason)
        return errors.remedy(error, self.database)

    def check_deploy(self) -> list[CheckMessage]:
        return check_deploy(self.alias, self.database, partial(self.call, "inspect"))


def _nap() -> float:
    return NAP * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, hides nothing
