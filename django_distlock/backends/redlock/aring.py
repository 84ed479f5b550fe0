"""Asking all nodes at once, from an event loop: as `ring.py`, by connections of the loop's own.

When the loop ends they are closed by it: one that outlives its loop could not be closed any more.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import TypeVar

from ...transactions import INHERITED
from .asking import Operation, QuorumError
from .awire import AsyncWire
from .course import Course, Steps
from .nodes import Cluster, Progress
from .ring import IDLE
from .waiting import WAITING, Turn

__all__ = ["AsyncRings"]

T = TypeVar("T")

GLANCE = 0.0005  # seconds for an answer that is not waited for


class AsyncRing:
    """A wire to each node, see `ring.Ring`."""

    def __init__(self, cluster: Cluster, limit: float) -> None:
        from redis.exceptions import RedisError

        self._failures = (RedisError, OSError)
        self._wires = [AsyncWire(node, limit) for node in cluster.nodes]
        self.course = Course(
            cluster,
            self._wires,
            sleep=asyncio.sleep,
            connect=self._connect,
            together=True,
            glance=GLANCE,
        )

    async def _connect(
        self, progress: Progress, numbers: Sequence[int], begun: float, left: int
    ) -> dict[int, Exception | None]:
        """Connect to all at the same time."""
        tasks = {number: asyncio.create_task(self._open(progress, number)) for number in numbers}
        end, pending = progress.end, set(tasks.values())
        try:
            while pending:
                connected = sum(task.done() and task.result() is None for task in tasks.values())
                end = min(end, progress.connecting_ends(begun, connected))
                if (limit := end - time.monotonic()) <= 0:
                    break
                _, pending = await asyncio.wait(
                    pending, timeout=limit, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            for task in pending:
                task.cancel()
            if pending:
                await asyncio.wait(pending)
        return {
            number: TimeoutError("no connection in time") if task in pending else task.result()
            for number, task in tasks.items()
        }

    async def _open(self, progress: Progress, number: int) -> Exception | None:
        try:
            await self._wires[number].connect(max(progress.end - time.monotonic(), 0.02))
        except self._failures as error:
            return error
        return None

    async def drop(self) -> None:
        """Close the wires without waiting."""
        for wire in self._wires:
            await wire.drop()

    async def close(self) -> None:
        """Close the wires."""
        for wire in self._wires:
            await wire.close()


async def _drive(steps: Steps[T]) -> T:
    """Await the calls of a course, one after the other."""
    try:
        call, arguments = next(steps)
        while True:
            try:
                answer = await call(*arguments)
            except Exception as error:  # noqa: BLE001 - the course's to judge
                call, arguments = steps.throw(error)
            else:
                call, arguments = steps.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


class _LoopRings:
    """The rings of one event loop."""

    def __init__(self, cluster: Cluster, limit: float) -> None:
        self._cluster = cluster
        self._limit = limit
        self._idle: deque[AsyncRing] = deque()
        self._places = WAITING
        self.closed = False
        self._closing: asyncio.Task[None] | None = None
        self._keeper = self._keep()

    async def _keep(self) -> AsyncGenerator[None, None]:
        # A loop closes the generators that were begun on it before it ends, and that is the only
        # word that it gives of its end.
        try:
            yield
        finally:
            self.closed = True
            while self._idle:
                await self._idle.popleft().close()

    async def begin(self) -> None:
        """Have the loop tell of its end."""
        await anext(self._keeper)

    async def run(self, operation: Operation[T]) -> T:
        """Carry an operation out, round by round."""
        ring = self._lend()
        try:
            result = await _drive(ring.course.carry_out(operation))
        except QuorumError:
            await self._give_back(ring)
            raise
        except BaseException:
            await ring.drop()  # what was sent, and not read, is not known
            raise
        await self._give_back(ring)
        return result

    async def wait(self, turn: Turn) -> bool:
        """Block on one node; False when there is no place to."""
        if not self._places:
            return False
        self._places -= 1
        ring = self._lend()
        try:
            waited = await _drive(ring.course.wait(turn))
        except BaseException:
            await ring.drop()
            raise
        finally:
            self._places += 1
        await self._give_back(ring)
        return waited

    def _lend(self) -> AsyncRing:
        return self._idle.pop() if self._idle else AsyncRing(self._cluster, self._limit)

    async def _give_back(self, ring: AsyncRing) -> None:
        if self.closed or len(self._idle) >= IDLE:
            await ring.close()
        else:
            self._idle.append(ring)

    def close_soon(self) -> None:
        """Close from a callback of the loop."""
        self._closing = asyncio.ensure_future(self._finish())

    def close_idle_soon(self) -> None:
        """Close what no task uses now, from a callback of the loop."""
        self._closing = asyncio.ensure_future(self._close_idle())

    async def _close_idle(self) -> None:
        while self._idle:  # without a pause: the loop may cancel us at its end
            await self._idle.popleft().drop()

    async def _finish(self) -> None:
        await self._keeper.aclose()


class AsyncRings:
    """Rings for each event loop."""

    def __init__(self, cluster: Cluster, limit: float) -> None:
        self._cluster = cluster
        self._limit = limit
        self._mutex = threading.Lock()
        self._loops: dict[int, tuple[asyncio.AbstractEventLoop, _LoopRings]] = {}

    async def run(self, operation: Operation[T]) -> T:
        """Carry an operation out on this loop's rings."""
        return await (await self._mine()).run(operation)

    async def wait(self, turn: Turn) -> bool:
        """Block on one node; False when there is no place to."""
        return await (await self._mine()).wait(turn)

    async def _mine(self) -> _LoopRings:
        loop = asyncio.get_running_loop()
        found = self._loops.get(id(loop))
        if found is not None and found[0] is loop and not found[1].closed:
            return found[1]
        rings = _LoopRings(self._cluster, self._limit)
        with self._mutex:
            for number, (other, _) in list(self._loops.items()):
                if other.is_closed():
                    del self._loops[number]
            self._loops[id(loop)] = loop, rings
        await rings.begin()
        return rings

    def close_idle(self) -> None:
        """Have each loop close, soon, what no task uses now."""
        for loop, rings in list(self._loops.values()):
            if not loop.is_closed():
                with suppress(RuntimeError):  # closed meanwhile
                    loop.call_soon_threadsafe(rings.close_idle_soon)

    def close(self) -> None:
        """Have each loop close what it has open."""
        with self._mutex:
            found = list(self._loops.values())
            self._loops.clear()
        for loop, rings in found:
            if not loop.is_closed():
                with suppress(RuntimeError):  # closed meanwhile
                    loop.call_soon_threadsafe(rings.close_soon)

    def forget_parent(self) -> None:
        """Begin anew in a forked child.

        The connections are kept there: dropped, they would be taken off the parent's event loop,
        whose list of sockets the kernel keeps for both.
        """
        INHERITED.append(self._loops)
        self._mutex, self._loops = threading.Lock(), {}
