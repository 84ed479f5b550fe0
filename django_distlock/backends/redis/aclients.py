"""Asking a Redis from event loops: each loop has a few connections, which its tasks share.

A connection is lent for one command, or for a wait. When the loop ends they are closed by it: a
connection that outlives its loop could not be closed any more.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar

from ...core.loops import PerLoop
from .location import Place
from .talks import Begin, Command, Talk, one, packer, several

__all__ = ["AsyncClient", "AsyncNodeClient", "AsyncWire", "Full", "acarry_out"]

T = TypeVar("T")

FRESH, STALE = 1.0, 1.0  # as in wires.py and clients.py
MOST = 50  # connections of one loop for commands, and as many for waiting


class AsyncClient(Protocol):
    """What the backend asks its Redis through, from event loops."""

    async def ask(self, command: Command, limit: float) -> Any:
        """Send a command and return its answer, or raise an error of redis-py."""

    async def ask_all(self, commands: Sequence[Command], limit: float) -> list[Any]:
        """Send all commands, then read the answers; an error in an answer is one of them."""

    async def converse(self, begin: Begin[T], limit: float, *, resend: bool = True) -> T:
        """Carry out a talk, as the clients of threads do."""

    async def wait(self, commands: Sequence[Command], limit: float) -> list[Any]:
        """Send commands of which one blocks; raise Full when too many tasks do so already."""

    def close_idle(self) -> None:
        """Have each loop close what nobody uses now."""

    def close(self) -> None:
        """Have each loop close what it has open."""


class Full(Exception):
    """As many tasks of this loop wait in the server as may."""


class AsyncWire:
    """One connection to one Redis, lent to one task at a time."""

    def __init__(self, place: Place, limit: float) -> None:
        from redis import exceptions as kinds

        self._said, self.overdue = kinds.ResponseError, kinds.TimeoutError
        self._place, self._limit = place, limit
        self._connection = place.aconnection(limit)
        self._pack = packer(self._connection)
        self._used = 0.0

    async def send(self, commands: Sequence[Command]) -> None:
        """Send commands, connecting before if need be."""
        connection = self._connection
        stale = connection.is_connected and time.monotonic() - self._used > FRESH
        # Closed by the server meanwhile, or with an answer that nobody waited for.
        if self._place.was_lost(connection) or (stale and await connection.can_read()):
            await self.drop()
        self._used = time.monotonic()
        if not connection.is_connected:
            await self._place.adirect(connection, self._limit)
            await connection.connect()
        await connection.send_packed_command([self._pack(commands)], check_health=False)

    async def receive(self) -> Any:
        """Return the next answer; raise it if it is an error of the server's."""
        return await self._connection.read_response()

    async def ask_all(self, commands: Sequence[Command], limit: float) -> list[Any]:
        """Send all commands, then read all answers; errors of the server's are among them."""
        answers: list[Any] = []
        try:
            async with asyncio.timeout(limit):
                await self.send(commands)
                for _ in commands:
                    try:
                        answers.append(await self.receive())
                    except self._said as error:
                        answers.append(error)
        except TimeoutError as error:
            await self.drop()
            raise self.overdue(f"no answer within {limit:g} s") from error
        except BaseException:
            await self.drop()
            raise
        if any(map(self._place.was_demoted, answers)):
            await self.drop()
        return answers

    def is_open(self) -> bool:
        """Return whether it is connected, as far as is known here."""
        return bool(self._connection.is_connected)

    def idle_for(self) -> float:
        """Return the seconds since its last use."""
        return time.monotonic() - self._used

    async def drop(self) -> None:
        """Close the connection; the next command opens it anew."""
        await self._connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Close the connection and see it closed."""
        with suppress(OSError, asyncio.TimeoutError):
            await self._connection.disconnect()


class _LoopWires:
    """The wires of one event loop."""

    def __init__(self, place: Place, limit: float) -> None:
        self._place = place
        self._limit = limit
        self._idle: deque[AsyncWire] = deque()
        self._room = asyncio.Semaphore(MOST)
        self._waiting = 0
        self._closed = False

    @asynccontextmanager
    async def lent(self, limit: float) -> AsyncIterator[AsyncWire]:
        """Lend a wire for a command."""
        if self._room.locked():
            try:
                async with asyncio.timeout(limit):
                    await self._room.acquire()
            except TimeoutError as error:
                from redis.exceptions import TimeoutError as Overdue

                raise Overdue(f"all {MOST} connections were in use for {limit:g} s") from error
        else:
            await self._room.acquire()
        try:
            async with self._wire() as wire:
                yield wire
        finally:
            self._room.release()

    @asynccontextmanager
    async def lent_for_waiting(self) -> AsyncIterator[AsyncWire]:
        """Lend a wire for a command that blocks."""
        if self._waiting >= MOST:
            raise Full
        self._waiting += 1
        try:
            async with self._wire() as wire:
                yield wire
        finally:
            self._waiting -= 1

    @asynccontextmanager
    async def _wire(self) -> AsyncIterator[AsyncWire]:
        wire = self._idle.pop() if self._idle else AsyncWire(self._place, self._limit)
        try:
            yield wire
        finally:
            if self._closed:
                await wire.close()
            else:
                self._idle.append(wire)

    async def aclose(self) -> None:
        """Close what is idle now, and the rest when it is given back."""
        self._closed = True
        await self.close_idle()

    async def close_idle(self) -> None:
        """Close what is idle now."""
        while self._idle:
            await self._idle.popleft().close()


class AsyncNodeClient:
    """Wires to one Redis for each event loop."""

    def __init__(self, place: Place, limit: float) -> None:
        from redis.exceptions import ConnectionError, ReadOnlyError

        self._cut_off, self._read_only = ConnectionError, ReadOnlyError
        self.place = place
        self._loops = PerLoop(lambda: _LoopWires(place, limit))

    async def ask(self, command: Command, limit: float) -> Any:
        return await self.converse(lambda: one(command), limit)

    async def ask_all(
        self, commands: Sequence[Command], limit: float, *, resend: bool = True
    ) -> list[Any]:
        return await self.converse(lambda: several(commands), limit, resend=resend)

    async def converse(self, begin: Begin[T], limit: float, *, resend: bool = True) -> T:
        wires = await self._loops.mine()
        async with wires.lent(limit) as wire:
            stale = wire.is_open() and wire.idle_for() > FRESH
            first = min(limit / 2, STALE) if stale else limit
            try:
                return await acarry_out(begin(), wire.ask_all, first)
            except self._read_only:
                await wire.drop()
            except self._cut_off:
                if not resend:
                    raise
            except wire.overdue as error:
                if not stale:
                    raise
                if not resend:
                    raise self._cut_off(str(error)) from error
            return await acarry_out(begin(), wire.ask_all, limit - first if stale else limit)

    async def wait(self, commands: Sequence[Command], limit: float) -> list[Any]:
        wires = await self._loops.mine()
        async with wires.lent_for_waiting() as wire:
            return await wire.ask_all(commands, limit)

    def close_idle(self) -> None:
        self._loops.each(_LoopWires.close_idle)

    def close(self) -> None:
        self._loops.close()


async def acarry_out(
    talk: Talk[T], ask: Callable[[Sequence[Command], float], Awaitable[list[Any]]], limit: float
) -> T:
    """Send what a talk yields, and send it the answers."""
    try:
        commands = next(talk)
        while True:
            commands = talk.send(await ask(commands, limit))
    except StopIteration as stop:
        result: T = stop.value
        return result
