"""Open transactions of the caller: seeing them, and being told when they have ended.

Releasing a lock before the commit is the classic mistake: the next holder reads the old data.
Django has a hook for the commit (`on_commit`) and none for the rollback, but on a rollback it
throws the callback away: a sentinel that only the callback refers to is then collected, and its
finalizer tells. In a `TestCase` the outermost block never commits; there the block that is gone is
noticed by `sweep`, which every call of the lock API begins with.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from asgiref.sync import AsyncToSync, sync_to_async
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from .core.descriptors import descriptor_of, mute
from .core.fork import after_fork
from .core.threads import Mutex
from .core.worker import events

__all__ = [
    "Ask",
    "Block",
    "Ending",
    "any_open",
    "is_pending",
    "kept",
    "may_be_elsewhere",
    "of_testcase",
    "on_end",
    "open_transactions",
    "own_connection",
    "sweep",
]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The outermost transaction of a connection that is really one (not a TestCase's own)."""

    connection: BaseDatabaseWrapper
    atomic: object
    nested: bool  # in the block of a TestCase
    savepoint: str | None  # of a nested one, unless it was made without; has a name of its own

    def is_open(self) -> bool:
        """Return whether the block has not ended yet."""
        connection = self.connection
        if self.nested:
            named = self.savepoint is None or self.savepoint in connection.savepoint_ids
            return named and self.atomic in connection.atomic_blocks
        if connection.atomic_blocks[:1] == [self.atomic]:
            return True
        # Django takes the block off its list before it sends the COMMIT, and turns autocommit on
        # after the answer.
        return connection.connection is not None and not connection.autocommit


def of_testcase(atomic: object) -> bool:
    """Return whether an atomic block is one that Django's `TestCase` wraps around a test.

    The mark is private to Django (a test per Django version watches it); it is read only here.
    """
    return bool(getattr(atomic, "_from_testcase", False))


def open_transactions() -> tuple[list[Block], bool]:
    """Return the transactions that this thread has open, on whatever database alias.

    And whether there is one without `atomic()`, whose end Django does not report.
    """
    blocks: list[Block] = []
    by_hand = False
    for connection in _of_this_thread():
        atomics = connection.atomic_blocks
        for index, atomic in enumerate(atomics):
            if not of_testcase(atomic):
                depth = len(atomics) - index
                nested = index > 0
                savepoint = connection.savepoint_ids[-depth] if nested else None
                blocks.append(Block(connection, atomic, nested, savepoint))
                break
        if not connection.in_atomic_block:
            by_hand |= connection.connection is not None and not connection.autocommit
    return blocks, by_hand


def any_open() -> bool:
    """Return whether this thread may have a transaction open, at less cost than which."""
    for connection in _of_this_thread():
        if connection.in_atomic_block:
            return True
        if connection.connection is not None and not connection.autocommit:
            return True
    return False


def may_be_elsewhere() -> bool:
    """Tell, on an event loop, whether another thread may have the transactions of the caller.

    Only synchronous code above us (`async_to_sync`) can have one open: Django forbids `atomic()` on
    the event loop.
    """
    above = getattr(AsyncToSync.executors, "current", None)
    return above is not None or bool(AsyncToSync.loop_thread_executors)


def _of_this_thread() -> Sequence[BaseDatabaseWrapper]:
    """Return the connections that this thread has made; every release asks for them.

    `connections.all()` asks for each alias by errors that are raised and caught, which takes longer
    than the rest of a release. What it looks at is private to Django and asgiref (a test watches
    it); where it looks different, or on an event loop, Django is asked.
    """
    own = getattr(getattr(connections, "_connections", None), "_storage", None)
    if type(own) is not threading.local or asyncio._get_running_loop() is not None:
        return connections.all(initialized_only=True)
    # An event loop that ran on this thread has left something else there.
    return [each for each in vars(own).values() if isinstance(each, BaseDatabaseWrapper)]


# The drivers' connections that a forked child got from its parent, kept as long as it lives: two
# processes that read from one socket take each other's answers, and a connection that is closed or
# collected in the child is closed for the parent too.
INHERITED: list[object] = []


def _forget_parent() -> None:
    _pending.clear()  # in memory here, but in the database they are the parent's
    for connection in connections.all(initialized_only=True):
        # A database in memory was copied by the fork and has nothing to share.
        in_memory = connection.vendor == "sqlite" and connection.is_in_memory_db()  # type: ignore[attr-defined]
        if connection.connection is not None and not in_memory:
            INHERITED.append(connection.connection)


def own_connection(database: str) -> BaseDatabaseWrapper:
    """Return this thread's connection to a DATABASES alias, never one of a parent process."""
    own = connections[database]
    # One that the child has opened again itself, as Django's parallel test runner does, is its own.
    if INHERITED and any(own.connection is inherited for inherited in INHERITED):
        mute(descriptor_of(own.connection))
        with suppress(Exception):  # nothing is sent to the server, and no finalizer has to
            own.connection.close()
        del connections[database]
        own = connections[database]
    return own


@dataclass(slots=True)
class Ask:
    """A step of a flow: run a function on the thread that has the caller's transactions."""

    interruptible: ClassVar[bool] = False

    function: Callable[[], object]

    def do(self) -> object:
        return self.function()

    async def ado(self) -> object:
        if not may_be_elsewhere():
            return self.function()  # the hop to another thread is saved
        return await sync_to_async(self.function, thread_sensitive=True)()


class _Sentinel:
    """Referred to only by the callback that Django keeps until the commit or the rollback."""

    __slots__ = ("__weakref__",)


def on_end(
    connection: BaseDatabaseWrapper, committed: Callable[[], None], discarded: Callable[[], None]
) -> None:
    """Have ``committed`` called after the commit, and ``discarded`` when Django drops the callback.

    ``discarded`` comes in any case, last, perhaps on another thread and inside a finalizer.
    """
    sentinel = _Sentinel()

    def callback(_: _Sentinel = sentinel) -> None:
        committed()

    weakref.finalize(sentinel, discarded).atexit = False
    connection.on_commit(callback, robust=True)


class Ending:
    """Tells once when all of some transactions have ended.

    ``here`` is called on the thread of the transactions, ``elsewhere`` on any thread (a finalizer:
    it must do no input or output), exactly one of the two. Until then `kept` finds the ``subject``
    by its ``key``.
    """

    def __init__(
        self,
        blocks: list[Block],
        here: Callable[[], None],
        elsewhere: Callable[[], None],
        *,
        subject: object = None,
        key: Hashable = None,
    ) -> None:
        self.subject = subject
        self.key = key
        self._blocks = blocks
        self._here = here
        self._elsewhere = elsewhere
        self._told = False
        self._mutex = Mutex()  # a finalizer may run on a thread that is inside
        self._thread = threading.get_ident()
        # Those of the same transactions together: they end together, and are looked at once.
        self._place = tuple((id(b.connection), id(b.atomic), b.savepoint) for b in blocks)
        places = _pending.setdefault(self._thread, {})
        places.setdefault(self._place, _Together()).add(self)
        for block in blocks:
            self._listen(block)

    def _listen(self, block: Block) -> None:
        if block.nested:
            return  # inside a TestCase on_commit callbacks do not run, and users count them
        on_end(block.connection, self._look_here, self._discarded)

    def _look_here(self) -> None:
        self.look(here=True)

    def _discarded(self, delay: float = 0.01) -> None:
        # A rolled-back savepoint discards the callback too, while the transaction goes on: then
        # nothing will call us again, so check now and then.
        if not self.look(here=False) and not self._told:
            events.submit(lambda: self._discarded(min(2 * delay, 0.5)), delay)

    def open(self) -> bool:
        """Return whether one of the transactions is still open."""
        return any(block.is_open() for block in self._blocks)

    def look(self, *, here: bool) -> bool:
        """Notify the waiter once all has ended; return whether this call did."""
        if self.open():
            return False
        with self._mutex:
            if self._told:
                return False
            self._told = True
        places = _pending.get(self._thread, {})
        together = places.get(self._place)
        if together is not None and together.discard(self):
            places.pop(self._place, None)
            if not places:
                _pending.pop(self._thread, None)
        (self._here if here else self._elsewhere)()
        return True


class _Together:
    """The endings of the same transactions, found at once however many there are."""

    def __init__(self) -> None:
        self.endings: dict[Ending, None] = {}
        self.subjects: dict[Hashable, object] = {}

    def add(self, ending: Ending) -> None:
        self.endings[ending] = None
        self.subjects[ending.key] = ending.subject

    def discard(self, ending: Ending) -> bool:
        """Take one out; return whether none is left."""
        self.endings.pop(ending, None)
        if self.subjects.get(ending.key) is ending.subject:
            self.subjects.pop(ending.key, None)
        return not self.endings


# By the thread, then by the transactions.
_pending: dict[int, dict[tuple[Hashable, ...], _Together]] = {}


is_pending: Callable[[], object] = _pending.__len__
"""Tell cheaply whether `sweep` may have anything to do."""


def sweep() -> None:
    """Notice the transactions of this thread that have ended."""
    for together in list(_pending.get(threading.get_ident(), {}).values()):
        first = next(iter(together.endings), None)
        if first is not None and not first.open():
            for ending in list(together.endings):
                ending.look(here=True)


def kept(key: Hashable) -> object:
    """Return what an open transaction of this thread keeps under ``key``, or None; sweep first."""
    sweep()
    for together in _pending.get(threading.get_ident(), {}).values():
        if (subject := together.subjects.get(key)) is not None:
            return subject
    return None


after_fork(_forget_parent)
