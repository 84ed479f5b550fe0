"""A connection to one node from an event loop, as `wire.py`."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from .nodes import Node

__all__ = ["AsyncWire"]


class AsyncWire:
    """A connection to one node, see `wire.Wire`."""

    def __init__(self, node: Node, limit: float) -> None:
        from redis.exceptions import ConnectionError, ResponseError

        self._place = node.place
        self.connection: Any = node.place.aconnection(limit)
        self._error, self._gone = ResponseError, ConnectionError
        self.owed = 0
        self._since = 0.0
        self._expected = 0
        self._got: list[Any] = []

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return bool(self.connection.is_connected)

    @property
    def silent_for(self) -> float:
        """For how long it has owed an answer."""
        return time.monotonic() - self._since if self.owed else 0.0

    async def connect(self, limit: float) -> None:
        """Open it."""
        self.owed = 0
        async with asyncio.timeout(limit):
            await self.connection.connect()

    async def send(self, packed: bytes, expected: int) -> None:
        """Send what will have so many answers."""
        await self._write(packed)
        if not self.owed:
            self._since = time.monotonic()
        self.owed += expected
        self._expected, self._got = expected, []

    async def _write(self, packed: bytes) -> None:
        if self._place.was_lost(self.connection):
            raise self._gone("the server has closed the connection")
        await self.connection.send_packed_command(packed, check_health=False)

    async def receive(self, limit: float) -> list[Any]:
        """Return the answers to what was sent last; raise TimeoutError while some are missing."""
        while self.owed:
            answer: Any
            try:
                answer = await self.connection.read_response(
                    timeout=limit, disconnect_on_error=False
                )
            except self._error as error:
                answer = error
            if answer is None:  # redis-py's word for it; no script of ours answers nothing
                raise TimeoutError
            self.owed -= 1
            if self.owed < self._expected:
                self._got.append(answer)
        return self._got

    async def wait(self, packed: bytes, limit: float) -> None:
        """Block as `wire.Wire.wait`."""
        async with asyncio.timeout(limit):
            await self._write(packed)
            with suppress(self._error):  # of a node whose memory is full
                await self.connection.read_response()
            await self.connection.read_response()

    async def drop(self) -> None:
        """Close it without waiting."""
        await self.connection.disconnect(nowait=True)
        self.owed = 0

    async def close(self) -> None:
        """Close it and see it closed."""
        with suppress(OSError, asyncio.TimeoutError):
            await self.connection.disconnect()
