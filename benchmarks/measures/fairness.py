"""Whether some waiters get the lock more often than others."""

from __future__ import annotations

from ..bench import Bench, Row
from .waiting import Rules, contest

__all__ = ["fairness"]

WAITERS = 8
HOLD = 0.001  # seconds


def fairness(bench: Bench) -> list[Row]:
    """Let 8 processes ask for it again and again, without a pause, and compare their grants."""
    rows = []
    for adapter in bench.waiting:
        bench.say(f"fairness, {adapter.name}")
        rules = Rules(HOLD, strict=False)
        done = contest(bench, adapter, rules, waiters=WAITERS, seconds=bench.fairness)
        least, most = min(done.grants), max(done.grants)
        rows.append(
            bench.row(
                "fairness",
                adapter,
                waiters=WAITERS,
                most=most,
                least=least,
                most_per_least=round(most / max(least, 1), 3),
                per_second=round(sum(done.grants) / bench.fairness, 1),
                failures=done.failures,
                overlaps=done.overlaps,
            )
        )
    return rows
