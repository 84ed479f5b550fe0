"""The queue to wait in on a database server: a lock of its own, on a connection of ours."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import Error

from ...core.clock import Clock
from ...core.descriptors import descriptor_of, mute
from . import errors
from .dialect import FIRST, WaitQueueSql
from .queue_connections import QueueConnection
from .sentry import twin_of

__all__ = ["QueueServer", "wait_queue_of"]

logger = logging.getLogger("django_distlock.table")

MARGIN = 1.0  # seconds that the server may take longer than it was told to

Connect = Callable[[], BaseDatabaseWrapper]
Within = Callable[[BaseDatabaseWrapper, float, Callable[[], int]], int]


def wait_queue_of(database: str, key: str) -> str:
    """Return the digest that a wait queue is named after.

    The locks of MariaDB are the server's, not the database's, so its name is a part of it.
    """
    return hashlib.sha256(f"{database}:{key}".encode()).hexdigest()


class QueueServer(QueueConnection):
    """A connection to wait on, made when it is first needed."""

    def __init__(
        self, wait_queue: WaitQueueSql, connect: Connect, within: Within, clock: Clock
    ) -> None:
        super().__init__(clock)
        self.connection: BaseDatabaseWrapper | None = None
        self._wait_queue = wait_queue
        self._connect = connect
        self._within = within
        self._twin: socket.socket | None = None
        self._descriptor: int | None = None  # which a driver does not tell while it waits

    @property
    def is_open(self) -> bool:
        return self.connection is not None

    def enter(self, key: str, limit: float) -> bool:
        answer = self._enter(key, limit, self._clock() + limit)
        self.waited = answer != FIRST
        return bool(answer)

    def _enter(self, key: str, limit: float, end: float) -> int:
        connected = self.connection is not None
        try:
            return self._ask(self._wait_queue.enter, key, limit)
        except Error as error:
            self.close()
            if self._shut or not connected or isinstance(error, errors.Overdue):
                raise
        # It had died, perhaps while it was idle: a new one tells whether the server takes it.
        try:
            return self._ask(self._wait_queue.enter, key, max(0.001, end - self._clock()))
        except Error:
            self.close()
            raise

    def leave(self, key: str) -> bool:
        try:
            return bool(self._ask(self._wait_queue.leave, key, 0.0))
        except Error as error:
            # It is over with the connection, which the server notices when it is closed.
            logger.debug("Leaving the wait queue failed: %s", error)
            return False

    def _ask(self, sql: str, key: str, limit: float) -> int:
        connection = self.connection
        if connection is None:
            connection = self._connect()
            self._descriptor = descriptor_of(connection.connection)
            self.connection, self._twin = connection, twin_of(connection.connection)
        digest = wait_queue_of(str(connection.settings_dict["NAME"]), key)

        def ask() -> int:
            with connection.cursor() as cursor:
                cursor.execute(sql, self._wait_queue.parameters(digest, limit))
                (answer,) = cursor.fetchone() or (None,)
            return int(answer or 0)

        try:
            return self._within(connection, limit + MARGIN, ask)
        except Error as error:
            if errors.is_wait_over(error):
                return 0
            raise
        finally:
            self.used = self._clock()

    def close(self) -> None:
        twin, self._twin = self._twin, None
        if twin is not None:
            twin.close()
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(Error):
                connection.close()

    def forget_parent(self) -> BaseDatabaseWrapper | None:
        if self._twin is not None and self._descriptor is not None:
            with suppress(OSError):  # the driver has closed it just now
                if os.path.sameopenfile(self._twin.fileno(), self._descriptor):
                    mute(self._descriptor)
            self._twin.close()
        return self.connection

    def shut(self) -> None:
        self._shut = True
        twin = self._twin
        if twin is not None:
            # The connection is not closed: no driver can bear that while a thread waits in it.
            with suppress(OSError):  # it is closed or not connected already
                twin.shutdown(socket.SHUT_RDWR)
        self.worker.close()
        self.close()
