"""How long to sleep between two attempts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

__all__ = ["Backoff", "delays"]


def delays(shortest: float = 0.005, longest: float = 0.1) -> Iterator[float]:
    """Yield sleeps in seconds: doubling from ``shortest`` up to ``longest``, each jittered.

    The jitter takes away up to half, so that waiters that began together do not stay together
    (Brooker, "Exponential Backoff And Jitter", AWS 2015: equal jitter).
    """
    step = shortest
    while True:
        yield step * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, hides nothing
        step = min(step * 2, longest)


@dataclass(frozen=True, slots=True)
class Backoff:
    """The sleeps of `delays`, from the start for each iteration; ``times`` of them."""

    shortest: float
    longest: float
    times: int | None = None

    def __iter__(self) -> Iterator[float]:
        return islice(delays(self.shortest, self.longest), self.times)
