"""The claims of one process that wait for one lock, in the order of their coming."""

from __future__ import annotations

import random
from collections import deque

from ...core import threads
from ...core.values import Claim
from .doors import Door

__all__ = ["Line", "Visit"]

NAP, LONGEST_NAP = 0.005, 0.05  # seconds between two looks of who is inside at a held row


class Visit:
    """One claim in its line, from its first wait to its release."""

    __slots__ = ("called", "claim", "end", "line", "nap", "until")

    def __init__(self, claim: Claim, line: Line) -> None:
        self.claim = claim
        self.line = line
        self.end: float | None = None  # when its wait is over; None: never
        self.until: float | None = None  # when its lease ends; None while it waits
        self.nap = NAP
        self.called = threads.Event()  # it may go in, or there is no room

    def is_inside(self) -> bool:
        """Return whether its turn has come. Asked under the rooms' mutex."""
        return self.line.inside and self.line.visits[0] is self

    def next_nap(self) -> float:
        """Return how long to sleep before the next look, when inside.

        Who holds the lock has not come through the room, so that nothing tells of its release.
        There is only one for each name who looks so often.
        """
        nap, self.nap = self.nap, min(2 * self.nap, LONGEST_NAP)
        return nap * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


class Line:
    """The claims of this process for one name, the first of whom may go ``inside``.

    It has a ``door`` while it waits there, is inside, or is about to leave.
    """

    __slots__ = ("door", "inside", "key", "visits")

    def __init__(self, key: str) -> None:
        self.key = key
        self.visits: deque[Visit] = deque()
        self.door: Door | None = None
        self.inside = False
