"""From the beginning of a release to the next holder's grant, and what the server had to do."""

from __future__ import annotations

from collections import defaultdict

from ..adapter import Adapter
from ..bench import Bench, Row
from .waiting import Contest, contest

__all__ = ["handover"]

HOLD = 0.002  # seconds: long enough for all others to be waiting


def handover(bench: Bench) -> list[Row]:
    """Measure hand-overs with 2, 8 and 32 processes, on the machine as it is."""
    rows = []
    for waiters in bench.waiters:
        bench.say(f"hand-over, {waiters} processes")
        seen: dict[str, list[Contest]] = defaultdict(list)
        work: dict[str, float] = defaultdict(float)
        for turn in bench.rotated(bench.waiting, bench.handover_rounds):
            for adapter in turn:
                _measure(bench, adapter, waiters, seen[adapter.name], work)
        rows += [_row(bench, each, waiters, seen[each.name], work) for each in bench.waiting]
    return rows


def _measure(
    bench: Bench, adapter: Adapter, waiters: int, seen: list[Contest], work: dict[str, float]
) -> None:
    seconds = bench.handover / bench.handover_rounds
    before = _work(bench)
    if not bench.store.in_client:
        # First without a hand-over: connecting and the first use are not what is counted.
        contest(bench, adapter, waiters=waiters, seconds=0.0, hold=HOLD, strict=True)
    between = _work(bench)
    done = contest(bench, adapter, waiters=waiters, seconds=seconds, hold=HOLD, strict=True)
    seen.append(done)
    work[adapter.name] += done.statements + (_work(bench) - between) - (between - before)


def _work(bench: Bench) -> int:
    bench.store.settle()
    return 0 if bench.store.in_client else bench.store.work()


def _row(
    bench: Bench, adapter: Adapter, waiters: int, seen: list[Contest], work: dict[str, float]
) -> Row:
    times = sorted(each for one in seen for each in one.handovers())
    taken = sum(one.taken for one in seen)
    figures = {
        "waiters": waiters,
        "samples": len(times),
        "per_second": round(len(times) / bench.handover, 1),
        "statements": round(work[adapter.name] / taken, 2),
        "cpu_ms_per_1000": round(sum(one.cpu for one in seen) / taken * 1e6),
        "failures": sum(one.failures for one in seen),
        "overlaps": sum(one.overlaps for one in seen),
    }
    if times:
        figures["p50_us"] = round(_part(times, 0.5) * 1e6)
        figures["p99_us"] = round(_part(times, 0.99) * 1e6)
    return bench.row("handover", adapter, **figures)


def _part(times: list[float], part: float) -> float:
    return times[min(len(times) - 1, int(len(times) * part))]
