"""The targets of the zookeeper backend."""

from __future__ import annotations

from .rows import Found, Rows, rates

__all__ = ["judge_zookeeper"]

OURS = "django-distlock"
# Times of kazoo's hand-over, by the number of those who wait.
MOST = {2: 0.7, 8: 1.0, 32: 1.0}


def judge_zookeeper(rows: Rows, store: str) -> Found:
    """Judge what was measured on one server."""
    yield from rates(rows, "pairs", OURS, {"kazoo Lock": 1.1})
    for waiters in rows.waiters():
        ours = rows.get("handover", OURS, waiters=waiters)
        other = rows.get("handover", "kazoo Lock", waiters=waiters)
        if ours and other and "p50_us" in ours and "p50_us" in other:
            ratio = round(ours["p50_us"] / other["p50_us"], 3)
            wanted = MOST.get(waiters, 1.0)
            yield f"hand-over p50 / kazoo Lock, {waiters} waiters", "<=", wanted, ratio
        if ours:
            yield f"packets an acquisition, {waiters} waiters", "<=", 5.0, ours["statements"]
    if ours := rows.get("fairness", OURS):
        yield "most / least grants", "<=", 1.1, ours["most_per_least"]
