"""Many leases held by one process, renewed by its one watchdog."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from typing import Any

from ..bench import Bench, Row
from ..processes import in_child
from .memory import resident

__all__ = ["renewals", "renewed"]


def renewals(bench: Bench) -> list[Row]:
    """Hold 50,000 leases for longer than their ttl, and count those that are lost."""
    if not bench.ours:
        return []
    leases = bench.leases(bench.renewed)
    return [bench.row("renewals", bench.ours[0], **renewed(bench, leases, bench.renewing))]


def renewed(bench: Bench, leases: int, seconds: float) -> dict[str, Any]:
    """Hold so many leases for so long; return what that took, and how many are lost."""
    if (leases, seconds) not in bench.known:
        bench.say(f"{leases} leases renewed for {seconds:g} s")
        figures = {"ttl": bench.ttl, **in_child(_hold, leases, seconds, bench.ttl)}
        bench.known[leases, seconds] = figures
    return bench.known[leases, seconds]


def _hold(pipe: Connection, leases: int, seconds: float, ttl: float) -> dict[str, Any]:
    from django_distlock import lock, locks

    with lock("renewed:first"):
        pass
    before, began = resident(), time.monotonic()
    # Nobody releases them: names of their own, for those of another run may be held still.
    run = f"renewed:{os.getpid()}:"
    held = [lock(f"{run}{number}", ttl=ttl).acquire(wait=0) for number in range(leases)]
    acquiring = time.monotonic() - began
    cpu, start, worst = time.process_time(), time.monotonic(), float("inf")
    while (left := start + seconds - time.monotonic()) > 0:
        # Looking at all of them is work, too: little beside the renewals.
        worst = min([worst, *(lease.remaining() for lease in held if lease is not None)])
        time.sleep(max(0.0, min(left, 2.5)))
    passed, used = time.monotonic() - start, time.process_time() - cpu
    grown = resident() - before
    lost = sum(lease is None or lease.lost for lease in held)
    in_store = sum(1 for _ in locks["default"].held(run))
    return {
        "leases": leases,
        "seconds": round(passed, 1),
        "acquired_in": round(acquiring, 1),
        "cpu_percent": round(100 * used / passed, 1),
        "cpu_ms_per_second": round(1000 * used / passed, 2),
        "rss_mb": round(grown / 2**20, 1),
        "least_remaining": round(worst, 3),
        "lost": lost,
        "missing_in_store": leases - in_store,
    }
