"""The connections on which this process waits in queues of the server, each with a thread of ours.

Waiting there blocks a thread, and on a server a connection: neither Django's thread for synchronous
code nor asyncio's default executor is occupied, and an entry in the queue outlasts the waiter's
attempts to take the lock meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from django.db.backends.base.base import BaseDatabaseWrapper

from ...core.clock import Clock
from ...core.threads import Mutex
from ...core.worker import Worker

__all__ = ["QueueConnection", "QueueConnections"]


class QueueConnection(ABC):
    """A connection to wait on, opened when it is first needed.

    Only the one that has taken it uses it.
    """

    def __init__(self, clock: Clock) -> None:
        # Not drained at the interpreter's end: what a process waits for ends with it.
        self.worker = Worker("distlock-queue", drained=False)
        self.used = clock()
        self.waited = False
        """Whether others were before us at the last `enter`."""
        self._clock = clock
        self._shut = False

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether it occupies a connection or a file."""

    @abstractmethod
    def enter(self, key: str, limit: float) -> bool:
        """Queue for ``limit`` seconds; return whether this is the first now. Raises Error."""

    @abstractmethod
    def leave(self, key: str) -> bool:
        """Leave the wait queue; return whether the connection can be used for another."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open, and with it leave the wait queue that it is in."""

    @abstractmethod
    def forget_parent(self) -> BaseDatabaseWrapper | None:
        """Close, in a forked child, what is only its own; return the parent's connection."""

    @abstractmethod
    def shut(self) -> None:
        """End the queue connection's use, also the waiting that goes on in its thread."""


class QueueConnections:
    """The queue connections of one backend, ``most`` at a time."""

    def __init__(self, make: Callable[[], QueueConnection], most: int) -> None:
        self._make = make
        self._most = most
        self._mutex = Mutex()
        self._all: list[QueueConnection] = []
        self._free: list[QueueConnection] = []

    def take(self) -> QueueConnection | None:
        """Return one that is not in use, an open one if possible; None if all are in use."""
        with self._mutex:
            if self._free:
                return self._free.pop()
            if len(self._all) >= self._most:
                return None
            connection = self._make()
            self._all.append(connection)
            return connection

    def give_back(self, connection: QueueConnection) -> None:
        """Let others use the queue connection."""
        with self._mutex:
            self._free.insert(len(self._free) if connection.is_open else 0, connection)

    def close_unused(self, since: float) -> bool:
        """Close those that were not used ``since`` then; return whether some are open still."""
        with self._mutex:
            old = [connection for connection in self._free if connection.used <= since]
            self._free = [connection for connection in self._free if connection.used > since]
        for connection in old:
            connection.close()
            self.give_back(connection)
        return self.open() > 0

    def open(self) -> int:
        """Return the number of those that are open."""
        with self._mutex:
            return sum(connection.is_open for connection in self._all)

    def close(self) -> None:
        """Close all, also those in use."""
        with self._mutex:
            queue_connections, self._all, self._free, self._most = self._all, [], [], 0
        for connection in queue_connections:
            connection.shut()

    def forget_parent(self) -> list[BaseDatabaseWrapper]:
        """Return, in a forked child, the connections, which it must neither use nor close."""
        kept = [each.forget_parent() for each in self._all]
        return [connection for connection in kept if connection is not None]
