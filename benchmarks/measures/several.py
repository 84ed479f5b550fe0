"""What a limit is for: more work at once than under a lock that one alone holds."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection

from ..adapter import Adapter
from ..bench import Bench, Row
from ..processes import Child

__all__ = ["several"]

WORKERS = 8
HOLD = 0.002  # seconds


def several(bench: Bench) -> list[Row]:
    """Let 8 processes work for 2 ms under the lock, again and again, and count what is done."""
    rows = []
    for adapter in bench.adapters:
        if adapter.at_once is None:
            continue
        bench.say(f"several, {adapter.name}")
        key = f"several:{adapter.name}:{time.monotonic_ns()}"
        children = [Child(_work, adapter, key, bench.several) for _ in range(WORKERS)]
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
                per_second=round(done / bench.several, 1),
            )
        )
    alone = {
        (row["backend"], row["kind"]): row["per_second"] for row in rows if row["at_once"] == 1
    }
    for row in rows:
        one = alone.get((row["backend"], row["kind"]))
        if one is not None:
            row["times"] = round(row["per_second"] / max(one, 0.1), 2)
    return rows


def _work(pipe: Connection, adapter: Adapter, key: str, seconds: float) -> int:
    adapter.open()
    adapter.warm_up()
    pipe.send(("ready", None))
    pipe.recv()
    done, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        handle = adapter.acquire(key)
        time.sleep(HOLD)
        adapter.release(handle)
        done += 1
    adapter.close()
    return done
