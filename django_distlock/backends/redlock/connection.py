"""Connections to one node, which may owe answers."""

from __future__ import annotations

import time
from typing import Any, Generic, TypeVar

from ...core.loops import within
from ..redis.connection import AsyncConnection, Connection, sound
from .nodes import Node

__all__ = ["SLICE", "AsyncNodeConnection", "NodeConnection"]

SLICE = 0.005
"""Seconds for one node, after which the others are read."""


C = TypeVar("C", bound="Connection | AsyncConnection")


class _Owing(Generic[C]):
    """A connection to one node, and how many answers it owes."""

    def __init__(self, connection: C) -> None:
        self._connection = connection
        self.pack = connection.pack
        self.owed = 0
        self._since = 0.0
        self._expected = 0
        self._got: list[Any] = []

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return self._connection.is_open

    @property
    def silent_for(self) -> float:
        """For how long it has owed an answer."""
        return time.monotonic() - self._since if self.owed else 0.0

    def _sent(self, expected: int) -> None:
        if not self.owed:
            self._since = time.monotonic()
        self.owed += expected
        self._expected, self._got = expected, []

    def _take(self, answer: Any) -> None:
        self.owed -= 1
        if self.owed < self._expected:
            self._got.append(answer)


class NodeConnection(_Owing[Connection]):
    """A connection to one node."""

    def __init__(self, node: Node, limit: float) -> None:
        super().__init__(Connection(node.target, limit))

    def connect(self, limit: float) -> None:
        """Open it."""
        self.owed = 0
        self._connection.open(limit)
        self._connection.limit_to(SLICE)  # the time of most reads, which then need not set it

    def send(self, packed: bytes, expected: int) -> None:
        """Send what will have so many answers."""
        self._connection.write(packed)
        self._sent(expected)

    def receive(self, limit: float) -> list[Any]:
        """Return the answers to what was sent last; raise TimeoutError while some are missing."""
        while self.owed:
            self._take(self._connection.read(limit))
        return self._got

    def wait(self, packed: bytes, limit: float) -> None:
        """Block until the node has answered both to the mark of a waiter and to its wait."""
        self._connection.write(packed)
        self._connection.read(limit)  # an error, of a node whose memory is full, costs a hint
        sound(self._connection.read(limit))

    def drop(self) -> None:
        """Close it."""
        self._connection.drop()
        self.owed = 0


class AsyncNodeConnection(_Owing[AsyncConnection]):
    """A connection to one node from an event loop."""

    def __init__(self, node: Node, limit: float) -> None:
        super().__init__(AsyncConnection(node.target, limit))

    async def connect(self, limit: float) -> None:
        """Open it."""
        self.owed = 0
        await self._connection.open(limit)

    async def send(self, packed: bytes, expected: int) -> None:
        """Send what will have so many answers."""
        await self._connection.write(packed)
        self._sent(expected)

    async def receive(self, limit: float) -> list[Any]:
        """Return the answers to what was sent last; raise TimeoutError while some are missing."""
        while self.owed:
            self._take(await self._connection.read(limit))
        return self._got

    async def wait(self, packed: bytes, limit: float) -> None:
        """Wait as `NodeConnection.wait`."""
        async with within(limit):
            await self._connection.write(packed)
            await self._connection.receive(limit)  # an error, of a node whose memory is full
            sound(await self._connection.receive(limit))

    async def drop(self) -> None:
        """Close it without waiting."""
        await self._connection.drop()
        self.owed = 0

    async def close(self) -> None:
        """Close it and see it closed."""
        await self._connection.close()
