"""Whether a short history of a lock is linearizable: a search for an order that explains it.

Wing and Gong, "Testing and verifying concurrent objects" (1993), with the remembered states of
Lowe, "Testing for linearizability" (2017). The object is a mutex whose tokens rise: its state is
the token that holds it, or none, and the highest token so far. Exponential at worst: for histories
of a few hundred calls, and to judge the quick checks of `checker` by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .history import Call

__all__ = ["is_linearizable"]

_State = tuple[int, int]  # the token that holds (0: none), the highest token


def is_linearizable(calls: Sequence[Call]) -> bool:
    """Tell whether the acquisitions and releases of one name can have happened one after another.

    ``ok`` acquisitions and releases have to take place between begin and end, both included; what
    failed did nothing; and ``info`` may have taken place at any time after its beginning, or never.
    A release of a token that does not hold is no step; a lease that ends by its ttl is given as a
    release. An acquisition whose token is not known takes any that fits.
    """
    steps = [call for call in calls if call.outcome != "fail" and call.op in ("acquire", "release")]
    ends = [math.inf if call.end is None else call.end for call in steps]
    seen: set[tuple[frozenset[int], _State]] = set()
    todo: list[tuple[frozenset[int], _State]] = [(frozenset(range(len(steps))), (0, 0))]
    while todo:
        left, state = todo.pop()
        if all(steps[i].outcome == "info" for i in left):
            return True
        if (left, state) in seen:
            continue
        seen.add((left, state))
        # What ended first among those left bounds who can have come first.
        bound = min(ends[i] for i in left)
        for i in left:
            if steps[i].begin <= bound and (after := _apply(state, steps[i])) is not None:
                todo.append((left - {i}, after))
    return False


def _apply(state: _State, step: Call) -> _State | None:
    holds, highest = state
    if step.op == "release":
        return (0, highest) if holds == step.token else None
    if holds:
        return None
    token = step.token or highest + 1
    return (token, token) if token > highest else None
