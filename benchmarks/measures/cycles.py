"""Acquire + release, uncontended, client and server on one core."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection

from ..adapter import Adapter
from ..bench import Bench, Row
from ..processes import in_child
from .rates import rates

__all__ = ["cycles"]

COUNTED = 100


def cycles(bench: Bench) -> list[Row]:
    """Measure cycles per second of each way to take a lock, and what a cycle asks of the server."""
    rows = rates(bench, "cycles", bench.adapters, _ready)
    for row, adapter in zip(rows, bench.adapters, strict=True):
        row["backend"] = adapter.backend
        if not bench.store.in_client:
            row["statements"] = round(_asked(bench, adapter) / COUNTED, 2)
    return rows


def _ready(adapter: Adapter) -> Callable[[], None]:
    adapter.open()
    adapter.warm_up()
    key = f"cycles:{adapter.name}"
    acquire, release = adapter.acquire, adapter.release

    def cycle() -> None:
        release(acquire(key))

    return cycle


def _asked(bench: Bench, adapter: Adapter) -> int:
    """Return what the server was asked for the cycles alone, without connecting and the like."""
    counts = []
    for amount in (0, COUNTED):
        bench.store.settle()
        before = bench.store.work()
        in_child(_do, adapter, amount)
        bench.store.settle()
        counts.append(bench.store.work() - before)
    return counts[1] - counts[0]


def _do(pipe: Connection, adapter: Adapter, amount: int) -> None:
    cycle = _ready(adapter)
    cycle()
    for _ in range(amount):
        cycle()
    adapter.close()
