"""Processes that wait for one lock, and the record of who held it when."""

from __future__ import annotations

import multiprocessing
import resource
import time
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

from ..adapter import Adapter, Kind
from ..bench import Bench
from ..processes import Child
from ..stores import Store

__all__ = ["Contest", "Hold", "OverlapError", "contest", "count_overlaps"]

_fork = multiprocessing.get_context("fork")


Hold = tuple[float, float, int]
"""When it was granted, when its release began, and whose it was."""


class OverlapError(RuntimeError):
    """Two processes held the lock at the same time."""


@dataclass(frozen=True, slots=True)
class Contest:
    """What was seen."""

    holds: list[Hold]  # within the time, in the order of their grants
    grants: list[int]  # within the time, by waiter
    taken: int  # all acquisitions, also those after the time while the waiters left
    cpu: float  # seconds, of all clients
    statements: int  # where the clients count them
    failures: int
    overlaps: int  # of a peer's; ours have none, else the run has failed

    def handovers(self) -> list[float]:
        """Return the seconds from each release's beginning to the next holder's grant."""
        return [b[0] - a[1] for a, b in pairwise(self.holds) if a[2] != b[2]]


def count_overlaps(name: str, kind: Kind, holds: list[Hold]) -> int:
    """Count the holds, in the order of their grants, that begin before the last one's release.

    Raises OverlapError unless they are of a peer, of which the count is a result.
    """
    found = [(before, after) for before, after in pairwise(holds) if after[0] < before[1]]
    if found and kind != "peer":
        raise OverlapError(f"{name}: {found[0][0]} and {found[0][1]} overlap")
    return len(found)


class _Table:
    """What the processes share: whose turn it was last, and when to begin and to end."""

    def __init__(self, waiters: int) -> None:
        self.last: Any = _fork.RawValue("i", -1)
        self.end: Any = _fork.RawValue("d", 0.0)
        self.again = [_fork.Semaphore(0) for _ in range(waiters)]


def contest(
    bench: Bench, adapter: Adapter, *, waiters: int, seconds: float, hold: float, strict: bool
) -> Contest:
    """Let ``waiters`` processes take turns for ``seconds`` and check that no holds overlap.

    ``strict``: who just held it asks again only when another has it, so that each hold is a
    hand-over. With ``seconds`` 0 they only connect: what that costs can be taken off.
    """
    table = _Table(waiters)
    key = f"contest:{adapter.name}:{time.monotonic_ns()}"
    children = [
        Child(_wait, adapter, me, table, key, hold, strict, bench.store) for me in range(waiters)
    ]
    for child in children:
        child.expect("ready")
    begin = time.monotonic() + 0.02 if seconds else 0.0
    table.end.value = begin + seconds
    for child in children:
        child.pipe.send(begin)
    shares = [child.result(seconds + 300) for child in children]
    every = sorted((*each, me) for me, share in enumerate(shares) for each in share[0])
    overlaps = count_overlaps(adapter.name, adapter.kind, every)
    holds = [each for each in every if each[1] <= table.end.value]
    return Contest(
        holds,
        [sum(who == me for _, _, who in holds) for me in range(waiters)],
        len(every),
        sum(share[1] for share in shares),
        sum(share[2] for share in shares),
        sum(share[3] for share in shares),
        overlaps,
    )


def _wait(
    pipe: Connection,
    adapter: Adapter,
    me: int,
    table: _Table,
    key: str,
    hold: float,
    strict: bool,
    store: Store,
) -> tuple[list[tuple[float, float]], float, int, int]:
    store.count_from_now()
    adapter.open()
    adapter.warm_up()
    before_all = store.work() if store.in_client else 0
    pipe.send(("ready", None))
    time.sleep(max(0.0, pipe.recv() - time.monotonic()))
    cpu, holds, clock = _cpu(), [], time.monotonic
    while clock() < table.end.value:
        handle = adapter.acquire(key)
        granted = clock()
        if strict:
            before, table.last.value = table.last.value, me
            if before >= 0:
                table.again[before].release()
        while (left := granted + hold - clock()) > 0:
            time.sleep(left)
        releasing = clock()
        adapter.release(handle)
        holds.append((granted, releasing))
        while strict and not table.again[me].acquire(timeout=0.05) and clock() < table.end.value:
            pass
    used = _cpu() - cpu
    adapter.close()
    statements = store.work() - before_all if store.in_client else 0
    return holds, used, statements, adapter.failures


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
