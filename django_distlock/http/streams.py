"""Answers that go on as lines, for as long as they are read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .async_connections import AsyncHttpConnection
from .connections import HttpConnection
from .messages import Answer

__all__ = ["AsyncStream", "Stream"]


class Stream:
    """The answer to one request, which goes on as lines. Close it."""

    def __init__(self, head: Answer, connection: HttpConnection, done: Callable[[], None]) -> None:
        self.head = head
        self._connection = connection
        self._done = done
        self._lines: deque[bytes] = deque()
        self._open = True

    def line(self, limit: float) -> bytes | None:
        """Return the next line; None if none came within ``limit`` seconds."""
        if not self._lines:
            self._lines.extend(self._connection.lines(limit))
        return self._lines.popleft() if self._lines else None

    def close(self) -> None:
        """End the stream."""
        if self._open:
            self._open = False
            try:
                self._connection.drop()
            finally:
                self._done()


class AsyncStream:
    """The answer to one request, which goes on as lines, on an event loop. Close it.

    From another thread `leave` it first: its loop may never come to close it.
    """

    def __init__(
        self, head: Answer, connection: AsyncHttpConnection, done: Callable[[], None]
    ) -> None:
        self.head = head
        self._connection = connection
        self._done = done
        self._lines: deque[bytes] = deque()
        self._open = True

    async def aline(self, limit: float) -> bytes | None:
        """Return the next line; None if none came within ``limit`` seconds."""
        if not self._lines:
            self._lines.extend(await self._connection.lines(limit))
        return self._lines.popleft() if self._lines else None

    def leave(self) -> None:
        """Give its permit to another stream; from any thread."""
        if self._open:
            self._open = False
            self._done()

    def close(self) -> None:
        """End the stream."""
        try:
            self.leave()
        finally:
            self._connection.drop()
