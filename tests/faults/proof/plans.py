"""What a client does in one round, drawn from a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["ALONE", "LED", "LIMIT", "LIMITED", "MODES", "SHARED", "Plan", "draw"]

ALONE = ("first", "second")
SHARED, LIMITED, LED = "read and written", "limited", "led"
MODES = {**dict.fromkeys(ALONE, "exclusive"), SHARED: "shared", LIMITED: "limit", LED: "leader"}
"""The names of the locks, and how each is held."""
LIMIT = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """One round: wait at most ``wait`` seconds for ``name``, and do the steps under it.

    ``cancel_after``: seconds after which a waiting task is cancelled; None for not at all.
    ``mode``: options of the lock that say how it is held. ``both``: whether the two exclusive locks
    are taken by one `lock_all`, without waiting, and only written to.
    """

    name: str
    wait: float
    renew: bool
    cancel_after: float | None
    steps: tuple[tuple[str, float], ...]
    mode: dict[str, Any]
    both: bool = False


def draw(
    chance: random.Random, ttl: float, *, expiry: float = 0.0, several: Sequence[str] = ()
) -> Plan:
    """Draw a round: a fifth each of `LED` and of ``several``, of exclusive locks the rest.

    ``several``: what more than one may hold in this store, of `SHARED` and `LIMITED`.

    ``expiry``: after how many seconds the store gives away a lock that is not renewed.
    """
    kinds: tuple[str, ...]
    kinds = ("check", "check", "write", "write", "write", "renew", "again", "sleep")
    name = chance.choice(ALONE)
    mode: dict[str, Any] = {}
    own = (LED, *several)
    if chance.random() < 0.2 * len(own):
        name = chance.choice(own)
    if name in several:
        mode = {"limit": LIMIT} if name == LIMITED else {"shared": chance.random() < 0.7}
        kinds = ("check", "check", "renew", "again", "sleep")  # several would write at once
    steps = tuple(
        (chance.choice(kinds), chance.uniform(0.0, ttl / 20)) for _ in range(chance.randint(1, 5))
    )
    renew = name == LED or chance.random() < 0.9
    if not renew and chance.random() < 0.3:
        # Longer than the lease, without a renewal: it is lost, and a stale write follows.
        steps = (*steps, ("sleep", max(ttl, expiry) * 1.2), ("check", 0.0))
        steps = steps if mode else (*steps, ("write", 0.0))
    return Plan(
        name=name,
        wait=math.inf if name == LED else chance.choice((0.0, ttl / 4, ttl * 2, ttl * 6)),
        renew=renew,
        cancel_after=chance.uniform(0, ttl / 2) if chance.random() < 0.1 else None,
        steps=steps,
        mode=mode,
        both=name in ALONE and chance.random() < 0.15,
    )
