"""Many leases held by one process, renewed by its one watchdog."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from typing import Any

from ..bench import Bench, Row
from ..processes import in_child
from .memory import resident

__all__ = ["renewals"]


def renewals(bench: Bench) -> list[Row]:
    """Hold 50,000 leases for longer than their ttl, and count those that are lost."""
    if not bench.ours:
        return []
    bench.say(f"{bench.renewed} leases renewed for {bench.renewing:g} s")
    figures = in_child(_hold, bench.renewed, bench.renewing, bench.ttl)
    return [bench.row("renewals", bench.ours[0], ttl=bench.ttl, **figures)]


def _hold(pipe: Connection, leases: int, seconds: float, ttl: float) -> dict[str, Any]:
    from django_distlock import lock, locks

    with lock("renewed:first"):
        pass
    before, began = resident(), time.monotonic()
    held = [lock(f"renewed:{number}", ttl=ttl).acquire(wait=0) for number in range(leases)]
    acquiring = time.monotonic() - began
    cpu, start, worst = time.process_time(), time.monotonic(), float("inf")
    while (left := start + seconds - time.monotonic()) > 0:
        # Looking at all of them is work, too: little beside the renewals.
        worst = min([worst, *(lease.remaining() for lease in held if lease is not None)])
        time.sleep(max(0.0, min(left, 2.5)))
    passed, used = time.monotonic() - start, time.process_time() - cpu
    grown = resident() - before
    lost = sum(lease is None or lease.lost for lease in held)
    in_store = sum(1 for _ in locks["default"].held("renewed:"))
    return {
        "leases": leases,
        "seconds": round(passed, 1),
        "acquired_in": round(acquiring, 1),
        "cpu_percent": round(100 * used / passed, 1),
        "rss_mb": round(grown / 2**20, 1),
        "least_remaining": round(worst, 3),
        "lost": lost,
        "missing_in_store": leases - in_store,
    }
