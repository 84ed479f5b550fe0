"""What an attempt on a lock that another holds costs the disk: nothing, it should be."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from ..adapter import Adapter
from ..bench import Bench, Row
from ..processes import Child, in_child
from ..stores import Store

__all__ = ["failing"]

CYCLES = 100
KEY = "failing"
Writes = dict[str, int]


def failing(bench: Bench) -> list[Row]:
    """Count what goes to the disk during 1000 failing attempts, beside 100 cycles and nothing.

    The cycles show that the counters count; the idle time, what the server does by itself.
    """
    adapters = [each for each in bench.adapters if _attempts(each)]
    return [_measure(bench, adapter) for adapter in adapters]


def _attempts(adapter: Adapter) -> bool:
    return adapter.exclusive and type(adapter).try_acquire is not Adapter.try_acquire


def _measure(bench: Bench, adapter: Adapter) -> Row:
    bench.say(f"failing attempts, {adapter.name}")
    holder = Child(_hold, adapter)
    holder.expect("ready")
    took, wrote = _counted(bench, _attempt, adapter, bench.attempts, others=adapter.sessions)
    holder.pipe.send("end")
    holder.result()
    bench.store.settle()
    _, idle = _counted(bench, _nothing, adapter, took)
    _, of_cycles = _counted(bench, _cycles, adapter, CYCLES)
    if not any(of_cycles.values()):
        raise RuntimeError(f"{bench.store.name}: cycles wrote nothing, so nothing is counted")
    return bench.row(
        "failing",
        adapter,
        attempts=bench.attempts,
        microseconds=round(took / bench.attempts * 1e6, 1),
        writes=wrote,
        idle=idle,
        cycles=CYCLES,
        writes_of_cycles=of_cycles,
    )


Work = Callable[[Adapter, float], float]


def _counted(
    bench: Bench, work: Work, adapter: Adapter, amount: float, *, others: int = 0
) -> tuple[float, Writes]:
    """Do ``work`` in a process of its own; return what it returns, and what was written."""
    before = bench.store.writes()
    answer, in_client = in_child(_in_client, work, adapter, amount, bench.store)
    if bench.store.in_client:
        return answer, in_client
    bench.store.settle(others)
    return answer, _since(before, bench.store.writes())


def _in_client(
    pipe: Connection, work: Work, adapter: Adapter, amount: float, store: Store
) -> tuple[float, Writes]:
    adapter.open()
    adapter.warm_up()
    before = store.writes()
    answer = work(adapter, amount)
    wrote = _since(before, store.writes())
    adapter.close()
    return answer, wrote


def _since(before: Writes, after: Writes) -> Writes:
    return {what: after[what] - before[what] for what in after}


def _hold(pipe: Connection, adapter: Adapter) -> None:
    adapter.open()
    handle = adapter.acquire(KEY)
    pipe.send(("ready", None))
    pipe.recv()
    adapter.release(handle)
    adapter.close()


def _attempt(adapter: Adapter, attempts: float) -> float:
    began = time.perf_counter()
    for _ in range(int(attempts)):
        if adapter.try_acquire(KEY) is not None:
            raise RuntimeError(f"{adapter.name} granted a lock that is held")
    return time.perf_counter() - began


def _nothing(adapter: Adapter, seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def _cycles(adapter: Adapter, cycles: float) -> float:
    for _ in range(int(cycles)):
        adapter.release(adapter.acquire("cycles"))
    return cycles
