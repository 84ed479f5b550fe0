"""Asking all nodes at once, from a thread: send to all, then read from all, on one thread.

A `Ring` is a connection to each node, lent to one thread for one operation. What a node does not
answer in time, it owes: the connection stays open, and the answer is read before the next one. So a
node that was stopped gets a request and its undoing in their order, when it goes on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from ...core import flow
from ...core.fork import park
from ...core.threads import Places
from .asking import Operation, QuorumError
from .course import Course
from .nodes import Cluster, Progress
from .waiting import WAITING, Turn
from .wire import Wire

__all__ = ["Ring", "Rings"]

T = TypeVar("T")

IDLE = 64  # rings that are kept when nobody needs them


class Ring:
    """A wire to each node."""

    def __init__(self, cluster: Cluster, limit: float) -> None:
        from redis.exceptions import RedisError

        self._failures = (RedisError, OSError)
        self._wires = [Wire(node, limit) for node in cluster.nodes]
        self.course = Course(
            cluster,
            self._wires,
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
            self._wires[number].connect(max(limit, 0.02))
        except self._failures as error:
            return {number: error}
        return {number: None}

    def close(self) -> None:
        """Close the wires."""
        for wire in self._wires:
            with suppress(OSError):
                wire.drop()


class Rings:
    """The rings of a process: each is lent for one operation."""

    def __init__(self, cluster: Cluster, limit: float) -> None:
        self._cluster = cluster
        self._limit = limit
        self._idle: deque[Ring] = deque()
        self._closed = False
        self._places = Places(WAITING)

    def run(self, operation: Operation[T]) -> T:
        """Carry an operation out, round by round."""
        ring = self._lend()
        try:
            result = flow.run(ring.course.carry_out(operation))
        except QuorumError:
            self._give_back(ring)
            raise
        except BaseException:
            ring.close()  # what was sent, and not read, is not known
            raise
        self._give_back(ring)
        return result

    def wait(self, turn: Turn) -> bool:
        """Block on one node; False when there is no place to."""
        places = self._places
        place = places.take()
        if place is None:
            return False
        try:
            ring = self._lend()
            try:
                waited = flow.run(ring.course.wait(turn))
            except BaseException:
                ring.close()
                raise
            self._give_back(ring)
            return waited
        finally:
            places.release(place)

    def _lend(self) -> Ring:
        try:
            return self._idle.pop()
        except IndexError:
            return Ring(self._cluster, self._limit)

    def _give_back(self, ring: Ring) -> None:
        if self._closed or len(self._idle) >= IDLE:
            ring.close()
        else:
            self._idle.append(ring)

    def close_idle(self) -> None:
        """Close the rings that are not in use."""
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
        self._idle, self._places = deque(), Places(WAITING)
