"""From records to figures. Pure: no database, no clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median
from typing import Any

from .journal import Turn

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Audit:
    """What the database says after a run, against what the workers were told."""

    orders: int
    oversold: int
    lost: int


@dataclass(frozen=True, slots=True)
class RaceResult:
    """The figures of one race; those about a lock are None where there was none."""

    technique: str
    alias: str | None
    audit: Audit
    orders_per_s: float
    handover_median_ms: float | None
    handover_p99_ms: float | None
    worst_wait_ms: float | None
    overlaps: int
    turns: int
    handovers: int

    @property
    def failures(self) -> list[str]:
        """Say what went wrong that a lock has to prevent."""
        found = []
        if self.audit.lost:
            found.append(f"{self.technique}: {self.audit.lost} orders were lost")
        if self.alias is not None and self.audit.oversold:
            found.append(f"{self.technique}: {self.audit.oversold} oversold under the lock")
        if self.overlaps:
            found.append(f"{self.technique}: {self.overlaps} holds of the lock overlapped")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the run as `--json` prints it."""
        return {
            "technique": self.technique,
            "alias": self.alias,
            "orders": self.audit.orders,
            "oversold": self.audit.oversold,
            "lost": self.audit.lost,
            "orders_per_s": round(self.orders_per_s, 1),
            "handover_ms": {
                "median": rounded(self.handover_median_ms),
                "p99": rounded(self.handover_p99_ms),
            },
            "worst_wait_ms": rounded(self.worst_wait_ms),
        }


@dataclass(frozen=True, slots=True)
class KillResult:
    """How the others fared after the holder was killed.

    `waited_ms` is the time from the kill to the first grant of each waiter, in rising order;
    `early` counts grants from before the kill, which a lock must not give.
    """

    technique: str
    alias: str
    ttl_ms: float
    limit_ms: float
    waiters: int
    waited_ms: tuple[float, ...]
    early: int
    audit: Audit

    @property
    def late(self) -> bool:
        """Tell whether the lock came free later than the backend promises."""
        return not self.waited_ms or self.waited_ms[0] > self.limit_ms

    @property
    def failures(self) -> list[str]:
        """Say what went wrong that a lock has to prevent."""
        found = []
        where = f"{self.technique}, after the kill"
        if missing := self.waiters - len(self.waited_ms):
            found.append(f"{where}: {missing} of {self.waiters} workers never got the lock")
        if self.early:
            found.append(f"{where}: {self.early} grants while the victim still held the lock")
        if self.audit.oversold:
            found.append(f"{where}: {self.audit.oversold} oversold under the lock")
        if self.audit.lost:
            found.append(f"{where}: {self.audit.lost} orders were lost")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the run as `--json` prints it."""
        return {
            "technique": self.technique,
            "alias": self.alias,
            "ttl_ms": rounded(self.ttl_ms),
            "limit_ms": rounded(self.limit_ms),
            "waiters": self.waiters,
            "served": len(self.waited_ms),
            "first_grant_ms": rounded(self.waited_ms[0]) if self.waited_ms else None,
            "last_grant_ms": rounded(self.waited_ms[-1]) if self.waited_ms else None,
            "early": self.early,
            "oversold": self.audit.oversold,
            "lost": self.audit.lost,
        }


@dataclass(frozen=True, slots=True)
class LimitResult:
    """How many held a lock with a limit at once, and how often two had one slot."""

    technique: str
    alias: str
    limit: int
    calls: int
    most: int
    slots: tuple[int, ...]
    clashes: int
    calls_per_s: float

    @property
    def failures(self) -> list[str]:
        """Say what went wrong that a limit has to prevent."""
        found = []
        if self.most > self.limit:
            found.append(f"{self.technique}: {self.most} at once under a limit of {self.limit}")
        if self.clashes:
            found.append(f"{self.technique}: {self.clashes} holds had a slot that was held")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the run as `--json` prints it."""
        return {
            "technique": self.technique,
            "alias": self.alias,
            "limit": self.limit,
            "calls": self.calls,
            "most": self.most,
            "slots": list(self.slots),
            "clashes": self.clashes,
            "calls_per_s": round(self.calls_per_s, 1),
        }


def rounded(value: float | None) -> float | None:
    """Keep microseconds of a figure in milliseconds."""
    return None if value is None else round(value, 3)


def count_overlaps(turns: Iterable[Turn]) -> int:
    """Count the holds that began before an earlier one had ended."""
    overlaps = latest = 0
    for turn in sorted(turns, key=lambda turn: turn.granted):
        overlaps += turn.granted < latest
        latest = max(latest, turn.released)
    return overlaps


def most_at_once(turns: Iterable[Turn]) -> int:
    """Return how many holds there were at the same time, at most."""
    steps = [step for turn in turns for step in ((turn.granted, 1), (turn.released, -1))]
    return max(accumulate(step for _, step in sorted(steps)), default=0)


def handovers_ms(turns: Iterable[Turn]) -> list[float]:
    """Return the times from a release to the next grant, where that worker was waiting already."""
    ordered = sorted(turns, key=lambda turn: turn.granted)
    return [
        (after.granted - before.released) / NS_PER_MS
        for before, after in pairwise(ordered)
        if after.worker != before.worker and after.asked <= before.released <= after.granted
    ]


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile, or None of nothing."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def race_result(
    technique: str, alias: str | None, turns: Sequence[Turn], audit: Audit
) -> RaceResult:
    """Work out the figures of a race."""
    seconds = (max(t.released for t in turns) - min(t.asked for t in turns)) / NS_PER_S
    locked = alias is not None
    overlaps = count_overlaps(turns) if locked else 0
    # When holds overlap there is no such thing as handing over.
    gaps = handovers_ms(turns) if locked and not overlaps else []
    worst = max(t.granted - t.asked for t in turns) / NS_PER_MS
    return RaceResult(
        technique=technique,
        alias=alias,
        audit=audit,
        orders_per_s=audit.orders / seconds if seconds else 0.0,
        handover_median_ms=median(gaps) if gaps else None,
        handover_p99_ms=percentile(gaps, 0.99),
        worst_wait_ms=worst if locked else None,
        overlaps=overlaps,
        turns=len(turns),
        handovers=len(gaps),
    )


def limit_result(technique: str, alias: str, limit: int, turns: Sequence[Turn]) -> LimitResult:
    """Work out the figures of the calls under a limit."""
    seconds = (max(t.released for t in turns) - min(t.asked for t in turns)) / NS_PER_S
    slots = sorted({turn.slot for turn in turns if turn.slot is not None})
    clashes = sum(count_overlaps(turn for turn in turns if turn.slot == slot) for slot in slots)
    return LimitResult(
        technique=technique,
        alias=alias,
        limit=limit,
        calls=len(turns),
        most=most_at_once(turns),
        slots=tuple(slots),
        clashes=clashes,
        calls_per_s=len(turns) / seconds if seconds else 0.0,
    )
