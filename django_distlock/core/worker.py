"""A background thread that carries out small jobs, and ends when it has none."""

from __future__ import annotations

import atexit
import heapq
import itertools
import logging
import math
import threading
import time
import weakref
from collections.abc import Callable
from typing import ClassVar

from . import clock, threads
from .fork import after_fork
from .threads import Mutex, living

__all__ = [
    "LAST",
    "Callbacks",
    "Job",
    "Worker",
    "begin",
    "callbacks",
    "close_connections",
    "events",
    "on_worker",
]

logger = logging.getLogger("django_distlock.worker")

Job = Callable[[], None]

LAST_WAIT = 1.0  # seconds that the interpreter's end may wait for jobs that are due
IDLE = 1.0  # seconds without a job after which the thread ends; the next job starts a new one


class _WorkerThread(threading.Thread):
    """A thread of ours."""


def on_worker() -> bool:
    """Return whether this thread is a worker of ours, not one of the program's."""
    return isinstance(threading.current_thread(), _WorkerThread)


def begin(thread: threading.Thread) -> threading.Thread | None:
    """Start a thread and return it, or None where the interpreter ends and starts none any more.

    Python 3.12 starts none from the callbacks of `atexit` on.
    """
    try:
        threads.start(thread)
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
        return None
    return thread


class Worker:
    """One thread, started by the first job and ended when idle; jobs run in order of due time.

    ``after_jobs`` runs on the thread whenever nothing is due, to close what the jobs opened. A job
    that raises is logged; it does not end the thread. The interpreter's end waits for what is due,
    unless ``drained`` is false.
    """

    _all: ClassVar[weakref.WeakValueDictionary[int, Worker]] = weakref.WeakValueDictionary()

    def __init__(self, name: str, after_jobs: Job | None = None, *, drained: bool = True) -> None:
        self._name = name
        self._drained = drained
        self._after_jobs = after_jobs
        self._reset()
        Worker._all[id(self)] = self
        after_fork(self._forget_parent)

    @classmethod
    def all(cls) -> list[Worker]:
        """Return the workers that there are."""
        return living(cls._all)

    def _reset(self) -> None:
        self._jobs: list[tuple[float, int, Job]] = []
        self._order = itertools.count()
        self._mutex = Mutex()  # finalizers submit jobs
        self._ready = threading.Condition(self._mutex)  # never entered itself: see `threads`
        self._thread: threading.Thread | None = None
        self._closed = False
        self._busy = False

    def submit(self, job: Job, after: float = 0.0) -> None:
        """Have ``job`` run on the thread, ``after`` seconds from now; ignored when closed."""
        with self._mutex:
            if self._closed:
                return
            heapq.heappush(self._jobs, (clock.now() + after, next(self._order), job))
            if self._thread is None:
                self._thread = begin(_WorkerThread(target=self._run, name=self._name, daemon=True))
            if self._thread is not None:
                self._ready.notify()
                return
            self._jobs.clear()
        if not after:  # the interpreter ends: now or never
            self._carry_out(job)

    def close(self, wait: float = 1.0) -> None:
        """Drop what is not begun and wait up to ``wait`` seconds for the thread to end."""
        with self._mutex:
            self._closed = True
            self._jobs.clear()
            self._ready.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(wait)

    def is_busy(self) -> bool:
        """Return whether a job is under way."""
        return self._busy

    def is_idle(self) -> bool:
        """Return whether nothing is under way or due."""
        with self._mutex:
            return not self._jobs and not self._busy

    def drain(self, end: float) -> None:
        """Wait until nothing is due or under way, but not past ``end`` on the clock."""
        while clock.now() < end:
            with self._mutex:
                due = bool(self._jobs) and self._jobs[0][0] <= clock.now()
                if self._thread is None or not (due or self._busy):
                    return
            time.sleep(0.005)

    def _run(self) -> None:
        while True:
            job = self._next()
            if job is None:
                return
            self._carry_out(job)
            del job  # and what it refers to, while we wait for the next one

    def _next(self) -> Job | None:
        tidy = self._after_jobs is not None
        while True:
            with self._mutex:
                wait = self._jobs[0][0] - clock.now() if self._jobs else IDLE
                if self._jobs and wait <= 0:
                    self._busy = True
                    return heapq.heappop(self._jobs)[2]
                if not tidy:
                    if self._closed or (not self._ready.wait(wait) and not self._jobs):
                        self._thread = None
                        return None
                    continue
            tidy = False
            if self._after_jobs is not None:
                self._carry_out(self._after_jobs)

    def _carry_out(self, job: Job) -> None:
        try:
            job()
        except BaseException:  # sys.exit() in a user's callback ends no process from a thread
            logger.exception("A job of %s failed", self._name)
        finally:
            self._busy = False

    def _forget_parent(self) -> None:
        """Drop, in a forked child, the parent's thread and jobs."""
        closed = self._closed
        self._reset()
        self._closed = closed


def close_connections() -> None:
    """Close the database connections of this thread, also those to a database in memory.

    Django's own `close()` keeps the latter open, lest the data be lost. With a thread of ours no
    data ends, and from 3.13 on Python warns of every such connection that was not closed.
    """
    from django.db import connections
    from django.db.backends.base.base import BaseDatabaseWrapper

    for connection in connections.all(initialized_only=True):
        BaseDatabaseWrapper.close(connection)


events = Worker("distlock-events", close_connections)
"""Where work of ours is done that a finalizer must not do. No code of users runs here."""


class Callbacks:
    """Runs code of users on threads of its own, so that one that hangs delays no other.

    Each callback gets an idle thread or a new one, up to ``most``; beyond that they wait for each
    other. One that takes longer than ``slow`` seconds is named in the log, at its end or when the
    next callback comes.
    """

    def __init__(self, *, most: int = 32, slow: float = 5.0) -> None:
        self._most = most
        self._slow = slow
        self._mutex = Mutex()  # a finalizer may submit on a thread that is inside
        self._workers: list[Worker] = []
        self._next = itertools.count()
        self._running: dict[int, tuple[float, str]] = {}
        after_fork(self._forget_parent)

    def submit(self, callback: Job, what: str) -> None:
        """Have ``callback`` run; ``what`` is what the log calls it."""
        for number in list(self._running):
            self._name_if_slow(number)
        with self._mutex:
            idle = (worker for worker in self._workers if worker.is_idle())
            worker = next(idle, None)
            if worker is None and len(self._workers) < self._most:
                number = len(self._workers) + 1
                worker = Worker(f"distlock-callback-{number}", close_connections)
                self._workers.append(worker)
            worker = worker or self._workers[next(self._next) % self._most]
            worker.submit(lambda: self._carry_out(callback, what))

    def _carry_out(self, callback: Job, what: str) -> None:
        number = next(self._next)
        self._running[number] = (clock.now(), what)
        try:
            callback()
        finally:
            self._name_if_slow(number)
            self._running.pop(number, None)

    def _name_if_slow(self, number: int) -> None:
        started, what = self._running.get(number, (math.inf, ""))
        took = clock.now() - started
        if took > self._slow:
            self._running[number] = (math.inf, what)  # named once
            logger.warning("%s has been running for %.1f s", what, took)

    def is_idle(self) -> bool:
        """Return whether all that was submitted has run."""
        return all(worker.is_idle() for worker in tuple(self._workers))

    def drain(self, end: float) -> None:
        """Wait until all that was submitted has run, but not past ``end`` on the clock."""
        for worker in tuple(self._workers):
            worker.drain(end)

    def _forget_parent(self) -> None:
        """Have a mutex, in a forked child, that no thread of the parent's has locked."""
        self._mutex = Mutex()
        self._running.clear()


callbacks = Callbacks()
"""Where callbacks of users and receivers of signals run that no call of theirs is waiting for."""


LAST: list[Job] = []
"""What is done at the interpreter's end, when all that was due has been done."""


def _end_all() -> None:
    end = clock.now() + LAST_WAIT
    workers = Worker.all()
    for worker in workers:
        if worker._drained:
            worker.drain(end)
    for job in LAST:
        job()
    for worker in workers:
        worker.close(max(0.0, end - clock.now()))


# Threads that are no longer waited for die with the interpreter: a release handed to one of them
# by a second Ctrl-C, say, would leave its lock to the ttl. And one that dies while it writes to the
# log keeps the stream's mutex, for which the interpreter aborts.
atexit.register(_end_all)
