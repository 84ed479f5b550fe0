"""Asking a Redis: threads share the connections of the process, tasks those of their loop.

A connection is lent for one question, or to the thread or task that reads a mailbox. So a call
made during a wait, even by a signal handler on the waiting thread, uses another connection. Every
command may be sent twice, because it acts for one owner only. When a loop ends its connections are
closed by it: one that outlives its loop could not be closed any more.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol, TypeVar

from ...core import flow
from ...core.fork import after_fork, park
from ...core.loops import PerLoop
from ...core.threads import Permit, Permits
from .commands import Begin, Command, carried_out
from .connection import AsyncConnection, Connection
from .location import Target

__all__ = [
    "EAGER",
    "GROWTH",
    "IDLE",
    "STALE",
    "AsyncClient",
    "AsyncNodeClient",
    "LoopConnections",
    "NodeClient",
    "RedisClient",
]

S = TypeVar("S")
T = TypeVar("T")

EAGER = 4  # connections that are opened as soon as they are wanted
GROWTH = 0.1  # seconds after which, where all are in use, one more is opened
IDLE = 60.0  # seconds without use after which a connection is closed
STALE = 1.0  # seconds at most that an answer is waited for on a connection that was idle


class RedisClient(Protocol):
    """What the backend asks its Redis through, from threads."""

    def ask(self, command: Command, limit: float, *, resend: bool = True) -> Any:
        """Send a command and return its answer, or raise an error of redis-py."""

    def ask_all(self, commands: Sequence[Command], limit: float) -> list[Any]:
        """Send all commands, then read the answers; an error in an answer is one of them."""

    def converse(self, begin: Begin[T], limit: float, *, resend: bool = True) -> T:
        """Carry out a conversation; each of its steps may take ``limit`` seconds.

        With ``resend`` it is begun once more on a connection that turned out to be closed.
        """

    def node_of(self, key: bytes, limit: float) -> NodeClient:
        """Return the client of the server that has a key."""

    def nodes(self, limit: float) -> list[NodeClient]:
        """Return the client of each server that takes writes."""

    def close_idle(self) -> None:
        """Close idle connections."""

    def close(self) -> None:
        """Close all connections."""


class NodeClient:
    """Connections to one Redis, ``most`` at a time, each lent to one thread at a time."""

    def __init__(self, target: Target, limit: float, most: int) -> None:
        from redis import exceptions

        self._cut_off, self._read_only = exceptions.ConnectionError, exceptions.ReadOnlyError
        self._overdue = exceptions.TimeoutError
        self._again = (self._cut_off, self._read_only, self._overdue)
        self.target = target
        self._limit, self._most = limit, most
        self._reset()
        after_fork(self._forget_parent)

    def _reset(self) -> None:
        self._idle: deque[tuple[Connection, Permit]] = deque()
        self._permits = Permits(self._most)
        self._gates: deque[threading.Lock] = deque()
        self._grown = 0.0
        self._closed = False

    def _forget_parent(self) -> None:
        park(self._idle)
        self._reset()

    def lend(self, limit: float) -> tuple[Connection, Permit]:
        """Return a connection for exclusive use until it is given back: the one used last."""
        try:
            return self._idle.pop()
        except IndexError:
            pass
        if len(self._permits) < EAGER and (permit := self._permits.take()) is not None:
            return Connection(self.target, self._limit), permit
        began = monotonic()
        while (left := began + limit - monotonic()) > 0:
            if (lent := self._returned(min(left, GROWTH))) is not None:
                return lent
            now = monotonic()
            if now - self._grown >= GROWTH and (permit := self._permits.take()) is not None:
                self._grown = now
                return Connection(self.target, self._limit), permit
        raise self._overdue(f"all {self._most} connections (MAX_CONNECTIONS) were in use")

    def _returned(self, seconds: float) -> tuple[Connection, Permit] | None:
        """Wait for a connection to be given back."""
        gate = threading.Lock()
        gate.acquire()
        end = monotonic() + seconds
        while (left := end - monotonic()) > 0:
            self._gates.append(gate)
            try:
                return self._idle.pop()  # given back before the gate was there
            except IndexError:
                gate.acquire(timeout=left)
            finally:
                with suppress(ValueError):
                    self._gates.remove(gate)
            with suppress(IndexError):
                return self._idle.pop()
        return None

    def give_back(self, lent: tuple[Connection, Permit]) -> None:
        """Let others have a connection."""
        if self._closed:
            lent[0].drop()
            self._permits.release(lent[1])
            return
        self._idle.append(lent)
        if self._gates:
            with suppress(IndexError, RuntimeError):  # another one opened it
                self._gates.popleft().release()
        # The one that was not needed for longest lies at the other end.
        with suppress(IndexError):  # another thread took it
            if self._idle[0][0].idle_for() > IDLE:
                self._end(self._idle.popleft())

    def _end(self, lent: tuple[Connection, Permit]) -> None:
        lent[0].drop()
        self._permits.release(lent[1])

    def ask(self, command: Command | bytes, limit: float, *, resend: bool = True) -> Any:
        return self._carry(Connection.ask, command, limit, resend)

    def ask_all(
        self, commands: Sequence[Command], limit: float, *, resend: bool = True
    ) -> list[Any]:
        return self._carry(Connection.ask_all, commands, limit, resend)

    def converse(self, begin: Begin[T], limit: float, *, resend: bool = True) -> T:
        return self._carry(_talk, begin, limit, resend)

    def _carry(
        self, way: Callable[[Connection, S, float], T], what: S, limit: float, resend: bool
    ) -> T:
        lent = self.lend(limit)
        connection = lent[0]
        try:
            # One that was idle may have been forgotten by what is between, which says nothing.
            stale = connection.is_stale()
            first = min(limit / 2, STALE) if stale else limit
            try:
                return way(connection, what, first)
            except self._again as error:
                if isinstance(error, self._read_only):
                    pass  # it was the master once: the name may lead to another by now
                elif isinstance(error, self._overdue) and not stale:
                    raise
                elif not resend:
                    raise self._cut_off(str(error)) from error
            return way(connection, what, limit - first if stale else limit)
        finally:
            self.give_back(lent)

    def node_of(self, key: bytes, limit: float) -> NodeClient:
        return self

    def nodes(self, limit: float) -> list[NodeClient]:
        return [self]

    def close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._end(self._idle.pop())

    def close(self) -> None:
        self._closed = True
        self.close_idle()


def _talk(connection: Connection, begin: Begin[T], limit: float) -> T:
    return flow.run(carried_out(begin(), connection.ask_all, limit))


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
        return await self._carry(_atalk, begin, limit, resend)

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


async def _atalk(connection: AsyncConnection, begin: Begin[T], limit: float) -> T:
    return await flow.arun(carried_out(begin(), connection.ask_all, limit))
