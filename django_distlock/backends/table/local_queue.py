"""The local queue: the claims of one process that wait for one lock, first come, first served."""

from __future__ import annotations

import random
from collections import deque

from ...core import threads
from ...core.values import Claim
from .queue_connections import QueueConnection

__all__ = ["LocalQueue", "QueueEntry"]

NAP, LONGEST_NAP = 0.005, 0.05  # seconds between two attempts of the first waiter on a held row


class QueueEntry:
    """One claim in its local queue, from its first wait to its release."""

    __slots__ = ("called", "claim", "end", "nap", "queue", "until")

    def __init__(self, claim: Claim, queue: LocalQueue) -> None:
        self.claim = claim
        self.queue = queue
        self.end: float | None = None  # when its wait is over; None: never
        self.until: float | None = None  # when its lease ends; None while it waits
        self.nap = NAP
        self.called = threads.Event()  # its turn has come, or there is no wait queue

    def is_inside(self) -> bool:
        """Return whether its turn has come. Asked under the wait queues' mutex."""
        return self.queue.inside and self.queue.entries[0] is self

    def next_nap(self) -> float:
        """Return how long to sleep before the next attempt, when it is first.

        The holder has not come through the wait queue, so that nothing tells of its release.
        There is only one waiter of each name that asks so often.
        """
        nap, self.nap = self.nap, min(2 * self.nap, LONGEST_NAP)
        return nap * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


class LocalQueue:
    """The claims of this process for one name.

    It has a ``queue_connection`` while it waits in the server's queue, is ``inside`` (the first of
    the server's queue, so that its own first claim may take the lock), or is about to leave.
    """

    __slots__ = ("entries", "inside", "key", "queue_connection")

    def __init__(self, key: str) -> None:
        self.key = key
        self.entries: deque[QueueEntry] = deque()
        self.queue_connection: QueueConnection | None = None
        self.inside = False
