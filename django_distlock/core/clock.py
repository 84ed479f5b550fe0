"""The local clock by which a lease knows its own end."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

__all__ = ["GRACE", "STILL", "Clock", "now"]

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
