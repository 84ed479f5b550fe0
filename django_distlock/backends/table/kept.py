"""Connections between two uses: kept for some seconds, then closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ...core import clock
from ...core.threads import Mutex
from ...core.worker import events

__all__ = ["Kept"]

T = TypeVar("T")


class Kept(Generic[T]):
    """Up to ``most`` connections that are not in use, each to be closed by ``close``."""

    def __init__(self, most: int, close: Callable[[T], None]) -> None:
        self._most = most
        self._close = close
        self._reset()

    def _reset(self) -> None:
        self._mutex = Mutex()
        self._all: list[tuple[float, T]] = []
        self._looked_after = False

    def take(self) -> T | None:
        """Return the one that was used last, or None."""
        with self._mutex:
            return self._all.pop()[1] if self._all else None

    def give(self, connection: T, seconds: float) -> bool:
        """Keep a connection for so long; False, and not kept, when there are enough."""
        with self._mutex:
            if len(self._all) >= self._most:
                return False
            self._all.append((clock.now() + seconds, connection))
            if not self._looked_after:
                self._looked_after = True
                events.submit(self._look_after, seconds)
            return True

    def _look_after(self) -> None:
        now = clock.now()
        with self._mutex:
            old = [connection for end, connection in self._all if end <= now]
            self._all = [each for each in self._all if each[0] > now]
            self._looked_after = bool(self._all)
            if self._looked_after:
                events.submit(self._look_after, min(end for end, _ in self._all) - now)
        for connection in old:
            self._close(connection)

    def clear(self) -> None:
        """Close all."""
        with self._mutex:
            old, self._all = self._all, []
        for _, connection in old:
            self._close(connection)

    def forget_parent(self) -> list[T]:
        """Return, in a forked child, the parent's connections, which are not to be closed."""
        connections = [connection for _, connection in self._all]
        self._reset()
        return connections
