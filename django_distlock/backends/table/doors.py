"""The connections on which this process waits in queues of the server's own, each with a thread.

Waiting there blocks a connection and a thread, so both are ours: neither Django's thread for
synchronous code nor asyncio's default executor is occupied, and a place in the queue outlasts the
looks that the waiter takes at the lock meanwhile.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import Error

from ...clock import Clock
from ...worker import Worker
from . import errors
from .connection import mute
from .sentry import descriptor_of, twin_of
from .sql import Room

__all__ = ["Door", "Doors", "room_of"]

logger = logging.getLogger("django_distlock.table")

MARGIN = 1.0  # seconds that the server may take longer than it was told to

Connect = Callable[[], BaseDatabaseWrapper]
Within = Callable[[BaseDatabaseWrapper, float, Callable[[], bool]], bool]


def room_of(database: str, key: str) -> str:
    """Return the digest that a room is named after.

    The locks of MariaDB are the server's, not the database's, so its name is a part of it.
    """
    return hashlib.sha256(f"{database}:{key}".encode()).hexdigest()


class Door:
    """A connection to wait on, made when it is first needed, and a thread to do it.

    Who has taken a door is the only one to use it.
    """

    def __init__(self, room: Room, connect: Connect, within: Within, clock: Clock) -> None:
        self.worker = Worker("distlock-room")
        self.connection: BaseDatabaseWrapper | None = None
        self.used = clock()
        self.waited = False
        """Whether others were before us at the last `enter`, as far as the time tells."""
        self._room = room
        self._connect = connect
        self._within = within
        self._clock = clock
        self._twin: socket.socket | None = None
        self._descriptor: int | None = None  # which a driver does not tell while it waits
        self._shut = False
        self._round_trip = math.inf

    def enter(self, key: str, limit: float) -> bool:
        """Wait for the room for ``limit`` seconds; tell whether it is ours. Raises Error."""
        begun = self._clock()
        inside = self._enter(key, limit, begun + limit)
        self.waited = self._clock() - begun > 2 * self._round_trip + 0.001
        return inside

    def _enter(self, key: str, limit: float, end: float) -> bool:
        connected = self.connection is not None
        try:
            return self._ask(self._room.enter, key, limit)
        except Error as error:
            self.close()
            if self._shut or not connected or isinstance(error, errors.Overdue):
                raise
        # It had died, perhaps while it was idle: a new one tells whether the server has a room.
        try:
            return self._ask(self._room.enter, key, max(0.001, end - self._clock()))
        except Error:
            self.close()
            raise

    def leave(self, key: str) -> bool:
        """Leave the room; tell whether the connection can be used for another."""
        begun = self._clock()
        try:
            left = self._ask(self._room.leave, key, 0.0)
            self._round_trip = min(self._round_trip, self._clock() - begun)
            return left
        except Error as error:
            # It is over with the connection, which the server notices when it is closed.
            logger.debug("Leaving a waiting room failed: %s", error)
            return False

    def _ask(self, sql: str, key: str, limit: float) -> bool:
        connection = self.connection
        if connection is None:
            connection = self._connect()
            self._descriptor = descriptor_of(connection.connection)
            self.connection, self._twin = connection, twin_of(connection.connection)
        digest = room_of(str(connection.settings_dict["NAME"]), key)

        def ask() -> bool:
            with connection.cursor() as cursor:
                cursor.execute(sql, self._room.parameters(digest, limit))
                (answer,) = cursor.fetchone() or (None,)
            return answer not in (None, 0, False)

        try:
            return self._within(connection, limit + MARGIN, ask)
        except Error as error:
            if errors.is_wait_over(error):
                return False
            raise
        finally:
            self.used = self._clock()

    def close(self) -> None:
        """Close the connection, and with it leave whatever room it is in."""
        twin, self._twin = self._twin, None
        if twin is not None:
            twin.close()
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(Error):
                connection.close()

    def forget_parent(self) -> BaseDatabaseWrapper | None:
        """Close, in a forked child, what is only its own; return the parent's connection."""
        if self._twin is not None and self._descriptor is not None:
            with suppress(OSError):  # the driver has closed it just now
                if os.path.sameopenfile(self._twin.fileno(), self._descriptor):
                    mute(self._descriptor)
            self._twin.close()
        return self.connection

    def shut(self) -> None:
        """End the door's use, also the waiting that goes on in its thread."""
        self._shut = True
        twin = self._twin
        if twin is not None:
            # The connection is not closed: no driver can bear that while a thread waits in it.
            with suppress(OSError):  # it is closed or not connected already
                twin.shutdown(socket.SHUT_RDWR)
        self.worker.close()
        self.close()


class Doors:
    """The doors of one backend, ``most`` at a time."""

    def __init__(
        self, room: Room, connect: Connect, within: Within, clock: Clock, most: int
    ) -> None:
        self._make = partial(Door, room, connect, within, clock)
        self._most = most
        self._mutex = threading.Lock()
        self._all: list[Door] = []
        self._free: list[Door] = []

    def take(self) -> Door | None:
        """Return a door that nobody uses, connected if possible; None if all are in use."""
        with self._mutex:
            if self._free:
                return self._free.pop()
            if len(self._all) >= self._most:
                return None
            door = self._make()
            self._all.append(door)
            return door

    def give_back(self, door: Door) -> None:
        """Let others use the door."""
        with self._mutex:
            self._free.insert(len(self._free) if door.connection else 0, door)

    def close_unused(self, since: float) -> bool:
        """Close the connections that were not used ``since`` then; tell whether some are left."""
        with self._mutex:
            old = [door for door in self._free if door.used <= since]
            self._free = [door for door in self._free if door.used > since]
        for door in old:
            door.close()
            self.give_back(door)
        return self.connected() > 0

    def connected(self) -> int:
        """Return the number of connections."""
        with self._mutex:
            return sum(door.connection is not None for door in self._all)

    def close(self) -> None:
        """Close all, also those in use."""
        with self._mutex:
            doors, self._all, self._free, self._most = self._all, [], [], 0
        for door in doors:
            door.shut()

    def forget_parent(self) -> list[BaseDatabaseWrapper]:
        """Return, in a forked child, the connections, which it must neither use nor close."""
        kept = [door.forget_parent() for door in self._all]
        return [connection for connection in kept if connection is not None]
