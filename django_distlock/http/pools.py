"""Connections that are kept for later use: by the threads of a process, by an event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ..core.fork import after_fork, park
from ..core.loops import within
from .connections import AsyncHttpConnection, HttpConnection
from .messages import Endpoint, HttpError, Request

__all__ = ["LoopPool", "Pool"]

MOST = 50
"""Connections that are kept for later use, and of each event loop for requests without a wait."""


class Pool:
    """The connections of a process's threads."""

    def __init__(self, make: Callable[[Endpoint], HttpConnection]) -> None:
        self.make = make
        self._idle: deque[HttpConnection] = deque()
        self._closed = False
        after_fork(self._forget_parent)

    def lend(self, endpoint: Endpoint) -> HttpConnection:
        """Return a connection that no other uses until it is given back."""
        for connection in reversed(tuple(self._idle)):
            if connection.endpoint == endpoint:
                try:
                    self._idle.remove(connection)
                except ValueError:  # another thread took it
                    continue
                return connection
        return self.make(endpoint)

    def give_back(self, connection: HttpConnection) -> None:
        """Keep the connection for the next request."""
        if self._closed or len(self._idle) >= MOST:
            connection.drop()
        else:
            self._idle.append(connection)

    def close_idle(self) -> None:
        """Close what is not in use."""
        while self._idle:
            try:
                self._idle.pop().drop()
            except IndexError:  # another thread took the last one
                return

    def close(self) -> None:
        """Close that, and the rest when it is given back."""
        self._closed = True
        self.close_idle()

    def _forget_parent(self) -> None:
        """Start empty in a forked child; the connections are the parent's."""
        park(self._idle)
        self._idle = deque()


class LoopPool:
    """The connections of one event loop."""

    def __init__(self, make: Callable[[Endpoint], AsyncHttpConnection]) -> None:
        self.make = make
        self._idle: deque[AsyncHttpConnection] = deque()
        self._reserve = asyncio.Semaphore(MOST)
        self._closed = False

    @asynccontextmanager
    async def reserve(self, request: Request, limit: float) -> AsyncIterator[None]:
        """Wait until one more request may be under way."""
        if request.wait > 0:  # they are bounded by the permits of the process
            yield
            return
        try:
            async with within(limit):
                await self._reserve.acquire()
        except TimeoutError as error:
            text = f"all {MOST} connections were in use for {round(limit, 2):g} s"
            raise HttpError(text, sent=False) from error
        try:
            yield
        finally:
            self._reserve.release()

    def lend(self, endpoint: Endpoint) -> AsyncHttpConnection:
        """Return a connection that no other uses until it is given back."""
        for connection in reversed(self._idle):
            if connection.endpoint == endpoint:
                self._idle.remove(connection)
                return connection
        return self.make(endpoint)

    async def give_back(self, connection: AsyncHttpConnection) -> None:
        """Keep the connection for the next request."""
        if self._closed or len(self._idle) >= MOST:
            await connection.close()
        else:
            self._idle.append(connection)

    async def close_idle(self) -> None:
        """Close what is not in use."""
        while self._idle:
            await self._idle.popleft().close()

    async def aclose(self) -> None:
        """Close that, and the rest when it is given back."""
        self._closed = True
        await self.close_idle()
