"""From the beginning of a release to the next holder's grant, and what the server had to do."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any

from ..adapter import Adapter
from ..bench import Bench, Row
from .waiting import Contest, Rules, contest

__all__ = ["RULES", "handed_over", "handoff", "limits"]

HOLD = 0.002  # seconds: long enough for all others to be waiting
RULES = Rules(HOLD, strict=True)


def handoff(bench: Bench) -> list[Row]:
    """Measure hand-offs with 2, 8 and 32 processes, on the machine as it is."""
    rows = []
    for waiters in bench.waiters:
        bench.say(f"hand-off, {waiters} processes")
        rows += handed_over(bench, "handoff", bench.waiting, RULES, waiters, waiters)
    return rows


def limits(bench: Bench) -> list[Row]:
    """Measure hand-offs of a lock that several hold, with as many processes as wait for any.

    The more hold it, the longer each holds it, so that it changes hands as often at each limit.
    """
    rows = []
    waiters = max(bench.waiters)
    for limit in bench.limits:
        bench.say(f"hand-off with a limit of {limit}, {waiters} processes")
        limited = [each.with_limit(limit) for each in bench.adapters if (each.at_once or 1) > 1]
        rules = Rules(HOLD * limit, strict=True)
        rows += handed_over(bench, "limits", limited, rules, waiters, waiters)
    return rows


def handed_over(
    bench: Bench,
    measure: str,
    adapters: list[Adapter],
    rules: Rules,
    waiters: int,
    processes: int,
) -> list[Row]:
    """Measure these adapters, that take turns, with one number of waiters."""
    seen: dict[str, list[Contest]] = defaultdict(list)
    work: dict[str, float] = defaultdict(float)
    for turn in bench.rotated(adapters, bench.handoff_rounds):
        for adapter in turn:
            asked, done = _measure(bench, adapter, rules, waiters, processes)
            seen[adapter.name].append(done)
            work[adapter.name] += asked
    rows = []
    for each in adapters:
        figures = _figures(bench, seen[each.name], work[each.name])
        facts = {"backend": each.backend, "waiters": waiters, "at_once": each.at_once or 1}
        rows.append(bench.row(measure, each, **facts, **figures))
    return rows


def _measure(
    bench: Bench, adapter: Adapter, rules: Rules, waiters: int, processes: int
) -> tuple[float, Contest]:
    """Return what was asked of the store, and what was seen."""
    seconds = bench.handoff / bench.handoff_rounds
    fight = partial(contest, bench, adapter, rules, waiters=waiters, processes=processes)
    before = _work(bench)
    if not bench.store.in_client:
        # First without a hand-off: connecting and the first use are not what is counted.
        fight(seconds=0.0)
    between = _work(bench)
    done = fight(seconds=seconds)
    return done.statements + (_work(bench) - between) - (between - before), done


def _work(bench: Bench) -> int:
    bench.store.settle()
    return 0 if bench.store.in_client else bench.store.work()


def _figures(bench: Bench, seen: list[Contest], work: float) -> dict[str, Any]:
    times = sorted(each for one in seen for each in one.handoffs())
    taken = sum(one.taken for one in seen) or 1
    figures: dict[str, Any] = {
        "samples": len(times),
        "per_second": round(len(times) / bench.handoff, 1),
        "statements": round(work / taken, 2),
        "cpu_ms_per_1000": round(sum(one.cpu for one in seen) / taken * 1e6),
        "failures": sum(one.failures for one in seen),
        "overlaps": sum(one.overlaps for one in seen),
    }
    if times:
        figures["p50_us"] = round(_part(times, 0.5) * 1e6)
        figures["p99_us"] = round(_part(times, 0.99) * 1e6)
    return figures


def _part(times: list[float], part: float) -> float:
    return times[min(len(times) - 1, int(len(times) * part))]
