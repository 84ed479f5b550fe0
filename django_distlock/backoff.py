"""How long to sleep between two looks at a lock."""

from __future__ import annotations

import random
from collections.abc import Iterator

__all__ = ["delays"]


def delays(shortest: float = 0.005, longest: float = 0.1) -> Iterator[float]:
    """Yield sleeps in seconds: doubling from ``shortest`` up to ``longest``, each jittered.

    The jitter takes away up to half, so that waiters who began together do not stay together
    (Brooker, "Exponential Backoff And Jitter", AWS 2015: equal jitter).
    """
    step = shortest
    while True:
        yield step * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, hides nothing
        step = min(step * 2, longest)
