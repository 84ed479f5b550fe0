"""The local clock by which a lease knows its own end."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

__all__ = ["GRACE", "STILL", "Clock", "Deadline", "now"]

Clock = Callable[[], float]

STILL = 0.05
"""Seconds by which a limit is noticed late where this process, or its machine, stood still."""
GRACE = 1.0
"""Seconds that are then given, once, to what may have been answered meanwhile and was not read."""

# After a laptop or a virtual machine woke up, a lease must not look younger than the store thinks
# it is. Linux' CLOCK_BOOTTIME goes on while the machine sleeps, as does macOS' CLOCK_MONOTONIC,
# which is not what time.monotonic() asks there.
_ID: Final = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
now: Clock = time.monotonic if _ID is None else partial(time.clock_gettime, _ID)


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
