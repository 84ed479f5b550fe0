"""Waiting for a lock without a herd: a refused claim blocks on one node until it gets a hint.

All waiters for a name block on the same node, so that they form one queue, and each release leaves
one hint, which wakes the first of them. Only a hint: what counts are the votes. One that is lost,
or was taken by a crashed process, costs the others no more than `SAFETY`.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...core.threads import Mutex
from .nodes import Cluster
from .rounds import waiting_node

__all__ = [
    "MAKE_WAY",
    "SAFETY",
    "WAITING",
    "Contended",
    "LocalWaiters",
    "Turn",
    "turn",
    "waiting_nodes",
]

SAFETY = 0.25
"""Seconds after which a waiter asks without a hint: a crashed holder wakes none."""
FEW, SELDOM = 16, 3
"""Of more waiters of one process for one name each asks the more seldom, up to that many times: so
that it is known all the time that there is a waiter (`_NOTED`)."""
WAITING = 64
"""How many threads of an alias, or tasks of an event loop, block at the same time; others poll."""
MAKE_WAY = 0.001
"""Seconds that a releasing process leaves to the waiter that it woke."""
_LATELY = 0.02  # seconds after a release in which its thread or task is taken to be that one
_LATE = 0.15  # seconds after which the end of a block is overdue: a server checks every 0.1 s
_NOTED = 1000  # ms that it is known that there is a waiter
_MOST = 1000  # names that are remembered


@dataclass(frozen=True, slots=True)
class Turn:
    """One time of blocking."""

    key: str
    """Of the lock, on a node."""
    seconds: float
    patience: float
    """Seconds after which the answer is not awaited any more."""

    @property
    def is_whole(self) -> bool:
        """Whether a node that has not answered by then hangs, rather than that the wait is over."""
        return self.patience >= self.seconds + _LATE

    def commands(self) -> list[tuple[str, ...]]:
        """Return what says that there is a waiter, and blocks until there is a hint."""
        return [
            ("SET", f"{self.key}:waits", "1", "PX", str(_NOTED)),
            ("BLPOP", f"{self.key}:hints", f"{self.seconds:.3f}"),
        ]


def turn(key: str, limit: float, left: float | None, waiting: int = 1) -> Turn:
    """Return how long to block, with a ``limit`` and ``left`` seconds of the wait.

    Spread out, so that the waiters for a crashed holder's lock do not all ask at once. Of many that
    are ``waiting`` in this process each asks the more seldom, so that one of them asks as soon, and
    the nodes are not kept busy by useless requests.
    """
    seconds = SAFETY * min(max(1.0, waiting / FEW), SELDOM)
    seconds *= random.uniform(0.8, 1.0)  # noqa: S311 - spreads load, hides nothing
    if limit < seconds:
        seconds = limit + random.uniform(0, 0.02)  # noqa: S311 - no secret
    if left is not None:
        seconds = min(seconds, left)
    patience = seconds + _LATE
    # Past the end of the wait nothing is awaited; the connection is closed then.
    return Turn(key, max(seconds, 0.001), patience if left is None else min(patience, left + 0.01))


def waiting_nodes(cluster: Cluster, key: str) -> Iterator[int]:
    """Yield the nodes to wait at, the best first: in an order that is the same for all.

    Backwards, so that of those that are up it is the one that is told last of a release.
    """
    last, nodes = waiting_node(key), cluster.nodes
    for number in range(last, last - len(nodes), -1):
        if nodes[number % len(nodes)].down is None:
            yield number % len(nodes)


class LocalWaiters:
    """How many of this process wait for each name."""

    def __init__(self) -> None:
        # Re-entrant: the handler of a signal may wait for a lock, too.
        self._mutex = Mutex()
        self._waiting: Counter[str] = Counter()

    @contextmanager
    def joined(self, key: str) -> Iterator[int]:
        """Count one more during the block, which is told how many there are."""
        with self._mutex:
            self._waiting[key] += 1
            count = self._waiting[key]
        try:
            yield count
        finally:
            with self._mutex:
                self._waiting[key] -= 1
                if not self._waiting[key]:
                    del self._waiting[key]


class Contended:
    """The names that were released a moment ago while others waited for them."""

    def __init__(self) -> None:
        self._released: dict[str, float] = {}

    def add(self, key: str) -> None:
        """Note one that is released now."""
        if len(self._released) >= _MOST:
            self._released.clear()
        self._released[key] = time.monotonic()

    def __contains__(self, key: str) -> bool:
        released = self._released.get(key)
        return released is not None and time.monotonic() - released < _LATELY

    def take(self, key: str) -> bool:
        """Forget one, and tell whether it was there."""
        known = key in self
        self._released.pop(key, None)
        return known
