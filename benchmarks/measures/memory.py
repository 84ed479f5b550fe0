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

__all__ = ["memory", "resident"]


def memory(bench: Bench) -> list[Row]:
    """Measure, in two processes, what Python allocated and by how much the process grew."""
    if not bench.ours:
        return []
    bench.say(f"memory of {bench.held} leases")
    # In the store by the first of them: what is released leaves a little behind.
    allocated, stored = in_child(_hold, bench.held, True, bench.store)
    grown, _ = in_child(_hold, bench.held, False, bench.store)
    figures = {"leases": bench.held, "allocated_kb": allocated // 1024, "rss_kb": grown // 1024}
    per = {"bytes_per_lease": round(allocated / bench.held)}
    if stored is not None:
        per["store_bytes_per_lock"] = round(stored / bench.held)
    return [bench.row("memory", bench.ours[0], **figures, **per)]


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
