"""How many locks were held, and how many waited, as this process has seen it in the last minutes.

The page's charts begin with that. Nobody counts by himself: each page and each refresh does.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["EVERY", "KEPT", "Samples", "samples"]

KEPT = 600.0  # seconds; the charts show as many
EVERY = 4.0  # seconds between two samples, however many look

Sample = tuple[float, int, int | None]
"""Its time, or its age; how many were held; and how many waited, as far as the stores know."""


class Samples:
    """What was seen; no more than `KEPT` through `EVERY`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: tuple[Sample, ...] = ()

    def add(self, held: int, waiting: int | None) -> list[Sample]:
        """Return what was seen before, each with its age in seconds, and keep what is seen now."""
        now = self._clock()
        # Replaced, and never changed: of two threads at once one may lose its sample, no more.
        seen = tuple(each for each in self._seen if now - each[0] < KEPT)
        if not seen or now - seen[-1][0] >= EVERY:
            self._seen = (*seen, (now, held, waiting))
        return [(round(now - each[0], 1), *each[1:]) for each in seen]


samples = Samples()
"""Those of this process."""
