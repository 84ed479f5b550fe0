"""The targets of the redis and the redlock backend."""

from __future__ import annotations

from .rows import Found, Rows, not_installed, rates, several

__all__ = ["OURS", "handed_over", "judge_redis", "judge_redlock"]

OURS = "django-distlock"


def judge_redis(rows: Rows, store: str) -> Found:
    """Judge what was measured on one Redis."""
    yield from rates(
        rows, "cycles", OURS, {"redis-py Lock": 2.5, "redlock-ng": 2.2, "bare socket": 0.7}
    )
    if cycles := rows.get("cycles", OURS):
        yield "messages a cycle", "<=", 2.0, cycles["statements"]
    for waiters in rows.waiters():
        limits = {"python-redis-lock": 0.75, "bare push/pop": 1.9 if waiters <= 2 else 2.4}
        yield from handed_over(rows, waiters, limits)
        yield from _p99(rows, waiters)
        if ours := rows.get("handoff", OURS, waiters=waiters):
            yield f"messages an acquisition, {waiters} waiters", "<=", 5.0, ours["statements"]
    if ours := rows.get("fairness", OURS):
        yield "most / least grants", "<=", 1.1, ours["most_per_least"]
    if ours := rows.get("failing", OURS):
        # Idle, the same is done but for the attempts: connecting, and the warm-up.
        made = float(ours["writes"]["changes"] - ours["idle"]["changes"])
        yield f"changes in {ours['attempts']} failing attempts", "<=", 0.0, made
    if ours := rows.get("memory", OURS):
        yield "bytes of a held lock in the store", "<=", 400.0, ours["store_bytes_per_lock"]
    yield from several(rows, OURS, 1.2)
    yield from _renewals(rows)


def judge_redlock(rows: Rows, store: str) -> Found:
    """Judge what was measured on five nodes."""
    yield from rates(rows, "cycles", OURS, {"redlock-ng": 2.5, "bare sockets": 0.85})
    for waiters in rows.waiters():
        yield from handed_over(rows, waiters, {"pottery": 0.15})
    yield from _renewals(rows)


def handed_over(rows: Rows, waiters: int, limits: dict[str, float]) -> Found:
    """Judge the median of our hand-offs beside those of others."""
    ours = rows.get("handoff", OURS, waiters=waiters)
    for name, wanted in limits.items():
        other = rows.get("handoff", name, waiters=waiters)
        what = f"hand-off p50 / {name}, {waiters} waiters"
        if ours and other and "p50_us" in ours and "p50_us" in other:
            yield what, "<=", wanted, round(ours["p50_us"] / other["p50_us"], 3)
        elif ours and name in rows.absent:
            yield what, "<=", wanted, not_installed(name)


def _p99(rows: Rows, waiters: int) -> Found:
    """Judge our p99 beside that of the alternative whose is the least."""
    ours = rows.get("handoff", OURS, waiters=waiters)
    alternatives = [
        row
        for row in rows.rows
        if row["measure"] == "handoff"
        and row["kind"] == "alternative"
        and row["waiters"] == waiters
    ]
    seen = [row["p99_us"] for row in alternatives if "p99_us" in row]
    if ours and seen and "p99_us" in ours:
        ratio = round(ours["p99_us"] / min(seen), 3)
        yield f"hand-off p99 / best alternative, {waiters} waiters", "<=", 1.0, ratio


def _renewals(rows: Rows) -> Found:
    if ours := rows.get("renewals", OURS):
        yield f"lost of {ours['leases']} renewed leases", "<=", 0.0, ours["lost"]
