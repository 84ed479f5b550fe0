"""Asking all nodes at once, from an event loop: as `ring.py`, by connections of the loop's own.

When the loop ends they are closed by it: one that outlives its loop could not be closed any more.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from ...transactions import INHERITED
from .asking import Answers, NotAskedError, Operation, QuorumError, Round
from .awire import AsyncWire
from .nodes import CONNECT, OWED, PATIENCE, Cluster, Progress
from .ring import IDLE
from .waiting import WAITING, Turn, rooms
from .wire import SLICE

__all__ = ["AsyncRings"]

T = TypeVar("T")

GLANCE = 0.0005  # seconds for an answer that is not waited for


class AsyncRing:
    """A wire to each node, see `ring.Ring`."""

    def __init__(self, cluster: Cluster, limit: float) -> None:
        from redis import exceptions

        self._errors = exceptions
        self._cluster = cluster
        self._wires = [AsyncWire(node, limit) for node in cluster.nodes]

    async def ask(self, round_: Round) -> Answers:
        """Carry a round out."""
        if round_.after:
            await asyncio.sleep(round_.after)
        progress = Progress(round_, len(self._wires), self._cluster.asked(round_))
        packed = b"".join(self._wires[0].connection.pack_commands(round_.commands()))
        await self._ask(progress, progress.asked, packed)
        await self._read(progress, packed)
        if rest := progress.rest():
            await self._ask(progress, rest, packed)
            await self._read(progress, packed)
        return progress.close(self._cluster.nodes)

    async def _ask(self, progress: Progress, numbers: Iterable[int], packed: bytes) -> None:
        unconnected = []
        for number in numbers:
            wire = self._wires[number]
            if wire.silent_for > PATIENCE:
                await self._give_up(progress, number, TimeoutError(f"silent for {PATIENCE:g} s"))
            elif wire.connection.is_connected:
                await self._send(progress, number, packed)
            else:
                unconnected.append(number)
        if unconnected:
            await self._connect_all(progress, unconnected, packed)

    async def _connect_all(self, progress: Progress, numbers: Iterable[int], packed: bytes) -> None:
        """Connect at the same time; once there is a quorum, leave those that take much longer."""
        tasks = {asyncio.create_task(self._connect(progress, n, packed)): n for n in numbers}
        started, pending, end = time.monotonic(), set(tasks), progress.end
        try:
            while pending and (left := end - time.monotonic()) > 0:
                done, pending = await asyncio.wait(
                    pending, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
                if progress.enough:
                    taken = time.monotonic() - started
                    end = min(end, started + taken + max(CONNECT, 3 * taken))
        finally:
            for task in pending:
                task.cancel()
            if pending:
                await asyncio.wait(pending)
        for task in pending:
            await self._give_up(progress, tasks[task], TimeoutError("no connection in time"))

    async def _connect(self, progress: Progress, number: int, packed: bytes) -> None:
        try:
            await self._wires[number].connect(max(progress.end - time.monotonic(), 0.02))
        except TimeoutError:
            await self._give_up(progress, number, TimeoutError("no connection in time"))
        except (self._errors.RedisError, OSError) as error:
            await self._give_up(progress, number, error)
        else:
            self._cluster.reached(number)
            await self._send(progress, number, packed)

    async def _send(self, progress: Progress, number: int, packed: bytes) -> None:
        wire = self._wires[number]
        if wire.owed >= OWED and not await self._catches_up(wire):
            progress.got(number, NotAskedError(f"it owes {OWED} answers"))
            return
        owed = wire.owed
        try:
            await wire.send(packed, len(progress.round.calls))
        except self._errors.RedisError as error:
            if progress.may_repeat(number, error):
                await wire.drop()
                await self._connect(progress, number, packed)
            else:
                await self._give_up(progress, number, error)
        else:
            progress.sent(number, owed)

    async def _catches_up(self, wire: AsyncWire) -> bool:
        """Read what a node that went on has answered by now; tell whether it owes less."""
        try:
            await wire.receive(GLANCE)
        except (self._errors.TimeoutError, TimeoutError):
            return wire.owed < OWED
        except (self._errors.RedisError, OSError):
            await wire.drop()
            return False
        return True

    async def _read(self, progress: Progress, packed: bytes) -> None:
        while True:
            until = progress.until()
            now = time.monotonic()
            if until <= now:
                return
            others = bool(progress.fresh)
            for number in list(progress.pending):
                waits = number in progress.fresh or not others
                limit = min(SLICE, until - now) if waits else GLANCE
                await self._receive(progress, number, packed, limit)

    async def _receive(self, progress: Progress, number: int, packed: bytes, limit: float) -> None:
        wire = self._wires[number]
        try:
            answer = await wire.receive(limit)
        except (self._errors.TimeoutError, TimeoutError):
            return
        except (self._errors.RedisError, OSError) as error:
            await wire.drop()
            if progress.may_repeat(number, error):
                progress.pending.remove(number)
                await self._connect(progress, number, packed)
            else:
                await self._give_up(progress, number, error)
            return
        if self._errors.NoScriptError in map(type, answer):
            load = wire.connection.pack_command("SCRIPT", "LOAD", progress.round.script.source)
            try:
                await wire.send(b"".join(load), 1)
                await wire.send(packed, len(progress.round.calls))
            except self._errors.RedisError as error:
                await self._give_up(progress, number, error)
            return
        progress.got(number, answer)

    async def _give_up(self, progress: Progress, number: int, error: Exception) -> None:
        await self._wires[number].drop()
        self._cluster.fail(number, error)
        progress.got(number, error)

    async def wait(self, turn: Turn) -> bool:
        """Block as `ring.Ring.wait`."""
        for number in rooms(self._cluster, turn.key):
            wire = self._wires[number]
            if wire.owed:
                continue
            packed = b"".join(wire.connection.pack_commands(turn.commands()))
            try:
                if not wire.connection.is_connected:
                    await wire.connect(turn.patience)
                await wire.wait(packed, turn.patience)
            except (self._errors.TimeoutError, TimeoutError) as error:
                await wire.drop()
                if turn.is_whole:
                    self._cluster.fail(number, error)
            except (self._errors.RedisError, OSError):
                await wire.drop()
                return False
            return True
        return False

    async def drop(self) -> None:
        """Close the wires without waiting."""
        for wire in self._wires:
            await wire.drop()

    async def close(self) -> None:
        """Close the wires."""
        for wire in self._wires:
            await wire.close()


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
        answers: Any = None
        try:
            while True:
                answers = await ring.ask(operation.send(answers))
        except StopIteration as stop:
            await self._give_back(ring)
            result: T = stop.value
            return result
        except QuorumError:
            await self._give_back(ring)
            raise
        except BaseException:
            await ring.drop()  # what was sent, and not read, is not known
            raise

    async def wait(self, turn: Turn) -> bool:
        """Block on one node; False when there is no place to."""
        if not self._places:
            return False
        self._places -= 1
        ring = self._lend()
        try:
            waited = await ring.wait(turn)
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
