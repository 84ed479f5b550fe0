"""The sessions of one process: how many there may be, and those that are kept for the next."""

from __future__ import annotations

import math
import threading

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import OperationalError

from ...descriptors import descriptor_of, mute
from ...transactions import own_connection
from ..table.connection import is_testing
from .session import Session

__all__ = ["Exhausted", "Pool"]


class Exhausted(OperationalError):
    """All sessions that this process may have are holding or waiting."""


class Pool:
    """Sessions to a DATABASES alias: ``most`` at a time that hold or wait, ``idle`` kept."""

    def __init__(self, database: str, most: int, idle: int) -> None:
        self.database = database
        self.most = most
        self.most_idle = idle
        self._mutex = threading.Lock()
        self._out = 0
        self._idle: list[Session] = []

    def take(self, *, counted: bool = True) -> Session:
        """Return a session for a lease, or one that is not ``counted``, for a moment."""
        with self._mutex:
            if counted:
                if self._out >= self.most:
                    raise Exhausted(
                        f"all {self.most} sessions that this process may have for locks on "
                        f"{self.database!r} hold one or wait for one"
                    )
                self._out += 1
            if self._idle:
                return self._idle.pop()
        try:
            return Session(self._connection())
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

    def give_back(self, session: Session, *, counted: bool = True, sound: bool = True) -> None:
        """Keep the session for the next who needs one, or end it."""
        if counted:
            self._forget()
        session.owner, session.key, session.token, session.until = "", "", None, math.inf
        connection = session.connection
        # Django's test runner drops the test database: nothing of ours may be connected then.
        keep = sound and not is_testing() and not connection.errors_occurred
        if keep and connection.connection is not None:
            with self._mutex:
                if len(self._idle) < self.most_idle:
                    self._idle.append(session)
                    return
        session.close()

    def close(self) -> None:
        """End the idle ones."""
        with self._mutex:
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    def forget_parent(self, held: list[Session]) -> None:
        """Leave, in a forked child, the parent's sessions alone, the ``held`` ones too."""
        self._mutex = threading.Lock()
        for session in (*self._idle, *held):
            mute(descriptor_of(session.connection.connection))
            _parked.append(session)
        self._idle, self._out = [], 0


# Kept as they are for as long as the child lives.
_parked: list[Session] = []
