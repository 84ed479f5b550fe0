"""What the `with` blocks got that are open now.

A `Lock` keeps no state, so it is kept here. By the Lock object, which the `with` statement keeps
alive; and by the party, as one Lock may be used by many at once. If the Lock object goes while a
block is open, an interruption has ended the block before `__exit__` could begin: its leases are
given up.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from .held import Me, party

__all__ = ["forget", "innermost", "push"]

# Tuples, replaced at one stroke: read without the mutex, and an interruption costs none of them.
_entered: dict[int, tuple[tuple[Me, Any, weakref.ref[Any]], ...]] = {}
_mutex = threading.RLock()


def push(lock: object, got: Any) -> None:
    """Remember what a `with` block of ``lock`` got: leases, and what belongs to them."""
    key = id(lock)
    entrant = (party(), got, weakref.ref(lock, lambda _: _gone(key)))
    with _mutex:
        _entered[key] = (*_entered.get(key, ()), entrant)


def _gone(key: int) -> None:
    """Give up the leases of the blocks whose Lock object has gone."""
    with _mutex:
        entered = _entered.pop(key, ())
    for _, (got, _), _ in entered:
        for lease in got if isinstance(got, tuple) else (got,):
            lease._drop()


def forget(lock: object, got: object) -> None:
    """Forget that a `with` block of ``lock`` got ``got``, if that was remembered."""
    with _mutex:
        entered = _entered.get(id(lock), ())
        if len(entered) > 1:
            _entered[id(lock)] = tuple(each for each in entered if each[1] is not got)
        elif entered and entered[0][1] is got:
            del _entered[id(lock)]


def innermost(lock: object) -> Any:
    """Return what the innermost `with` block of ``lock`` got.

    A generator's block may end on another thread than it began (streaming responses): then it is
    the one of the same chain of calls, or the only one that is open for this Lock object. None
    when it cannot be told.
    """
    entered = _entered.get(id(lock), ())
    if len(entered) == 1:
        return entered[0][1]
    me = party()
    places = [i for i, (entrant, *_) in enumerate(entered) if entrant == me]
    places = places or [i for i, (entrant, *_) in enumerate(entered) if entrant[2] == me[2]]
    return entered[places[-1]][1] if places else None


def _forget_parent() -> None:
    """Have a mutex, in a forked child, that no thread of the parent's has locked."""
    global _mutex
    _mutex = threading.RLock()


os.register_at_fork(after_in_child=_forget_parent)
