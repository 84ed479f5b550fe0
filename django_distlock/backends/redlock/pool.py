"""Asking all nodes at once, from a thread: send to all, then read from all, on one thread.

A `QuorumClient` is a connection to each node, lent to one thread for one operation. What a node
does not answer in time, it owes: the connection stays open, and the answer is read before the next
one. So a node that was stopped gets a request and its undoing in their order, when it goes on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from ...core import flow
from ...core.fork import park
from ...core.threads import Permits
from .connection import NodeConnection
from .nodes import Cluster, Progress
from .rounds import Operation, QuorumError
from .runner import RoundRunner
from .waiting import WAITING, Turn

__all__ = ["NodePool", "QuorumClient"]

T = TypeVar("T")

IDLE = 64  # idle clients that are kept


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
