"""What a limit is for: more work at once than under a lock that one alone holds."""

from __future__ import annotations

import time
from itertools import product
from multiprocessing.connection import Connection

from ..adapter import Adapter
from ..bench import Bench, Row
from ..processes import Child

__all__ = ["several"]

WORKERS = 8
HOLDS = (0.002, 0.02)  # seconds: as short as a write to a disk, and as a call of a service


def several(bench: Bench) -> list[Row]:
    """Let 8 processes work for a while under the lock, again and again, and count what is done."""
    rows = []
    compared = [adapter for adapter in bench.adapters if adapter.at_once is not None]
    for hold, adapter in product(HOLDS, compared):
        bench.say(f"several, {adapter.name}, {hold * 1000:g} ms")
        key = f"several:{adapter.name}:{time.monotonic_ns()}"
        children = [Child(_work, adapter, key, hold, bench.several) for _ in range(WORKERS)]
        for child in children:
            child.expect("ready")
        for child in children:
            child.pipe.send("go")
        done = sum(child.result(bench.several + 300) for child in children)
        rows.append(
            bench.row(
                "several",
                adapter,
                backend=adapter.backend,
                at_once=adapter.at_once,
                hold_ms=hold * 1000,
                per_second=round(done / bench.several, 1),
            )
        )
    alone = {_rival(row): row["per_second"] for row in rows if row["at_once"] == 1}
    for row in rows:
        one = alone.get(_rival(row))
        if one is not None:
            row["times"] = round(row["per_second"] / max(one, 0.1), 2)
    return rows


def _rival(row: Row) -> tuple[object, ...]:
    """Return what a row has in common with the one that it is compared with."""
    return row["backend"], row["kind"], row["hold_ms"]


def _work(pipe: Connection, adapter: Adapter, key: str, hold: float, seconds: float) -> int:
    adapter.open()
    adapter.warm_up()
    pipe.send(("ready", None))
    pipe.recv()
    done, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        handle = adapter.acquire(key)
        time.sleep(hold)
        adapter.release(handle)
        done += 1
    adapter.close()
    return done
