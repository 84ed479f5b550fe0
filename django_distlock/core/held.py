"""What this process holds: one `Hold` a grant, found by lock and by who holds it."""

from __future__ import annotations

import asyncio
import enum
import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

from ..backends.base import BaseLockBackend
from ..exceptions import LeaseLostError
from ..signals import Tell, heard, lock_left, lock_lost
from . import losses
from .flow import Granted
from .holder import this_task
from .values import Claim, Grant
from .worker import callbacks

if TYPE_CHECKING:
    from django.dispatch import Signal

__all__ = [
    "Hold",
    "Index",
    "Me",
    "Party",
    "State",
    "find",
    "of_same_flow",
    "party",
    "take_dropped",
]

Party: TypeAlias = "asyncio.Task[Any] | threading.Thread"
Me: TypeAlias = tuple[Party, int, int]
"""Who is asking, its flow of calls, and its chain: see `party`."""

logger = logging.getLogger("django_distlock")

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
    """Return who is asking, the current task or else thread, its flow of calls, and its chain.

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
    # New here, or inherited from whoever made this task or thread: a flow of its own.
    flow = next(_flows)
    chain = chain or flow
    alive = tuple(each for each in known if each[0]() is not None)
    _flow.set((chain, (*alive, (weakref.ref(who), flow))))
    return who, flow, chain


class State(enum.Enum):
    """The life of a hold. It only goes forward, but for RELEASING when the store failed."""

    ACTIVE = "active"
    RELEASING = "releasing"
    RELEASED = "released"
    DETACHED = "detached"
    LOST = "lost"


class Hold:
    """One grant, shared by the leases of all nested acquisitions of it.

    The registry and the watchdog refer to it weakly: when nobody has the lease any more it is not
    renewed, and ends with its ttl.
    """

    __slots__ = (
        "__weakref__",
        "acquired",
        "backend",
        "bound",
        "chain",
        "claim",
        "count",
        "deadline",
        "deferred",
        "entry",
        "fencing_token",
        "flow",
        "in_flight",
        "index",
        "label",
        "marks",
        "max_hold",
        "mutex",
        "on_lost",
        "orphaned",
        "party",
        "place",
        "reason",
        "renewing",
        "returned",
        "state",
        "unsure",
    )

    def __init__(
        self,
        backend: BaseLockBackend,
        claim: Claim,
        granted: Grant | Granted,
        *,
        deadline: float,
        acquired: float,
        renewing: bool,
        max_hold: float | None = None,
        label: str | None = None,
        me: Me | None = None,
    ) -> None:
        self.backend = backend
        self.place = backend.place()
        self.claim = claim
        self.fencing_token = granted.fencing_token
        self.bound = granted.bound
        self.deadline = deadline
        self.acquired = acquired
        self.renewing = renewing
        self.max_hold = max_hold
        self.label = label  # what metrics call the lock, if anything
        self.count = 1
        self.deferred: object | None = None  # what keeps it until a transaction has ended
        self.in_flight = False  # a renewal by the watchdog is under way
        self.unsure = False  # a release was sent and not answered: it may be done
        self.entry: tuple[dict[int, Any], int] | None = None  # where the watchdog has it
        self.state = State.ACTIVE
        self.reason = ""
        self.on_lost: list[Callable[[Hold], None]] = []
        self.mutex = threading.RLock()  # a finalizer may note a loss on a thread that is inside
        self.adopt(me)

    def adopt(self, me: Me | None = None) -> None:
        """Make the calling thread or task the holder."""
        self.orphaned = False  # whether the watchdog has seen that its holder ended
        self.returned = False  # whether its task ends by returning the lease to whoever awaits it
        who, self.flow, self.chain = me if me is not None else party()
        self.party = weakref.ref(who)
        self.marks: list[int] = []
        if not isinstance(who, asyncio.Future):
            self.mark()
        index = self.index = (id(self.backend), self.claim.key, id(who), self.flow)
        with _mutex:
            _registry[index] = weakref.ref(self)
            if len(_registry) > _bound:
                _sweep()

    def is_of(self, backend: BaseLockBackend, key: str) -> bool:
        """Tell whether it is one of the lock ``key`` of a backend."""
        return self.backend is backend and self.claim.key == key

    def mark(self) -> None:
        """Mark the context of the calling thread, which acquired the lock, perhaps once more.

        Child tasks inherit the context of their parent, and asgiref runs the synchronous parts of
        all of them on one thread. So of a thread only that context is the holder's which has the
        newest mark: what a child acquires is not its sibling's.
        """
        number = next(_numbers)
        kept = _marks.get()
        if len(kept) > 8:  # those that are over go
            kept = tuple([mark for mark in kept if _is_active(mark[1]())])
        _marks.set((*kept, (number, weakref.ref(self))))
        self.marks.append(number)

    def is_marked(self) -> bool:
        """Tell whether the calling thread's context has the newest mark; a task needs none."""
        if not self.marks or this_task() is not None:
            return True
        # Not any(): an interruption at the end of a generator is lost.
        return self.marks[-1] in [number for number, _ in _marks.get()]

    def holder_lives(self) -> bool:
        """Tell whether the thread or task that holds it can still end it.

        A lease that a task has returned is held by whoever awaited the task, as long as the Lease
        object lives: a hold is referred to weakly by all that asks here.
        """
        return self.returned or not self.party_ended()

    def party_ended(self) -> bool:
        """Tell whether the thread or task that acquired it, or adopted it last, has ended."""
        who = self.party()
        if who is None:
            return True
        # Not by Thread: what gevent calls one is none of Python's.
        return who.done() if isinstance(who, asyncio.Future) else not who.is_alive()

    def move(self, before: State, to: State, reason: str = "") -> bool:
        """Go from the state ``before`` to ``to``; False if it is in another one."""
        with self.mutex:
            if self.state is not before:
                return False
            self.reason = reason
            self.state = to
        if to is not State.RELEASING:
            self._leave_registers()
        return True

    def _leave_registers(self) -> None:
        """Be found no more, neither by the holder nor by the watchdog."""
        with _mutex:
            ref = _registry.get(self.index)
            if ref is not None and ref() is self:
                _take_out(self.index)
        self.unwatch()

    def begin_release(self) -> bool:
        """Go from ACTIVE to RELEASING; False where the release ends a nested acquisition only.

        And where a transaction keeps the hold, or it is over.
        """
        with self.mutex:
            if self.state is not State.ACTIVE or self.count != 1:
                return False
            if self.deferred is not None or self.bound is not None:
                return False
            self.state = State.RELEASING
        return True

    def unwatch(self) -> None:
        """Have the watchdog not look at it when it was said."""
        entry, self.entry = self.entry, None
        if entry is not None:
            entry[0].pop(entry[1], None)

    def leave(self, before: State, to: State, reason: str) -> bool:
        """Go to a last state without a release of which anybody is told, and tell of that."""
        if not self.move(before, to):
            return False
        if heard(lock_left):
            # Perhaps inside a finalizer, where a listener could wait for a mutex of its own.
            self.tell_later(lock_left, reason=reason, held_for=self.held_for())
        return True

    def is_kept_by_another(self) -> bool:
        """Take one acquisition off; tell whether another or a transaction keeps the lock."""
        with self.mutex:
            if self.deferred is not None:
                self.count = max(0, self.count - 1)
                return True
            if self.count > 1:
                self.count -= 1
                if len(self.marks) > 1:
                    self.marks.pop()
                return True
            return False

    def held_for(self) -> float:
        """Return the seconds since the grant."""
        return self.backend.clock() - self.acquired

    def tell(self, signal: Signal, *, ends: bool = True, **facts: Any) -> Tell:
        """Return the step that sends a signal; with what ``ends`` listeners are given the hold."""
        token = self.fencing_token if self.backend.supports_fencing else None
        given = {"name": self.claim.name, "fencing_token": token, **facts}
        return Tell(signal, self.backend.alias, given, self.label, self if ends else None)

    def tell_later(self, signal: Signal, *, ends: bool = True, **facts: Any) -> None:
        """Send a signal on a thread of its own."""
        what = f"Sending a signal of lock {self.claim.name!r:.200}"
        callbacks.submit(self.tell(signal, ends=ends, **facts).do, what)

    def tell_when_lost(self, callback: Callable[[Hold], None]) -> None:
        """Call ``callback(hold)`` at the loss, or at once when it has happened already."""
        with self.mutex:
            if self.state is not State.LOST:
                self.on_lost.append(callback)
                return
        callback(self)

    def lose(self, reason: str, before: State = State.ACTIVE) -> bool:
        """Note that the lease is gone, and tell whoever asked to be told. Once."""
        if not self.move(before, State.LOST, reason):
            return False
        name, alias = self.claim.name, self.backend.alias
        logger.warning("Lost lock %.200r of alias %r: %s", name, alias, reason)
        for callback in list(self.on_lost):
            try:
                callback(self)
            except Exception:
                logger.exception("Telling of the loss of lock %.200r failed", name)
        if heard(lock_lost):
            self.tell_later(lock_lost, reason=reason, held_for=self.held_for())
        return True

    def lost_error(self) -> LeaseLostError:
        """Return the error that tells the holder of the loss, and what to do."""
        return LeaseLostError(
            f"The lease is lost: {self.reason}. What was done since may have been done by "
            "another holder too: undo it, or guard the writes by the fencing token",
            name=self.claim.name,
            alias=self.backend.alias,
        )

    def lapse(self) -> bool:
        """Lose the lease if its time is up or its transaction undone; tell whether it is lost."""
        bound = self.bound
        if bound is not None and bound.undone():
            self.lose("the transaction that it was part of was rolled back")
        else:
            now = self.backend.clock()
            if now >= self.deadline:
                self.lose("its ttl ran out without a renewal")
            elif (sure := self.backend.sure_until(self.claim)) is not None and now >= sure:
                self.lose("its session with the store ended, or was not heard of for too long")
        return self.state is State.LOST

    def left(self) -> float:
        """Return the seconds for which the holder may still rely on the lease."""
        sure = self.backend.sure_until(self.claim, foreseen=True)
        end = self.deadline if sure is None else min(self.deadline, sure)
        return max(0.0, end - self.backend.clock())


# By the backend, not the alias: in tests another one may stand in for the alias for a while.
Index: TypeAlias = tuple[int, str, int, int]

# Swept now and then, as a WeakValueDictionary costs several times as much at each lock, and so does
# any callback, in which an interruption would be lost besides.
_registry: dict[Index, weakref.ref[Hold]] = {}
_mutex = threading.RLock()  # a finalizer may come while its thread is inside
_bound = 64  # entries after which those are taken out that refer to nothing any more


def _take_out(index: Index) -> None:
    del _registry[index]
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
    """Take out a hold to which nothing refers any more; tell whether it was never released."""
    with _mutex:
        ref = _registry.get(index)
        if ref is None or ref() is not None:
            return False
        _take_out(index)
        return True


def find(backend: BaseLockBackend, key: str, me: Me | None = None) -> Hold | None:
    """Return the hold that the calling thread or task has on ``key``, if any."""
    who, flow, _ = me or party()
    ref = _registry.get((id(backend), key, id(who), flow))
    hold = None if ref is None else ref()
    # The id of a thread or task that ended may have been given to another: compare the object.
    if hold is None or hold.backend is not backend or hold.party() is not who:
        return None
    return hold if hold.state is State.ACTIVE and hold.is_marked() else None


def _is_active(hold: Hold | None) -> bool:
    return hold is not None and hold.state is State.ACTIVE


def of_same_flow(backend: BaseLockBackend, key: str) -> Hold | None:
    """Return a hold on ``key`` by another task or thread of the same chain of calls, if any."""
    who, _, chain = party()
    for hold in every(backend):
        if hold.claim.key == key and hold.chain == chain and hold.party() is not who:
            return hold
    return None


def every(backend: BaseLockBackend | None = None) -> Iterator[Hold]:
    """Yield every hold of the process, or of one backend, that is still active."""
    # References first: while holds are looked at others come and go, and iterating would fail.
    for hold in [ref() for ref in list(_registry.values())]:
        if (
            hold is not None
            and hold.state is State.ACTIVE
            and (backend is None or hold.backend is backend)
        ):
            yield hold


def _look(backend: object) -> None:
    """Note which leases of a backend are lost."""
    for hold in every():
        if hold.backend is backend:
            hold.lapse()


losses.listen(_look)


def _forget_parent() -> None:
    """Give up, in a forked child, what the parent holds: it is the parent's to release."""
    global _mutex
    _mutex = threading.RLock()
    for hold in [ref() for ref in _registry.values()]:
        if hold is None:
            continue
        hold.mutex = threading.RLock()
        hold.state = State.LOST
        hold.reason = "it belongs to the parent process of this fork, which still holds it"
    _registry.clear()


os.register_at_fork(after_in_child=_forget_parent)
