"""How much memory the leases take that a process holds, there and in the store."""

from __future__ import annotations

import gc
import os
import tracemalloc
from multiprocessing.connection import Connection
from pathlib import Path

from ..bench import Bench, Row
from ..processes import in_child
from ..stores import Store

__all__ = ["memory", "per_lease", "resident"]


def memory(bench: Bench) -> list[Row]:
    """Measure, in two processes, what Python allocated and by how much the process grew."""
    if not bench.ours:
        return []
    leases = bench.leases(bench.held)
    bench.say(f"memory of {leases} leases")
    # In the store by the first of them: what is released leaves a little behind.
    figures = per_lease(bench, leases)
    grown, _ = in_child(_hold, leases, False, bench.store)
    return [bench.row("memory", bench.ours[0], **figures, rss_kb=grown // 1024)]


def per_lease(bench: Bench, leases: int) -> dict[str, int]:
    """Measure what so many leases are to Python, and where it is known to the store."""
    allocated, stored = in_child(_hold, leases, True, bench.store)
    figures = {"leases": leases, "allocated_kb": allocated // 1024}
    figures["bytes_per_lease"] = round(allocated / leases)
    if stored is not None:
        figures["store_bytes_per_lock"] = round(stored / leases)
    return figures


def _hold(pipe: Connection, leases: int, trace: bool, store: Store) -> tuple[int, int | None]:
    from django_distlock import lock

    with lock("memory:first"):
        pass
    gc.collect()
    if trace:
        tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0] if trace else resident()
    stored_before = store.memory()
    held = [lock(f"memory:{number}", ttl=300).acquire(wait=0) for number in range(leases)]
    stored_after = store.memory()
    gc.collect()
    after = tracemalloc.get_traced_memory()[0] if trace else resident()
    tracemalloc.stop()
    lost = sum(lease is None or lease.lost for lease in held)
    for lease in held:
        if lease is not None:
            lease.release()
    if lost:
        raise RuntimeError(f"{lost} of {leases} leases were not obtained or were lost")
    stored = None
    if stored_before is not None and stored_after is not None:
        stored = stored_after - stored_before
    return after - before, stored


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")
