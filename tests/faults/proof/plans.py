"""What a client does in one round, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["NAMES", "Plan", "draw"]

NAMES = ("first", "second")


@dataclass(frozen=True, slots=True)
class Plan:
    """One round: wait at most ``wait`` seconds for ``name``, and do the steps under it.

    ``cancel_after``: seconds after which a waiting task is cancelled; None for not at all.
    """

    name: str
    wait: float
    renew: bool
    cancel_after: float | None
    steps: tuple[tuple[str, float], ...]


def draw(chance: random.Random, ttl: float) -> Plan:
    """Draw a round."""
    kinds = ("check", "check", "write", "write", "write", "renew", "again", "sleep")
    steps = tuple(
        (chance.choice(kinds), chance.uniform(0.0, ttl / 20)) for _ in range(chance.randint(1, 5))
    )
    renew = chance.random() < 0.9
    if not renew and chance.random() < 0.3:
        # Longer than the ttl, without a renewal: the lease is lost, and a stale write follows.
        steps = (*steps, ("sleep", ttl * 1.2), ("check", 0.0), ("write", 0.0))
    return Plan(
        name=chance.choice(NAMES),
        wait=chance.choice((0.0, ttl / 4, ttl * 2, ttl * 6)),
        renew=renew,
        cancel_after=chance.uniform(0, ttl / 2) if chance.random() < 0.1 else None,
        steps=steps,
    )
