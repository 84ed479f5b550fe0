"""Where this process waits in queues that are not its own, each place with a thread of ours.

Waiting there blocks a thread, and on a server a connection: neither Django's thread for synchronous
code nor asyncio's default executor is occupied, and a place in the queue outlasts the looks that
the waiter takes at the lock meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from django.db.backends.base.base import BaseDatabaseWrapper

from ...core.clock import Clock
from ...core.threads import Mutex
from ...core.worker import Worker

__all__ = ["Door", "Doors"]


class Door(ABC):
    """A place to wait, opened when it is first needed.

    Only the one that has taken it uses it.
    """

    def __init__(self, clock: Clock) -> None:
        # Nobody waits for it at the interpreter's end: what a process is inside of ends with it.
        self.worker = Worker("distlock-room", drained=False)
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
        """Wait for the room for ``limit`` seconds; return whether it is ours. Raises Error."""

    @abstractmethod
    def leave(self, key: str) -> bool:
        """Leave the room; return whether the door can be used for another."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open, and with it leave whatever room it is in."""

    @abstractmethod
    def forget_parent(self) -> BaseDatabaseWrapper | None:
        """Close, in a forked child, what is only its own; return the parent's connection."""

    @abstractmethod
    def shut(self) -> None:
        """End the door's use, also the waiting that goes on in its thread."""


class Doors:
    """The doors of one backend, ``most`` at a time."""

    def __init__(self, make: Callable[[], Door], most: int) -> None:
        self._make = make
        self._most = most
        self._mutex = Mutex()
        self._all: list[Door] = []
        self._free: list[Door] = []

    def take(self) -> Door | None:
        """Return a door that is not in use, an open one if possible; None if all are in use."""
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
            self._free.insert(len(self._free) if door.is_open else 0, door)

    def close_unused(self, since: float) -> bool:
        """Close the doors that were not used ``since`` then; return whether some are open still."""
        with self._mutex:
            old = [door for door in self._free if door.used <= since]
            self._free = [door for door in self._free if door.used > since]
        for door in old:
            door.close()
            self.give_back(door)
        return self.open() > 0

    def open(self) -> int:
        """Return the number of those that are open."""
        with self._mutex:
            return sum(door.is_open for door in self._all)

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
