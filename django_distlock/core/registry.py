"""Who holds what in this process: the thread or task that asks, and the holds found by it."""

from __future__ import annotations

import asyncio
import itertools
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

from .fork import after_fork
from .holder import this_task
from .threads import Mutex

if TYPE_CHECKING:
    from .hold import Hold

__all__ = [
    "Index",
    "Me",
    "Party",
    "enter",
    "every",
    "find",
    "is_marked",
    "leave",
    "mark",
    "of_same_flow",
    "party",
    "take_dropped",
]

Party: TypeAlias = "asyncio.Task[Any] | threading.Thread"
Me: TypeAlias = tuple[Party, int, int]
"""The caller, its flow of calls, and its chain: see `party`."""

_flows = itertools.count(1)
# The id of the chain of calls, and each task or thread that called in it with the id of its flow.
_Known: TypeAlias = "tuple[int, tuple[tuple[weakref.ref[Party], int], ...]]"
_flow: ContextVar[_Known] = ContextVar("django_distlock_flow")

_numbers = itertools.count(1)
# What a thread acquired in this context: the number of each acquisition, and its hold.
_marks: ContextVar[tuple[tuple[int, weakref.ref[Hold]], ...]] = ContextVar(
    "django_distlock_marks", default=()
)


def party() -> Me:
    """Return the caller (the current task or else thread), its flow of calls, and its chain.

    The flow id is a ContextVar set at the first call, which asgiref carries into `sync_to_async`
    and back. It tells apart two tasks whose synchronous parts share one thread; the task or thread
    tells apart a child task, which inherits the ContextVar, and with it the id of the chain. The
    synchronous parts of child tasks are told apart by the marks of each hold: see `Hold.mark`.
    """
    who: Party = this_task() or threading.current_thread()
    chain, known = _flow.get((0, ()))
    for ref, flow in known:
        if ref() is who:
            return who, flow, chain
    # New here, or inherited from the creator of this task or thread: a flow of its own.
    flow = next(_flows)
    chain = chain or flow
    alive = tuple(each for each in known if each[0]() is not None)
    _flow.set((chain, (*alive, (weakref.ref(who), flow))))
    return who, flow, chain


def mark(hold: Hold) -> None:
    """Mark the context of the calling thread, which acquired ``hold``, perhaps once more.

    Child tasks inherit the context of their parent, and asgiref runs the synchronous parts of all
    of them on one thread. So of a thread only that context is the holder's which has the newest
    mark: what a child acquires is not its sibling's.
    """
    number = next(_numbers)
    kept = _marks.get()
    if len(kept) >= 16 and len(kept).bit_count() == 1:  # those that are over go, now and then
        kept = tuple([each for each in kept if _is_active(each[1]())])
    _marks.set((*kept, (number, weakref.ref(hold))))
    hold.marks.append(number)


def is_marked(hold: Hold) -> bool:
    """Return whether the calling thread's context has the newest mark; a task needs none."""
    if not hold.marks or this_task() is not None:
        return True
    # Not any(): an interruption at the end of a generator is lost.
    return hold.marks[-1] in [number for number, _ in _marks.get()]


def _is_active(hold: Hold | None) -> bool:
    return hold is not None and hold.is_active()


# By the backend, not the alias: in tests another one may stand in for the alias for a while.
Index: TypeAlias = tuple[int, str, int, int]

# Swept now and then, as a WeakValueDictionary costs several times as much at each lock, and so does
# any callback, in which an interruption would also be lost.
_registry: dict[Index, weakref.ref[Hold]] = {}
_mutex = Mutex()  # a finalizer may come while its thread is inside
_bound = 64  # entries after which those are taken out that refer to nothing any more


def enter(index: Index, hold: Hold) -> None:
    """Have ``hold`` found."""
    with _mutex:
        _registry[index] = weakref.ref(hold)
        if len(_registry) > _bound:
            _sweep()


def leave(index: Index, hold: Hold) -> None:
    """Have ``hold`` found no more."""
    with _mutex:
        ref = _registry.get(index)
        if ref is not None and ref() is hold:
            _take_out(index)


def _take_out(index: Index) -> None:
    _registry.pop(index, None)  # a signal's handler may have done it in between
    if _bound > 64 and len(_registry) < _bound // 8:
        _resize()


def _sweep() -> None:
    """Take out the holds to which nothing refers any more."""
    for each, ref in list(_registry.items()):
        if ref() is None:
            _registry.pop(each, None)
    _resize()


def _resize() -> None:
    """Give back the memory of a peak, which a dict keeps when its entries are taken out."""
    global _bound, _registry
    old = _registry
    _registry = dict(old)
    for index in old.keys() - _registry.keys():  # what a finalizer has entered in between
        _registry.setdefault(index, old[index])
    _bound = max(64, 2 * len(_registry))


def take_dropped(index: Index) -> bool:
    """Take out a hold to which nothing refers any more; return whether it was never released."""
    with _mutex:
        ref = _registry.get(index)
        if ref is None or ref() is not None:
            return False
        _take_out(index)
        return True


def find(backend: object, key: str, me: Me | None = None) -> Hold | None:
    """Return the hold that the calling thread or task has on ``key``, if any."""
    who, flow, _ = me or party()
    ref = _registry.get((id(backend), key, id(who), flow))
    hold = None if ref is None else ref()
    # The id of a thread or task that ended may have been given to another: compare the object.
    if hold is None or hold.backend is not backend or hold.party() is not who:
        return None
    return hold if hold.is_active() and is_marked(hold) else None


def of_same_flow(backend: object, key: str) -> Hold | None:
    """Return a hold on ``key`` by another task or thread of the same chain of calls, if any."""
    who, _, chain = party()
    for hold in every(backend):
        if hold.claim.key == key and hold.chain == chain and hold.party() is not who:
            return hold
    return None


def every(backend: object = None) -> Iterator[Hold]:
    """Yield every hold of the process, or of one backend, that is still active."""
    # References first: while holds are checked others come and go, and iterating would fail.
    for hold in [ref() for ref in list(_registry.values())]:
        if hold is not None and hold.is_active() and (backend is None or hold.backend is backend):
            yield hold


def _forget_parent() -> None:
    """Give up, in a forked child, what the parent holds: it is the parent's to release."""
    global _mutex
    _mutex = Mutex()
    for hold in [ref() for ref in _registry.values()]:
        if hold is not None:
            hold.forget_parent()
    _registry.clear()


after_fork(_forget_parent)
