"""One connection to one Redis, on redis-py's: for a thread, and for a task of an event loop.

Commands are packed once and sent below redis-py's calls for single commands, which cost several
times as much. An error that the server answers with is an answer here; what is raised is what
happened to the connection, which is closed then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from ...core.clock import GRACE, Deadline
from ...core.loops import within
from .commands import Command, packer
from .location import Target

__all__ = ["FRESH", "AsyncConnection", "Connection", "sound"]

FRESH = 1.0  # seconds after its last use in which a connection is taken to be open still


def sound(answer: Any) -> Any:
    """Return an answer, or raise it.

    No frame that an error has passed may have a name for it: by its traceback it would keep itself
    alive, and all callers' frames, with the leases in them, until the garbage collector comes.
    """
    if isinstance(answer, Exception):
        try:
            raise answer
        finally:
            del answer
    return answer


class _Kept:
    """What a pool asks of a connection, of either kind."""

    _redis: Any
    _used: float

    @property
    def is_open(self) -> bool:
        """Whether it is connected, as far as is known here."""
        return bool(self._redis.is_connected)

    def is_stale(self) -> bool:
        """Return whether a proxy or NAT may have dropped it silently, as it was idle for long."""
        return self.is_open and monotonic() - self._used > FRESH

    def idle_for(self) -> float:
        """Return the seconds since its last use."""
        return monotonic() - self._used


class Connection(_Kept):
    """One connection to one Redis, used by one thread at a time."""

    def __init__(self, target: Target, limit: float) -> None:
        from redis import exceptions

        self._target = target
        self._said, self._failed = exceptions.ResponseError, exceptions.RedisError
        self._overdue = exceptions.TimeoutError
        self._redis = target.connection(limit)
        self.pack = packer(self._redis)
        self._limit = limit
        self._used = 0.0

    def ask(self, command: Command | bytes, limit: float) -> Any:
        """Send a command, which may be packed already; return its answer, or raise it."""
        packed = command if isinstance(command, bytes) else self.pack((command,))
        return sound(*self._ask(packed, 1, limit))

    def ask_all(self, commands: Sequence[Command], limit: float) -> list[Any]:
        """Send all commands, then read all answers."""
        return self._ask(self.pack(commands), len(commands), limit)

    def _ask(self, packed: bytes, count: int, limit: float) -> list[Any]:
        try:
            self._send(packed, limit)
            return [self._answer() for _ in range(count)]
        except BaseException:
            self.drop()  # after an interruption, too, an answer is left unread
            raise

    def send(self, commands: Sequence[Command], limit: float) -> None:
        """Send commands; drop the connection unless all their answers are received."""
        self._send(self.pack(commands), limit)

    def _send(self, packed: bytes, limit: float) -> None:
        now = monotonic()
        if now - self._used > FRESH:
            self._look()
        self._used = now
        if not self._redis.is_connected:
            self.open(limit)
        elif limit != self._limit:
            self.limit_to(limit)
        self.write(packed)

    def write(self, packed: bytes) -> None:
        """Send commands that are packed, over a connection that is open."""
        self._redis.send_packed_command([packed], check_health=False)

    def read(self, limit: float) -> Any:
        """Return the next answer if it comes in time; else raise TimeoutError, and stay open."""
        try:
            if limit == self._limit:
                return self._redis.read_response(disconnect_on_error=False)
            return self._redis.read_response(timeout=limit, disconnect_on_error=False)
        except self._said as error:
            return error.with_traceback(None)  # see `sound`

    def _look(self) -> None:
        """Close a connection that the server has closed, or that has unread answers."""
        if not self._redis.is_connected:
            return
        try:
            dirty = self._redis.can_read(0)
        except self._failed:
            dirty = True
        if dirty:
            self.drop()
        self._limit = 0.0  # looking may have changed the socket's

    def open(self, limit: float) -> None:
        """Connect."""
        self._limit = limit
        self._redis.socket_timeout = self._redis.socket_connect_timeout = limit
        self._target.direct(self._redis, limit)
        self._redis.connect()

    def limit_to(self, limit: float) -> None:
        """Wait so long, from now on, for each step of sending and receiving."""
        self._limit = limit
        self._redis.update_current_socket_timeout(limit)

    def receive(self, limit: float) -> Any:
        """Return the next answer; ``limit`` counts for each step of it."""
        if limit != self._limit:
            self.limit_to(limit)
        return self._answer()

    def _answer(self) -> Any:
        deadline = Deadline(monotonic() + self._limit, monotonic)
        while True:
            try:
                return self._redis.read_response(disconnect_on_error=False)
            except self._said as error:
                if self._target.was_demoted(error):
                    self.drop()
                return error.with_traceback(None)  # see `sound`
            except BaseException as error:
                if not isinstance(error, self._overdue) or not deadline.put_off():
                    self.drop()
                    raise
            self.limit_to(GRACE)

    def drop(self) -> None:
        """Close the connection; the next command opens it again."""
        self._redis.disconnect()


class AsyncConnection(_Kept):
    """One connection to one Redis, used by one task at a time.

    A cancellation does not end a question that was sent: its answer is read, and then the task is
    to call `end`, which raises the cancellation.
    """

    def __init__(self, target: Target, limit: float) -> None:
        from redis import exceptions

        self._target, self._limit = target, limit
        self._said, self._overdue = exceptions.ResponseError, exceptions.TimeoutError
        self._cut_off = exceptions.ConnectionError
        self._redis = target.aconnection(limit)
        self.pack = packer(self._redis)
        self._used = 0.0
        self._loop = asyncio.get_running_loop()
        # One timer for many questions: it is only read when it is due.
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: Deadline | None = None
        self._closing: asyncio.Task[None] | None = None
        self._cancelled: tuple[Any, ...] | None = None

    async def ask(self, packed: bytes, limit: float) -> Any:
        """Send a command that is packed already; return its answer, or raise it."""
        return sound(*await self._ask(packed, 1, limit))

    async def ask_all(self, commands: Sequence[Command], limit: float) -> list[Any]:
        """Send all commands, then read all answers, in ``limit`` seconds."""
        return await self._ask(self.pack(commands), len(commands), limit)

    async def send(self, commands: Sequence[Command], limit: float) -> None:
        """Send commands, whose answers have to be received, all of them."""
        await self._ask(self.pack(commands), 0, limit)

    async def _ask(self, packed: bytes, count: int, limit: float) -> list[Any]:
        try:
            await self._send(packed, limit)
            answers = [await self._receive(to_the_end=True) for _ in range(count)]
        except BaseException as error:
            await self._failed(error, limit)
            raise
        self._deadline = None
        return answers

    async def receive(self, limit: float) -> Any:
        """Return the next answer; a cancellation ends that at once."""
        self._limit_to(limit)
        try:
            answer = await self._receive(to_the_end=False)
        except BaseException as error:
            await self._failed(error, limit)
            raise
        self._deadline = None
        return answer

    async def _send(self, packed: bytes, limit: float) -> None:
        redis = self._redis
        # Closed by the server meanwhile, or with an unread answer.
        if redis.is_connected and await redis.can_read():
            await self.drop()
        self._used = monotonic()
        if not redis.is_connected:
            await self.open(limit)
        self._limit_to(limit)
        await self.write(packed)

    async def open(self, limit: float) -> None:
        """Connect."""
        async with within(limit):
            await self._target.adirect(self._redis, self._limit)
            await self._redis.connect()

    async def write(self, packed: bytes) -> None:
        """Send commands that are packed, over a connection that is open."""
        try:
            await self._redis.send_packed_command([packed], check_health=False)
        except AttributeError as error:  # Python 3.12.1, of a transport that the server has closed
            raise self._cut_off("the server has closed the connection") from error

    async def read(self, limit: float) -> Any:
        """Return the next answer if it comes in time; else raise TimeoutError, and stay open."""
        try:
            async with within(limit):
                return await self._redis.read_response(disconnect_on_error=False)
        except self._said as error:
            return error.with_traceback(None)  # see `sound`

    async def _receive(self, *, to_the_end: bool) -> Any:
        while True:
            try:
                return await self._redis.read_response(disconnect_on_error=False)
            except self._said as error:
                if self._target.was_demoted(error):
                    await self.drop()
                return error.with_traceback(None)  # see `sound`
            except asyncio.CancelledError as error:
                if not to_the_end:
                    raise
                self._cancelled = error.args  # by which anyio knows its scopes

    async def _failed(self, error: BaseException, limit: float) -> None:
        """Close the connection; raise what the end of the time made of it."""
        late = self._deadline is not None and not self._deadline.left()
        self._deadline = None
        await self.drop()
        if isinstance(error, TimeoutError) or (late and isinstance(error, Exception)):
            raise self._overdue(f"no answer within {limit:g} s") from error

    def _limit_to(self, limit: float) -> None:
        """Have the connection be closed when there is no answer in time; see `loops.within`."""
        self._deadline = Deadline(self._loop.time() + limit, self._loop.time)
        if self._timer is not None and self._timer.when() > self._deadline.at:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline.at, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if self._deadline.left() or self._deadline.put_off():
            self._timer = self._loop.call_at(self._deadline.at, self._due)
        else:
            self._closing = self._loop.create_task(self.drop())  # what ends the reading

    def end(self) -> None:
        """Raise the cancellation that came while a question was asked, if one did."""
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None:
            raise asyncio.CancelledError(*cancelled)

    async def drop(self) -> None:
        """Close the connection; the next command opens it again."""
        await self._redis.disconnect(nowait=True)

    async def close(self) -> None:
        """Close the connection and see it closed."""
        if self._timer is not None:
            self._timer.cancel()
        with suppress(OSError, asyncio.TimeoutError):
            await self._redis.disconnect()
