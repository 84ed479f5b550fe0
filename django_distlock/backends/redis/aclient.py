"""Asking a Redis from event loops: each loop has a few connections, which its tasks share.

A connection is lent for one question, or to the task that reads the loop's mailbox. When the loop
ends they are closed by it: a connection that outlives its loop could not be closed any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from ...core import flow
from ...core.loops import PerLoop
from .client import EAGER, GROWTH, IDLE, STALE
from .commands import Begin, Command, carried_out
from .connection import AsyncConnection
from .location import Target

__all__ = ["AsyncClient", "AsyncNodeClient", "LoopConnections"]

S = TypeVar("S")
T = TypeVar("T")


class AsyncClient(Protocol):
    """What the backend asks its Redis through, from event loops."""

    async def ask_all(self, commands: Sequence[Command], limit: float) -> list[Any]:
        """Send all commands, then read the answers; an error in an answer is one of them."""

    async def converse(self, begin: Begin[T], limit: float, *, resend: bool = True) -> T:
        """Carry out a conversation, as the clients of threads do."""

    async def node_of(self, key: bytes, limit: float) -> AsyncNodeClient:
        """Return the client of the server that has a key."""

    def close_idle(self) -> None:
        """Have each loop close idle connections."""

    def close(self) -> None:
        """Have each loop close its connections."""


class LoopConnections:
    """The connections of one event loop, ``most`` at a time."""

    def __init__(self, target: Target, limit: float, most: int) -> None:
        self._target = target
        self._limit, self._most = limit, most
        self._open, self._grown = 0, 0.0
        self.idle: deque[AsyncConnection] = deque()
        self._waiting: deque[asyncio.Future[AsyncConnection]] = deque()
        self._closed = False

    async def lend(self, limit: float) -> AsyncConnection:
        """Return a connection that no other task uses until it is given back."""
        if self.idle:
            return self.idle.pop()
        busy = self._open >= min(EAGER, self._most)
        if busy and (connection := await self._returned_or_grown(limit)) is not None:
            return connection
        self._open += 1
        return AsyncConnection(self._target, self._limit)

    async def _returned_or_grown(self, limit: float) -> AsyncConnection | None:
        """Return a connection that was given back; None when one more may be opened."""
        time = asyncio.get_running_loop().time
        end = time() + limit
        while (left := end - time()) > 0:
            if (connection := await self._returned(min(left, GROWTH))) is not None:
                return connection
            if self._open < self._most and time() - self._grown >= GROWTH:
                self._grown = time()
                return None
        from redis.exceptions import TimeoutError as Overdue

        raise Overdue(f"all {self._most} connections (MAX_CONNECTIONS) were in use")

    async def _returned(self, seconds: float) -> AsyncConnection | None:
        """Wait for a connection to be given back."""
        returned: asyncio.Future[AsyncConnection] = asyncio.get_running_loop().create_future()
        self._waiting.append(returned)
        try:
            await asyncio.wait([returned], timeout=seconds)
        except BaseException:
            if returned.done():
                await self.give_back(returned.result())
            raise
        finally:
            if not returned.done():
                self._waiting.remove(returned)
        return returned.result() if returned.done() else None

    async def give_back(self, connection: AsyncConnection) -> None:
        """Let others have a connection."""
        if (spare := self.put(connection)) is not None:
            await self.close(spare)

    def put(self, connection: AsyncConnection) -> AsyncConnection | None:
        """Let others have a connection; return one that has to be closed instead."""
        if self._closed:
            return connection
        if self._waiting:
            self._waiting.popleft().set_result(connection)
            return None
        self.idle.append(connection)
        # The one that was not needed for longest lies at the other end.
        return self.idle.popleft() if self.idle[0].idle_for() > IDLE else None

    async def close(self, connection: AsyncConnection) -> None:
        """Close a connection."""
        self._open -= 1
        await connection.close()

    async def aclose(self) -> None:
        """Close what is idle now, and the rest when it is given back."""
        self._closed = True
        await self.close_idle()

    async def close_idle(self) -> None:
        """Close what is idle now."""
        while self.idle:
            await self.close(self.idle.popleft())


class AsyncNodeClient:
    """Connections to one Redis for each event loop."""

    def __init__(self, target: Target, limit: float, most: int) -> None:
        from redis import exceptions

        self._cut_off, self._read_only = exceptions.ConnectionError, exceptions.ReadOnlyError
        self._overdue = exceptions.TimeoutError
        self._again = (self._cut_off, self._read_only, self._overdue)
        self.target = target
        self.loops = PerLoop(lambda: LoopConnections(target, limit, most))

    async def ask_packed(self, packed: bytes, limit: float, *, resend: bool = True) -> Any:
        """Ask one command that is packed already; raise the answer if it is an error."""
        return await self._carry(AsyncConnection.ask, packed, limit, resend)

    async def ask_all(
        self, commands: Sequence[Command], limit: float, *, resend: bool = True
    ) -> list[Any]:
        return await self._carry(AsyncConnection.ask_all, commands, limit, resend)

    async def converse(self, begin: Begin[T], limit: float, *, resend: bool = True) -> T:
        return await self._carry(_talk, begin, limit, resend)

    async def _carry(
        self,
        way: Callable[[AsyncConnection, S, float], Awaitable[T]],
        what: S,
        limit: float,
        resend: bool,
    ) -> T:
        connections = self.loops.found() or await self.loops.mine()
        connection = connections.idle.pop() if connections.idle else await connections.lend(limit)
        try:
            stale = connection.is_stale()
            first = min(limit / 2, STALE) if stale else limit
            try:
                return await way(connection, what, first)
            except self._again as error:
                if isinstance(error, self._read_only):
                    pass
                elif isinstance(error, self._overdue) and not stale:
                    raise
                elif not resend:
                    raise self._cut_off(str(error)) from error
            return await way(connection, what, limit - first if stale else limit)
        finally:
            if (spare := connections.put(connection)) is not None:
                await connections.close(spare)
            connection.end()

    async def node_of(self, key: bytes, limit: float) -> AsyncNodeClient:
        return self

    def close_idle(self) -> None:
        self.loops.each(LoopConnections.close_idle)

    def close(self) -> None:
        self.loops.close()


async def _talk(connection: AsyncConnection, begin: Begin[T], limit: float) -> T:
    return await flow.arun(carried_out(begin(), connection.ask_all, limit))
