"""Since when a record is unchanged: how a live holder is told from a crashed one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from ...core.clock import Clock
from ...core.threads import Mutex

__all__ = ["Liveness"]

MOST: Final = 20_000


class Liveness:
    """What this process has seen of names, and since when it is unchanged.

    No two clocks are compared, and Consul's is not needed: a record that did not change for its
    ttl, by the clock of the watching process, was written longer ago than that. Its holder counts
    from before it wrote, so its own deadline is over. Whoever takes the lock then compares the
    record's index in the same step, so a renewal in between wins.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mutex = Mutex()
        self._seen: OrderedDict[Hashable, tuple[Hashable, float]] = OrderedDict()

    def age(self, what: Hashable, looks: Hashable) -> float:
        """Return for how many seconds ``what`` is unchanged; 0 when it is new."""
        now = self._clock()
        with self._mutex:
            seen = self._seen.get(what)
            if seen is None or seen[0] != looks:
                seen = self._seen[what] = (looks, now)
                if len(self._seen) > MOST:
                    self._seen.popitem(last=False)
            self._seen.move_to_end(what)
            return now - seen[1]

    def forget_parent(self) -> None:
        """Begin again in a forked child, where the mutex may be held by a thread that is not."""
        self._mutex = Mutex()
        self._seen = OrderedDict()
