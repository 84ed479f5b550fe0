"""Renewal in the background, and the news of a lost lease.

One scheduler thread a process knows when what is due and never talks to a store; each alias has a
worker thread that does. So a store that hangs delays its own leases only, and even these are
reported lost at their deadline, which is the scheduler's to watch.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import logging
import threading
import warnings
import weakref
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ..backends.base import BaseLockBackend
from ..signals import heard, listeners, lock_failed
from . import clock
from .clock import Clock
from .flow import drift
from .fork import after_fork
from .registry import Index, take_dropped
from .threads import Mutex
from .values import Claim, HolderInfo
from .worker import Worker, begin, close_connections, events

if TYPE_CHECKING:
    from .hold import Hold

__all__ = ["Watchdog", "abandon", "watchdog", "worker_of"]

logger = logging.getLogger("django_distlock.watchdog")

IDLE = 1.0  # seconds with nothing to watch after which the scheduler's thread ends
LOOK = 5.0  # seconds after which it checks whether there still is something to watch
PART = 3  # a lease is renewed when a third of its ttl has passed (as Redisson's watchdog does)
LEAST = 512  # buckets of the schedule that are not worth looking through
STEPS = 20  # of that third: those due in the same step are renewed together, at its beginning


Entry: TypeAlias = "tuple[weakref.ref[Hold], Index, Claim, str, bool]"
"""A hold, and what is to be known of one that is gone: where it was found, whether it renewed."""

Bucket: TypeAlias = "dict[int, Entry]"


class Schedule:
    """When each hold is to be renewed or given up: pure, told the time by its caller.

    The holds of one time are in one bucket, from which a hold is taken when it is over: most
    locks are released long before they are due.

    `add` may come in between any two steps of itself, by a signal's handler. All else is for the
    watchdog's thread, on which no handler runs, but finalizers do, which may add as well.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Bucket]] = []
        self._open: dict[float, Bucket] = {}  # of those in the heap, where to add
        self._order = itertools.count()
        self._bound = LEAST  # buckets at which the empty ones are to be taken out

    def add(self, hold: Hold, due: float) -> bool:
        """Look at ``hold`` at ``due``, not when it was said before.

        Tell whether that is news for the thread: it is the soonest, or it is time to `sweep`.
        """
        is_news = False
        bucket = self._open.get(due)
        if bucket is None:
            is_news = not self._heap or due < self._heap[0][0] or self.is_crowded()
            bucket = {}
            heapq.heappush(self._heap, (due, next(self._order), bucket))
            self._open[due] = bucket
        number = next(self._order)
        # What is part of a transaction ends with it, whichever process has the lease.
        renewed = hold.renewing and hold.bound is None
        # In this order an interruption leaves it looked at twice rather than not at all.
        bucket[number] = (weakref.ref(hold), hold.index, hold.claim, hold.backend.alias, renewed)
        hold.unwatch()
        hold.entry = bucket, number
        return is_news

    def is_crowded(self) -> bool:
        """Return whether many buckets may be empty, so that it is time to `sweep`."""
        return len(self._heap) >= self._bound

    def sweep(self) -> None:
        """Take out the empty buckets, and what was dropped of the others."""
        heap, self._heap = self._heap, []
        self._open = {}  # from here on what is added comes into new buckets
        for entry in heap:
            if _clear(entry[2]):
                heapq.heappush(self._heap, entry)
        # Of the holds too, which are all checked here.
        self._bound = max(LEAST, 2 * len(self._heap), len(self) // 4)

    def trim(self) -> None:
        """Take out what comes first but is over, so that what is next due is still held."""
        while self._heap:
            entry = heapq.heappop(self._heap)
            self._open.pop(entry[0], None)
            if _clear(entry[2]):
                heapq.heappush(self._heap, entry)
                break
        self._bound = min(self._bound, max(LEAST, 2 * len(self._heap)))

    def next_due(self) -> float | None:
        """Return when something is due, or None when nothing is watched."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> list[Hold]:
        """Take out and return the holds that are due."""
        holds: list[Hold] = []
        while self._heap and self._heap[0][0] <= now:
            due, _, bucket = heapq.heappop(self._heap)
            self._open.pop(due, None)
            holds += filter(None, map(_held, list(bucket.values())))
        return holds

    def __len__(self) -> int:
        return sum(len(bucket) for _, _, bucket in self._heap)


def _clear(bucket: Bucket) -> Bucket:
    """Take out of a bucket what was dropped."""
    for number, entry in list(bucket.items()):
        if _held(entry) is None:
            bucket.pop(number, None)
    return bucket


def _held(entry: Entry) -> Hold | None:
    """Return the hold of an entry, unless it is over."""
    ref, index, claim, alias, renewing = entry
    hold = ref()
    if hold is not None:
        return hold if hold.is_active() else None
    # Found here, not by a finalizer: in those an interruption is lost.
    if take_dropped(index) and renewing:
        try:
            events.submit(partial(_tell_of_drop, claim, alias))
        except RuntimeError as error:  # no thread can be started just now
            logger.warning("Not told in full, lock %.200r was dropped: %s", claim.name, error)
    return None


def _tell_of_drop(claim: Claim, alias: str) -> None:
    """Warn of a lease whose holder meant to have it renewed, and keeps no reference to it."""
    text = (
        f"Lock {claim.name!r:.200} of alias {alias!r} was dropped without a release, so it is not "
        "renewed and ends with its ttl: keep the lease, or use 'with'. "
        f"Acquired by {HolderInfo.loads(claim.note).holder}"
    )
    logger.warning("%s", text)
    warnings.warn(text, ResourceWarning, stacklevel=2)


def wants_renewal(hold: Hold, now: float) -> bool:
    """Return whether the watchdog may renew ``hold`` now; say in the log why it no longer does."""
    bound = hold.bound
    if not hold.renewing or (bound is not None and bound.open()):
        return False  # what is written in an open transaction, only its own connection can renew
    if hold.backend.place() != hold.place:
        hold.renewing = False  # a test's, whose database is gone: nothing to report
        return False
    if not hold.holder_lives():
        if hold.orphaned:
            return False
        hold.orphaned = True  # until another thread or task adopts it
        why = "the thread or task that took it has ended (hand it over by lease.adopt())"
    elif hold.max_hold is not None and now >= hold.acquired + hold.max_hold:
        hold.renewing = False
        why = f"it has been held for MAX_HOLD = {hold.max_hold:g} s"
    else:
        return True
    name, alias = hold.claim.name, hold.backend.alias
    logger.warning("Lock %.200r of alias %r is not renewed any more: %s", name, alias, why)
    return False


class Watchdog:
    """Watches every hold of the process; its thread runs only while there are any."""

    def __init__(self, now: Clock = clock.now) -> None:
        self._now = now
        self._reset()
        after_fork(self._reset)

    def _reset(self) -> None:
        self._schedule = Schedule()
        self._mutex = Mutex()  # see _workers_mutex
        self._changed = threading.Condition(self._mutex)  # never entered itself: see `threads`
        self._thread: threading.Thread | None = None
        self._ended = False

    def end(self, wait: float = 1.0) -> None:
        """Watch no more, and wait up to ``wait`` seconds for the thread to end."""
        with self._mutex:
            self._ended = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(wait)

    def watch(self, hold: Hold) -> None:
        """Renew ``hold`` at each third of its ttl, and report it lost when its time is up."""
        now = self._now()
        # Of what is left, where that is less: a crossing renewal may have made the lease shorter.
        part = min(hold.claim.ttl, hold.deadline - now) / PART
        if hold.renewing and part > 0:
            due = now + part
            self._look_at(hold, due - due % (hold.claim.ttl / PART / STEPS))
        else:
            self._look_at(hold, hold.deadline)

    def _look_at(self, hold: Hold, due: float) -> None:
        with self._mutex:
            is_news = self._schedule.add(hold, due)
            if self._thread is None and not self._ended:
                self._thread = begin(
                    threading.Thread(target=self._run, name="distlock-watchdog", daemon=True)
                )
            elif is_news:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._mutex:
                due = self._schedule.next_due()
                wait = IDLE if due is None else min(due - self._now(), LOOK)
                told = self._ended or wait <= 0 or self._changed.wait(wait)
                if self._ended:
                    return
                if self._schedule.is_crowded():
                    self._schedule.sweep()
                if not told:
                    # A release does not notify us: the hold may be due in an hour, and be gone.
                    self._schedule.trim()
                    if self._schedule.next_due() is None:
                        self._thread = None
                        return
                now = self._now()
                holds = self._schedule.due(now)
            try:
                self.tick(holds, now)
            except Exception:  # it must not end the watch over all other leases
                logger.exception("Watching %d locks failed", len(holds))
            del holds  # else this frame would keep a dropped lease alive until the next tick

    def tick(self, holds: list[Hold], now: float) -> None:
        """Do what is due: note losses, and hand renewals to the workers in one batch an alias."""
        batches: dict[BaseLockBackend, list[Hold]] = defaultdict(list)
        for hold in holds:
            try:
                if hold.is_lost():
                    continue
                if not hold.in_flight and wants_renewal(hold, now):
                    hold.in_flight = True
                    batches[hold.backend].append(hold)
                    self._look_at(hold, hold.deadline)
                else:
                    self._look_at(hold, min(now + hold.claim.ttl / PART, hold.deadline))
            except Exception:  # one that cannot be checked must not cost the others
                logger.exception("Watching lock %.200r failed", hold.claim.name)
        for backend, batch in batches.items():
            # Weakly here too: a queue behind a hung store must not keep dropped leases alive.
            refs = [weakref.ref(hold) for hold in batch]
            try:
                worker_of(backend).submit(partial(self.renew, backend, refs))
            except RuntimeError as error:  # no thread can be started just now
                self._put_off(batch, str(error))

    def renew(self, backend: BaseLockBackend, refs: list[weakref.ref[Hold]]) -> None:
        """Renew a batch, on the alias's worker."""
        place = backend.place()
        holds = []
        for hold in filter(None, (ref() for ref in refs)):
            # A release that failed while this waited its turn has ended the renewals.
            if hold.is_active() and hold.renewing and hold.place == place:
                holds.append(hold)
            else:
                hold.in_flight = False
        sent = self._now()
        claims = [hold.claim for hold in holds]
        try:
            answers: list[bool] = backend.call("renew_many", claims) if claims else []
        except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
            # A passing error is not a loss: the lease lasts until its deadline.
            # Not the error itself: it refers to this frame, and a handler may keep what is logged.
            for hold, claim in zip(holds, claims, strict=True):
                hold.note_unanswered(claim.ttl, sent)
            self._put_off(holds, str(error))
            return
        for hold, claim, ours in zip(holds, claims, answers, strict=True):
            hold.in_flight = False
            self._renewed(hold, claim, sent) if ours else hold.lose(
                "the store says that it is not ours any more: it expired or was forced"
            )

    def _put_off(self, holds: list[Hold], reason: str) -> None:
        """Say that renewals failed, and try them again soon."""
        logger.warning("Renewing %d locks failed: %s", len(holds), reason)
        for hold in holds:
            hold.in_flight = False
            left = hold.deadline - self._now()
            self._look_at(hold, self._now() + max(0.02, min(left / 4, hold.claim.ttl / 10)))
            if heard(lock_failed):
                why = {"action": "renew", "reason": reason, "waited": None}
                hold.tell_later(lock_failed, ends=False, **why)

    def _renewed(self, hold: Hold, claim: Claim, sent: float) -> None:
        ttl = hold.relied_on(claim.ttl, sent)
        deadline = sent + ttl - drift(ttl)
        if hold.claim is claim:  # else the holder has renewed meanwhile, with a ttl of its own
            hold.deadline = max(hold.deadline, deadline)
        self.watch(hold)
        if listeners:
            left = hold.deadline - self._now()
            hold.tell_later(None, ends=False, deadline_in=left)


watchdog = Watchdog()
atexit.register(watchdog.end)  # as the workers are, and before them: see there
_workers: weakref.WeakKeyDictionary[BaseLockBackend, Worker] = weakref.WeakKeyDictionary()
_workers_mutex = Mutex()  # a finalizer may hand over work on a thread that is inside


def worker_of(backend: BaseLockBackend) -> Worker:
    """Return the worker thread of a backend: renewals, and releases in the background."""
    with _workers_mutex:
        worker = _workers.get(backend)
        if worker is None:
            # The worker must not keep its backend alive, being found by it; and may outlast it.
            tidy = weakref.WeakMethod(backend.close_thread)
            worker = Worker(f"distlock-{backend.alias}", lambda: (tidy() or close_connections)())
            _workers[backend] = worker
        return worker


def abandon(backend: BaseLockBackend, claim: Claim, place: object) -> None:
    """Release ``claim`` in the background, again and again until its ttl has passed anyway.

    Also a few times after the store said that there is nothing to release: a server that hung may
    read the request for the lock after the one for its release. ``place`` is where the claim was
    made: once the alias means another one, it is over.
    """
    end = clock.now() + backend.max_ttl(claim.ttl)
    again = iter((0.2, 0.5, 1.0))

    def job(delay: float = 0.05) -> None:
        if backend.place() != place:
            return
        try:
            if not backend.call("release", claim, name=claim.name):
                after = next(again, None)
                if after is not None and clock.now() + after < end:
                    worker_of(backend).submit(job, after)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
            if clock.now() + delay < end:
                worker_of(backend).submit(lambda: job(min(2 * delay, 2.0)), delay)
            else:
                name, alias = claim.name, backend.alias
                logger.warning("Lock %.200r of alias %r is left to its ttl: %s", name, alias, error)

    worker_of(backend).submit(job)


def _forget_parent() -> None:
    global _workers_mutex
    _workers_mutex = Mutex()


after_fork(_forget_parent)
