"""The local clock by which a lease knows its own end."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

__all__ = ["GRACE", "STILL", "Clock", "Deadline", "now"]

Clock = Callable[[], float]

STILL = 0.05
"""Seconds by which a limit is noticed late where this process, or its machine, stood still."""
GRACE = 1.0
"""Seconds that are then given, once, to what may have been answered meanwhile and was not read."""

# CLOCK_BOOTTIME goes on while the machine sleeps and CLOCK_MONOTONIC stands still: after a laptop
# or a virtual machine woke up, a lease must not look younger than the store thinks it is.
now: Clock = time.monotonic
if hasattr(time, "CLOCK_BOOTTIME"):
    now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class Deadline:
    """When a limit is over, by ``clock``; it is put off, once, where that is noticed late.

    What was answered while this process, or its machine, stood still is there, or about to come.
    """

    __slots__ = ("_clock", "_spared", "at")

    def __init__(self, at: float, clock: Clock) -> None:
        self.at = at
        self._clock = clock
        self._spared = False

    def left(self) -> float:
        """Return the seconds that are left, 0 when it is over."""
        return max(0.0, self.at - self._clock())

    def put_off(self) -> bool:
        """Put it off if it is over for more than STILL; tell whether it was."""
        now = self._clock()
        if self._spared or now - self.at <= STILL:
            return False
        self._spared, self.at = True, now + GRACE
        return True
