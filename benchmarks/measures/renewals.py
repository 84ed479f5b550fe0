"""Many leases held by one process, renewed by its one watchdog."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from typing import Any

from ..adapters.advisory import OursAdvisory
from ..bench import Bench, Row
from ..processes import in_child
from .memory import resident

__all__ = ["renewals", "renewed"]

ADVISORY = 5000  # a PostgreSQL as it is installed has room for 6,400


def renewals(bench: Bench) -> list[Row]:
    """Hold 50,000 leases for longer than their ttl, and count those that are lost."""
    leases = bench.leases(bench.renewed)
    rows = [
        bench.row("renewals", each, **renewed(bench, leases, bench.renewing)) for each in bench.ours
    ]
    for each in bench.adapters:
        if isinstance(each, OursAdvisory):
            most = min(leases, ADVISORY)
            figures = renewed(bench, most, bench.renewing, each.alias)
            rows.append(bench.row("renewals", each, **figures))
    return rows


def renewed(bench: Bench, leases: int, seconds: float, alias: str = "default") -> dict[str, Any]:
    """Hold so many leases for so long; return what that took, and how many are lost."""
    asked = leases, seconds, alias
    if asked not in bench.known:
        bench.say(f"{leases} leases renewed for {seconds:g} s")
        figures = in_child(_hold, leases, seconds, bench.ttl, alias)
        bench.known[asked] = {"ttl": bench.ttl, **figures}
    return bench.known[asked]


def _hold(pipe: Connection, leases: int, seconds: float, ttl: float, alias: str) -> dict[str, Any]:
    from django_distlock import lock, locks

    with lock("renewed:first", using=alias):
        pass
    before, began = resident(), time.monotonic()
    # Nobody releases them: names of their own, for those of another run may be held still.
    run = f"renewed:{os.getpid()}:"
    held = [
        lock(f"{run}{number}", using=alias, ttl=ttl).acquire(wait=0) for number in range(leases)
    ]
    acquiring = time.monotonic() - began
    cpu, start, worst = _in_background(), time.monotonic(), float("inf")
    while (left := start + seconds - time.monotonic()) > 0:
        worst = min([worst, *(lease.remaining() for lease in held if lease is not None)])
        time.sleep(max(0.0, min(left, 2.5)))
    passed, used = time.monotonic() - start, _in_background() - cpu
    grown = resident() - before
    lost = sum(lease is None or lease.lost for lease in held)
    in_store = sum(1 for _ in locks[alias].held(run))
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


def _in_background() -> float:
    """Return the CPU seconds of all threads but this one, which looks at each of the leases."""
    return time.process_time() - time.thread_time()
