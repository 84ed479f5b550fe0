"""A connection to one node from an event loop, as `connection.py`."""

from __future__ import annotations

import time
from typing import Any

from ...core.loops import within
from ..redis.connection import AsyncConnection, sound
from .nodes import Node

__all__ = ["AsyncNodeConnection"]


class AsyncNodeConnection:
    """A connection to one node, see `connection.NodeConnection`."""

    def __init__(self, node: Node, limit: float) -> None:
        self._connection = AsyncConnection(node.target, limit)
        self.pack = self._connection.pack
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

    async def connect(self, limit: float) -> None:
        """Open it."""
        self.owed = 0
        await self._connection.open(limit)

    async def send(self, packed: bytes, expected: int) -> None:
        """Send what will have so many answers."""
        await self._connection.write(packed)
        if not self.owed:
            self._since = time.monotonic()
        self.owed += expected
        self._expected, self._got = expected, []

    async def receive(self, limit: float) -> list[Any]:
        """Return the answers to what was sent last; raise TimeoutError while some are missing."""
        while self.owed:
            answer = await self._connection.read(limit)
            self.owed -= 1
            if self.owed < self._expected:
                self._got.append(answer)
        return self._got

    async def wait(self, packed: bytes, limit: float) -> None:
        """Block as `connection.NodeConnection.wait`."""
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
