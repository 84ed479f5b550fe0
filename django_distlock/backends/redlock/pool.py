"""Asking all nodes at once, from threads and from event loops: send to all, then read from all.

A `QuorumClient` is a connection to each node, lent to one thread or task for one operation. What a
node does not answer in time, it owes: the connection stays open, and the answer is read before the
next one. So a node that was stopped gets a request and its undoing in their order, when it goes on.

An event loop has connections of its own, and closes them when it ends: one that outlives its loop
could not be closed any more.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from ...core import flow
from ...core.fork import park
from ...core.loops import PerLoop
from ...core.threads import Permits
from .connection import AsyncNodeConnection, NodeConnection
from .nodes import Cluster, Progress
from .rounds import Operation, QuorumError
from .runner import RoundRunner
from .waiting import WAITING, Turn

__all__ = ["AsyncNodePool", "NodePool", "QuorumClient"]

T = TypeVar("T")

IDLE = 64  # idle clients that are kept
GLANCE = 0.0005  # seconds for an answer that is not waited for


class QuorumClient:
    """A connection to each node."""

    def __init__(self, cluster: Cluster, limit: float) -> None:
        from redis.exceptions import RedisError

        self._failures = (RedisError, OSError)
        self._connections = [NodeConnection(node, limit) for node in cluster.nodes]
        self.runner = RoundRunner(
            cluster,
            self._connections,
            sleep=time.sleep,
            connect=self._connect,
            awaited=False,
            glance=0.0,
        )

    def _connect(
        self, progress: Progress, numbers: Sequence[int], begun: float, left: int
    ) -> dict[int, Exception | None]:
        """Connect to one node, with so many ``left`` to connect to, of those begun with then."""
        (number,) = numbers
        now = time.monotonic()
        limit = min((progress.end - now) / (left + 1), progress.connecting_ends(begun, 0) - now)
        try:
            self._connections[number].connect(max(limit, 0.02))
        except self._failures as error:
            return {number: error}
        return {number: None}

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            with suppress(OSError):
                connection.drop()


class NodePool:
    """The pools of a process: each is lent for one operation."""

    def __init__(self, cluster: Cluster, limit: float) -> None:
        self._cluster = cluster
        self._limit = limit
        self._idle: deque[QuorumClient] = deque()
        self._closed = False
        self._permits = Permits(WAITING)

    def run(self, operation: Operation[T]) -> T:
        """Carry an operation out, round by round."""
        client = self._lend()
        try:
            result = flow.run(client.runner.carry_out(operation))
        except QuorumError:
            self._give_back(client)
            raise
        except BaseException:
            client.close()  # what was sent, and not read, is not known
            raise
        self._give_back(client)
        return result

    def wait(self, turn: Turn) -> bool:
        """Block on one node; False when there is no permit to."""
        permits = self._permits
        permit = permits.take()
        if permit is None:
            return False
        try:
            client = self._lend()
            try:
                waited = flow.run(client.runner.wait(turn))
            except BaseException:
                client.close()
                raise
            self._give_back(client)
            return waited
        finally:
            permits.release(permit)

    def _lend(self) -> QuorumClient:
        try:
            return self._idle.pop()
        except IndexError:
            return QuorumClient(self._cluster, self._limit)

    def _give_back(self, client: QuorumClient) -> None:
        if self._closed or len(self._idle) >= IDLE:
            client.close()
        else:
            self._idle.append(client)

    def close_idle(self) -> None:
        """Close the pools that are not in use."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def close(self) -> None:
        """Close those, and the others when they are given back."""
        self._closed = True
        self.close_idle()

    def forget_parent(self) -> None:
        """Begin again in a forked child; the connections are the parent's."""
        park(self._idle)
        self._idle, self._permits = deque(), Permits(WAITING)


class AsyncQuorumClient:
    """A connection to each node, as `QuorumClient` has one."""

    def __init__(self, cluster: Cluster, limit: float) -> None:
        from redis.exceptions import RedisError

        self._failures = (RedisError, OSError)
        self._connections = [AsyncNodeConnection(node, limit) for node in cluster.nodes]
        self.runner = RoundRunner(
            cluster,
            self._connections,
            sleep=asyncio.sleep,
            connect=self._connect,
            awaited=True,
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
            await self._connections[number].connect(max(progress.end - time.monotonic(), 0.02))
        except self._failures as error:
            return error
        return None

    async def drop(self) -> None:
        """Close the connections without waiting."""
        for connection in self._connections:
            await connection.drop()

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            await connection.close()


class _LoopNodePool:
    """The pools of one event loop."""

    def __init__(self, cluster: Cluster, limit: float) -> None:
        self._cluster = cluster
        self._limit = limit
        self._idle: deque[AsyncQuorumClient] = deque()
        self._permits = WAITING
        self.closed = False

    async def aclose(self) -> None:
        """Close what no task uses now, and the rest when it is given back."""
        self.closed = True
        while self._idle:
            await self._idle.popleft().close()

    async def run(self, operation: Operation[T]) -> T:
        """Carry an operation out, round by round."""
        client = self._lend()
        try:
            result = await flow.arun(client.runner.carry_out(operation))
        except QuorumError:
            await self._give_back(client)
            raise
        except BaseException:
            await client.drop()  # what was sent, and not read, is not known
            raise
        await self._give_back(client)
        return result

    async def wait(self, turn: Turn) -> bool:
        """Block on one node; False when there is no permit to."""
        if not self._permits:
            return False
        self._permits -= 1
        client = self._lend()
        try:
            waited = await flow.arun(client.runner.wait(turn))
        except BaseException:
            await client.drop()
            raise
        finally:
            self._permits += 1
        await self._give_back(client)
        return waited

    def _lend(self) -> AsyncQuorumClient:
        return self._idle.pop() if self._idle else AsyncQuorumClient(self._cluster, self._limit)

    async def _give_back(self, client: AsyncQuorumClient) -> None:
        if self.closed or len(self._idle) >= IDLE:
            await client.close()
        else:
            self._idle.append(client)

    async def close_idle(self) -> None:
        """Close what no task uses now."""
        while self._idle:  # without a pause: the loop may cancel us at its end
            await self._idle.popleft().drop()


class AsyncNodePool:
    """NodePool for each event loop."""

    def __init__(self, cluster: Cluster, limit: float) -> None:
        self._loops = PerLoop(lambda: _LoopNodePool(cluster, limit))

    async def run(self, operation: Operation[T]) -> T:
        """Carry an operation out on this loop's pools."""
        return await (await self._loops.mine()).run(operation)

    async def wait(self, turn: Turn) -> bool:
        """Block on one node; False when there is no permit to."""
        return await (await self._loops.mine()).wait(turn)

    def close_idle(self) -> None:
        """Have each loop close, soon, what no task uses now."""
        self._loops.each(_LoopNodePool.close_idle)

    def close(self) -> None:
        """Have each loop close what it has open."""
        self._loops.close()
