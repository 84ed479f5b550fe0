"""Synchronisation of threads that an exception raised by a signal handler leaves intact.

Python runs signal handlers between the steps of Python code. One that raises (Ctrl-C, a soft time
limit) inside `threading.Event`, `Condition` or `Semaphore`, which are written in Python, can leave
their inner lock acquired: other threads then block in them for the life of the process. What stands
here calls C functions only, each of which happens as a whole. For the same reason, enter a `Mutex`
by ``with``, never a Condition.

A handler may also use locks itself, on a thread that is inside of one of our mutexes: so these are
RLocks.
"""

from __future__ import annotations

import _thread
import asyncio
import sys
import threading
import weakref
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["Event", "Mutex", "Permit", "Permits", "living", "start"]

T = TypeVar("T")


if sys.version_info >= (3, 14):

    class Mutex(_thread.RLock):  # type: ignore[misc]
        """A mutex whose block an interruption does not leave locked.

        Python 3.14 runs signal handlers between the call of a C function by ``with`` and the
        block; none after the return of a function in Python. ``__exit__`` stays the one in C.
        """

        __slots__ = ()

        def __enter__(self) -> bool:  # type: ignore[override]
            before = self._recursion_count()  # type: ignore[attr-defined]
            try:
                return self.acquire()
            except BaseException:
                if self._recursion_count() > before:  # type: ignore[attr-defined]
                    self.release()
                raise

else:
    Mutex = threading.RLock


def is_mine(mutex: threading.RLock) -> bool:
    """Return whether this thread has a mutex, as when a signal handler came in the middle."""
    return bool(mutex._is_owned())  # type: ignore[attr-defined]


class _Waking:
    """Wakes a task, as the release of a lock wakes a thread."""

    __slots__ = ("_loop", "future")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()

    def release(self) -> None:
        # Raises RuntimeError when the loop is closed: then there is no waiter.
        self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class Event:
    """A flag that threads can wait for, as `threading.Event`, and tasks of event loops as well."""

    __slots__ = ("_flag", "_waiters")

    def __init__(self) -> None:
        self._flag = False
        self._waiters: list[threading.Lock | _Waking] = []

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self._flag

    def set(self) -> None:
        """Set the flag, and wake all waiters."""
        self._flag = True
        for waiter in self._waiters.copy():
            with suppress(RuntimeError):  # another thread has woken it, or its loop is closed
                waiter.release()

    def clear(self) -> None:
        """Unset the flag."""
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the flag is set, for ``timeout`` seconds at most; return the flag."""
        if self._flag:
            return True
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        try:
            if self.is_set():  # before the waiter was there to be woken
                return True
            limit = threading.TIMEOUT_MAX if timeout is None else max(0.0, timeout)
            return waiter.acquire(timeout=min(limit, threading.TIMEOUT_MAX))
        finally:
            self._waiters.remove(waiter)

    async def await_set(self, timeout: float) -> bool:
        """Wait as `wait`, on the running event loop."""
        if self._flag:
            return True
        waking = _Waking()
        self._waiters.append(waking)
        try:
            if not self.is_set():
                await asyncio.wait([waking.future], timeout=timeout)
            return self.is_set()
        finally:
            self._waiters.remove(waking)


class Permit:
    """One of a limited number of permits, from `Permits.take`."""

    __slots__ = ("__weakref__",)


class Permits:
    """Bounds how many operations are under way at once.

    A permit that its user has dropped without a release, as when it was interrupted, is free again.
    """

    __slots__ = ("_most", "_mutex", "_taken")

    def __init__(self, most: int) -> None:
        self._most = most
        self._mutex = Mutex()
        self._taken: set[weakref.ref[Permit]] = set()

    def __len__(self) -> int:
        """Return how many are taken."""
        return len(self._taken)

    def take(self) -> Permit | None:
        """Return a permit, or None when all are taken."""
        with self._mutex:
            if len(self._taken) >= self._most:
                return None
            permit = Permit()
            self._taken.add(weakref.ref(permit, self._taken.discard))
            return permit

    def release(self, permit: Permit) -> None:
        """Give a permit back; not twice, but that does no harm."""
        self._taken.discard(weakref.ref(permit))


def start(thread: threading.Thread) -> None:
    """Start a thread; an interruption of that is raised as what it is, and harms no other thread.

    Python's own waits for the thread on a Condition, which hides an interruption that comes while
    it takes its lock back behind a RuntimeError, and notes who begins in a dict, which makes a
    KeyError of Celery's soft time limit. From Python 3.14 on, an interruption can leave the mutex
    locked that each thread takes when it begins and ends.
    """
    mutex = threading._active_limbo_lock  # type: ignore[attr-defined]
    # Not where a handler begins a thread in the middle of another one's begin; gevent has its own.
    ours = isinstance(mutex, _thread.RLock) and not is_mine(mutex)
    outer = sys.exc_info()[1]
    try:
        thread.start()
    except BaseException as error:
        while ours and is_mine(mutex):
            mutex.release()
        cause = error.__context__
        if not isinstance(error, (RuntimeError, KeyError)) or cause is None or cause is outer:
            raise
        raise cause from None


def living(some: weakref.WeakValueDictionary[Any, T]) -> list[T]:
    """Return the values that there are, to which other threads may add meanwhile."""
    # Copied by one step of the interpreter's: `values` would meet what is added.
    found = [reference() for reference in some.valuerefs()]
    return [each for each in found if each is not None]
