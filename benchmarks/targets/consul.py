"""The targets of the consul backend."""

from __future__ import annotations

from .redis import OURS, handed_over
from .rows import Found, Rows, rates, several

__all__ = ["judge_consul"]


def judge_consul(rows: Rows, store: str) -> Found:
    """Judge what was measured on one server."""
    yield from rates(rows, "cycles", OURS, {"py-consul": 3.0, "bare calls": 0.9})
    yield from several(rows, OURS, 1.2)
    for waiters in rows.waiters():
        if waiters >= 8:
            yield from handed_over(rows, waiters, {"py-consul": 0.25})
        if ours := rows.get("handoff", OURS, waiters=waiters):
            yield f"requests an acquisition, {waiters} waiters", "<=", 5.1, ours["statements"]
    if ours := rows.get("fairness", OURS):
        yield "most / least grants", "<=", 1.1, ours["most_per_least"]
