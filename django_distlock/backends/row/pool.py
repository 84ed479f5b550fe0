"""The sessions of one process: how many there may be, and those that are kept for the next."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import OperationalError

from ...core.descriptors import descriptor_of, mute
from ...core.fork import park
from ...core.threads import Mutex
from ...transactions import own_connection
from ..table.connection import is_testing
from ..table.kept import Kept
from .session import LockSession

__all__ = ["Exhausted", "SessionPool"]

S = TypeVar("S", bound=LockSession)

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
