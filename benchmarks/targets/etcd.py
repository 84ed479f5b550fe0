"""The targets of the etcd backend."""

from __future__ import annotations

from .rows import Found, Rows, rates, several

__all__ = ["judge_etcd"]

OURS = "django-distlock"


def judge_etcd(rows: Rows, store: str) -> Found:
    """Judge what was measured on one etcd."""
    yield from rates(rows, "cycles", OURS, {"etcd3gw": 2.5})
    if cycles := rows.get("cycles", OURS):
        yield "requests a cycle", "<=", 2.0, cycles["statements"]
    for waiters in rows.waiters():
        if ours := rows.get("handoff", OURS, waiters=waiters):
            if waiters <= 8 and "p99_us" in ours:
                yield f"hand-off p99 in ms, {waiters} waiters", "<=", 20.0, ours["p99_us"] / 1000
            yield f"requests an acquisition, {waiters} waiters", "<=", 5.0, ours["statements"]
    if ours := rows.get("fairness", OURS):
        yield "most / least grants", "<=", 1.1, ours["most_per_least"]
    yield from several(rows, OURS, 1.2)
    if ours := rows.get("renewals", OURS):
        yield f"lost of {ours['leases']} renewed leases", "<=", 0.0, ours["lost"]
