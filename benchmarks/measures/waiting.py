"""Processes, or their threads, that wait for one lock, and the record of who held it when."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from operator import itemgetter
from typing import Any, TypeVar

from ..adapter import Adapter, Kind
from ..bench import Bench
from ..processes import Child
from ..stores import Store

__all__ = ["Contest", "Hold", "OverlapError", "Rules", "contest", "count_overlaps"]

T = TypeVar("T")

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
    overlaps: int  # of an alternative's; ours have none, else the run has failed
    at_once: int  # so many may hold it

    def handoffs(self) -> list[float]:
        """Return the seconds from each release's beginning to the next holder's grant."""
        turns = _turns(self.holds, self.at_once)
        return [after[0] - before[1] for before, after in turns if before[2] != after[2]]


def _turns(holds: list[Hold], at_once: int) -> Iterator[tuple[Hold, Hold]]:
    """Yield each release's hold with the one that it made room for; ``holds`` are by grant."""
    return zip(sorted(holds, key=itemgetter(1)), holds[at_once:], strict=False)


def count_overlaps(name: str, kind: Kind, holds: list[Hold], at_once: int = 1) -> int:
    """Count the holds, in the order of their grants, that begin before there is room for them.

    Raises OverlapError unless they are of an alternative, of which the count is a result.
    """
    turns = _turns(holds, at_once)
    found = [(before, after) for before, after in turns if after[0] < before[1]]
    if found and kind != "alternative":
        raise OverlapError(f"{name}: {found[0][0]} and {found[0][1]} overlap")
    return len(found)


@dataclass(frozen=True, slots=True)
class Rules:
    """How they take turns.

    ``strict``: who just held it asks again only when another has it, so that each hold is a
    hand-off. Errors to ``forgive`` are counted as failures; any other one ends the run.
    """

    hold: float  # seconds
    strict: bool
    forgive: tuple[type[Exception], ...] = ()


class _Table:
    """What the processes share: the rules, whose turn it was last, and when to end."""

    def __init__(self, waiters: int, rules: Rules) -> None:
        self.rules = rules
        self.last: Any = _fork.RawValue("i", -1)
        self.end: Any = _fork.RawValue("d", 0.0)
        self.again = [_fork.Semaphore(0) for _ in range(waiters)]


def contest(
    bench: Bench,
    adapter: Adapter,
    rules: Rules,
    *,
    waiters: int,
    seconds: float,
    processes: int = 0,
) -> Contest:
    """Let ``waiters`` take turns for ``seconds`` and check that no holds overlap.

    With ``seconds`` 0 they only connect: what that costs can be taken off. Each is a process,
    unless they are the threads of fewer ``processes``.
    """
    table = _Table(waiters, rules)
    key = f"contest:{adapter.name}:{time.monotonic_ns()}"
    many = processes or waiters
    dealt = [range(first, waiters, many) for first in range(many)]
    with ExitStack() as stack:
        children = [Child(_wait, adapter, mine, table, key, bench.store) for mine in dealt]
        for child in children:
            stack.callback(child.kill)  # when another one has failed; else it is gone by then
        for child in children:
            child.expect("ready")
        begin = time.monotonic() + 0.02 if seconds else 0.0
        table.end.value = begin + seconds
        for child in children:
            child.pipe.send(begin)
        shares = [child.result(seconds + 300) for child in children]
    every = sorted(one for share in shares for one in share.holds)
    at_once = adapter.at_once or 1
    overlaps = count_overlaps(adapter.name, adapter.kind, every, at_once)
    holds = [each for each in every if each[1] <= table.end.value]
    return Contest(
        holds,
        [sum(who == me for _, _, who in holds) for me in range(waiters)],
        len(every),
        sum(share.cpu for share in shares),
        sum(share.statements for share in shares),
        sum(share.failures for share in shares),
        overlaps,
        at_once,
    )


@dataclass(frozen=True, slots=True)
class _Share:
    """What the waiters of one process did."""

    holds: list[Hold]
    cpu: float
    statements: int
    failures: int


def _wait(
    pipe: Connection, adapter: Adapter, mine: range, table: _Table, key: str, store: Store
) -> _Share:
    store.count_from_now()
    pools = [ThreadPoolExecutor(1) for _ in mine[1:]]

    def connect(_: int) -> None:
        adapter.open()
        adapter.warm_up()

    connect(mine[0])
    for pool, me in zip(pools, mine[1:], strict=True):
        pool.submit(connect, me).result()  # one by one: how many can at once is not the question
    before_all = store.work() if store.in_client else 0
    pipe.send(("ready", None))
    time.sleep(max(0.0, pipe.recv() - time.monotonic()))
    cpu = _cpu()
    holds = _each(mine, pools, lambda me: _take_turns(adapter, me, table, key))
    used = _cpu() - cpu
    _each(mine, pools, lambda _: adapter.close())
    statements = store.work() - before_all if store.in_client else 0
    return _Share([one for each in holds for one in each], used, statements, adapter.failures)


def _each(mine: range, pools: list[ThreadPoolExecutor], what: Callable[[int], T]) -> list[T]:
    """Do it for all waiters at once: the first in this thread, each other in its own."""
    others = [pool.submit(what, me) for pool, me in zip(pools, mine[1:], strict=True)]
    return [what(mine[0]), *(other.result() for other in others)]


def _take_turns(adapter: Adapter, me: int, table: _Table, key: str) -> list[Hold]:
    holds, clock = [], time.monotonic
    hold, strict, forgive = table.rules.hold, table.rules.strict, table.rules.forgive
    while clock() < table.end.value:
        try:
            handle = adapter.acquire(key)
        except forgive:
            adapter.failures += 1
            continue
        granted = clock()
        if strict:
            before, table.last.value = table.last.value, me
            if before >= 0:
                table.again[before].release()
        while (left := granted + hold - clock()) > 0:
            time.sleep(left)
        releasing = clock()
        try:
            adapter.release(handle)
        except forgive:
            adapter.failures += 1
        holds.append((granted, releasing, me))
        while strict and not table.again[me].acquire(timeout=0.05) and clock() < table.end.value:
            pass
    return holds


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
