"""The targets of the zookeeper backend."""

from __future__ import annotations

from .redis import OURS, handed_over
from .rows import Found, Rows, rates, several

__all__ = ["judge_zookeeper"]

# Times of kazoo's hand-off, by the number of those who wait.
MOST = {2: 0.7, 8: 1.0, 32: 1.0}


def judge_zookeeper(rows: Rows, store: str) -> Found:
    """Judge what was measured on one server."""
    yield from rates(rows, "cycles", OURS, {"kazoo Lock": 1.1})
    for waiters in rows.waiters():
        ours = rows.get("handoff", OURS, waiters=waiters)
        yield from handed_over(rows, waiters, {"kazoo Lock": MOST.get(waiters, 1.0)})
        if ours:
            yield f"packets an acquisition, {waiters} waiters", "<=", 5.0, ours["statements"]
    if ours := rows.get("fairness", OURS):
        yield "most / least grants", "<=", 1.1, ours["most_per_least"]
    yield from several(rows, OURS, 1.2)
