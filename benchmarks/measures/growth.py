"""How ours grows: with those who wait, with the names in use, and with the leases held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection

from ..adapter import Adapter
from ..bench import Bench, Row
from ..processes import Child, in_child
from .handoff import RULES, handed_over
from .memory import per_lease
from .rates import rates
from .renewals import renewed

__all__ = ["by_keys", "by_leases", "by_waiters"]

PROCESSES = 4  # of which the waiters are threads
FILLERS = 8  # processes that use a name for the first time, where the store is a server
FEW = 64  # waiters; of more, the measurement takes longer, as coming to wait takes time too
STRIDE = 61_803  # from one name to the next: all get their turn, and no two neighbours


def by_waiters(bench: Bench) -> list[Row]:
    """Measure hand-offs with more waiters than there can be processes: threads of a few.

    So many may be more than a store can answer in time. That is counted, and the others go on.
    """
    from django_distlock import LockBackendError

    rules = replace(RULES, forgive=(LockBackendError,))
    rows = []
    for waiters in bench.growth_waiters:
        processes = min(PROCESSES, waiters)
        bench.say(f"growth, {waiters} waiters in {processes} processes")
        longer = replace(bench, handoff=bench.handoff * max(1, waiters / FEW))
        some = handed_over(
            longer, "growth-waiters", bench.ours[:1], rules, waiters, processes=processes
        )
        rows += [{**row, "processes": processes} for row in some]
    return rows


def by_keys(bench: Bench) -> list[Row]:
    """Measure cycles that take one name after the other, of more and more names.

    Each was taken before, so what the store keeps of a free lock is there.
    """
    rows = []
    for adapter in bench.ours[:1]:
        in_child(_forget_names)
        for before, keys in pairwise((0, *bench.growth_keys)):
            bench.say(f"growth, {keys} names")
            _use_names(bench, adapter, before, keys)
            (row,) = rates(bench, "growth-keys", [adapter], partial(_ready, keys=keys))
            rows.append({**row, "keys": keys})
    return rows


def by_leases(bench: Bench) -> list[Row]:
    """Measure the watchdog's work and the memory of more and more leases."""
    rows = []
    for adapter in bench.ours[:1]:
        # All of the memory first: leases that were renewed end in the store later, by themselves.
        numbers = dict.fromkeys(bench.leases(leases) for leases in bench.growth_leases)
        taken = [per_lease(bench, leases) for leases in numbers]
        for memory in taken:
            work = renewed(bench, memory["leases"], bench.growth_renewing)
            rows.append(bench.row("growth-leases", adapter, **{**work, **memory}))
    return rows


def _name(number: int) -> str:
    return f"growth:{number}"


def _ready(adapter: Adapter, keys: int) -> Callable[[], None]:
    adapter.open()
    adapter.warm_up()
    acquire, release, at = adapter.acquire, adapter.release, 0

    def cycle() -> None:
        nonlocal at
        at = (at + STRIDE) % keys
        release(acquire(_name(at)))

    return cycle


def _use_names(bench: Bench, adapter: Adapter, first: int, end: int) -> None:
    """Take and free each of these names once."""
    many = 1 if bench.store.in_client else min(FILLERS, end - first)
    children = [Child(_use, adapter, range(first + me, end, many)) for me in range(many)]
    for child in children:
        child.result()


def _use(pipe: Connection, adapter: Adapter, numbers: range) -> None:
    adapter.open()
    for number in numbers:
        adapter.release(adapter.acquire(_name(number)))
    adapter.close()


def _forget_names(pipe: Connection) -> None:
    """Remove what the store keeps of the names that other measurements have used."""
    from django_distlock import locks
    from django_distlock.core.values import CleanPolicy

    backend, policy = locks["default"], CleanPolicy(older_than=0.0)
    cursor: str | None = "" if backend.cleans else None
    while cursor is not None:
        cursor = backend.clean_batch(policy, cursor).cursor
