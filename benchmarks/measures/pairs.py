"""Acquire + release, uncontended, client and server on one core."""

from __future__ import annotations

import statistics
import time
from multiprocessing.connection import Connection

from ..adapter import Adapter
from ..bench import Bench, Row
from ..processes import Child, on_one_core

__all__ = ["pairs"]


def pairs(bench: Bench) -> list[Row]:
    """Measure pairs per second and the client's CPU; slices of all adapters take turns.

    Each adapter has a process of its own, so that none pays for what another left behind. On one
    core, because the kernel would put client and server on one core or on two as it likes, which
    makes the same work 16 or 120 us long.
    """
    bench.say("pairs")
    seen: dict[str, list[tuple[float, float]]] = {each.name: [] for each in bench.adapters}
    with on_one_core(bench.store.pids()):
        children = {each.name: Child(_run, each, bench.slice) for each in bench.adapters}
        for child in children.values():
            child.expect("ready")
        with on_one_core(bench.store.pids()):  # the sessions that were opened since
            for turn in bench.rotated(bench.adapters, bench.rounds):
                for adapter in turn:
                    children[adapter.name].pipe.send("go")
                    seen[adapter.name].append(children[adapter.name].expect("done"))
        for child in children.values():
            child.pipe.send("end")
            child.result()
    return [_row(bench, adapter, seen) for adapter in bench.adapters]


def _run(pipe: Connection, adapter: Adapter, seconds: float) -> None:
    adapter.open()
    adapter.warm_up()
    key = f"pairs:{adapter.name}"
    acquire, release, clock = adapter.acquire, adapter.release, time.perf_counter
    for _ in range(200):
        release(acquire(key))
    pipe.send(("ready", None))
    while pipe.recv() == "go":
        done, cpu, start = 0, time.process_time(), clock()
        while (passed := clock() - start) < seconds:
            release(acquire(key))
            done += 1
        pipe.send(("done", (done / passed, (time.process_time() - cpu) / done)))
    adapter.close()


def _row(bench: Bench, adapter: Adapter, seen: dict[str, list[tuple[float, float]]]) -> Row:
    rates = [rate for rate, _ in seen[adapter.name]]
    low, middle, high = statistics.quantiles(rates, n=4) if len(rates) > 1 else rates * 3
    # Of each round by itself: what disturbs the machine disturbs neighbours in time alike.
    ratios = {
        other: round(
            statistics.median(a / b for a, (b, _) in zip(rates, seen[other], strict=True)), 3
        )
        for other in seen
    }
    return bench.row(
        "pairs",
        adapter,
        per_second=round(middle),
        best=round(max(rates)),
        quartiles=[round(low), round(high)],
        microseconds=round(1e6 / middle, 1),
        cpu_ms_per_1000=round(statistics.median(cpu for _, cpu in seen[adapter.name]) * 1e6, 1),
        times=ratios,
        rounds=len(rates),
    )
