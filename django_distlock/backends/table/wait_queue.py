"""The wait queue: waiters for a lock queue in the database server.

Correctness rests on the lock's row; the wait queue only tells when reading it may help. A waiter
blocks on an advisory lock of the server (`pg_advisory_lock`, `GET_LOCK`), which is granted first
come, first served. A waiter that was granted it keeps it until it releases its own lock, so that
a release wakes exactly the next. The entry of a crashed process ends with its connection.

The waiters of one process for one name form a local queue, which has one connection and one entry
in the server's queue: the connections are bounded by the names contended for, however many wait.
A local queue keeps its entry when its first waiter gives up. After each grant it enters again at
the end: processes take turns.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import Error

from ...core.clock import Clock
from ...core.threads import Event, Mutex
from ...core.values import Claim
from ...core.worker import Worker
from .queue_connections import QueueConnection, QueueConnections

__all__ = ["WaitQueues"]

logger = logging.getLogger("django_distlock.table")

NAP, LONGEST_NAP = 0.005, 0.05  # seconds between two attempts of the first waiter on a held row
LONGEST = 30.0  # seconds of one wait on a connection: one that died unnoticed is found out then
LOOK = 1.0  # seconds between two inspections of what is first or idle
IDLE = 5.0  # seconds after which a connection that no waiter needs is closed
CLOSED_FOR = 5.0  # seconds without a wait queue after the server refused one
BUSY_FOR = 5.0  # seconds after a refusal for which a new claim enters the wait queue first
MOST_NAMES = 1000  # names remembered as busy or free
TOO_SOON = 0.01  # seconds after a release; a loop that acquires again sooner starves the others
POLITE_EVERY = 0.1  # seconds between two times that such a loop enters the wait queue first


class QueueEntry:
    """One claim in its local queue, from its first wait to its release."""

    __slots__ = ("called", "claim", "end", "nap", "queue", "until")

    def __init__(self, claim: Claim, queue: LocalQueue) -> None:
        self.claim = claim
        self.queue = queue
        self.end: float | None = None  # when its wait is over; None: never
        self.until: float | None = None  # when its lease ends; None while it waits
        self.nap = NAP
        self.called = Event()  # its turn has come, or there is no wait queue

    def is_inside(self) -> bool:
        """Return whether its turn has come. Asked under the wait queues' mutex."""
        return self.queue.inside and self.queue.entries[0] is self

    def next_nap(self) -> float:
        """Return how long to sleep before the next attempt, when it is first.

        The holder has not come through the wait queue, so that nothing tells of its release.
        There is only one waiter of each name that asks so often.
        """
        nap, self.nap = self.nap, min(2 * self.nap, LONGEST_NAP)
        return nap * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


class LocalQueue:
    """The claims of this process for one name.

    It has a ``queue_connection`` while it waits in the server's queue, is ``inside`` (the first of
    the server's queue, so that its own first claim may take the lock), or is about to leave.
    """

    __slots__ = ("entries", "inside", "key", "queue_connection")

    def __init__(self, key: str) -> None:
        self.key = key
        self.entries: deque[QueueEntry] = deque()
        self.queue_connection: QueueConnection | None = None
        self.inside = False


class WaitQueues:
    """The wait queues in which this process has an entry, by the key of the lock.

    ``make`` makes a queue connection, of which there are ``most``. With all of them in use, `queue`
    returns False.
    """

    def __init__(self, make: Callable[[], QueueConnection], clock: Clock, most: int) -> None:
        self._make_queue_connections = partial(QueueConnections, make, most)
        self._clock = clock
        self._reset()

    def _reset(self) -> None:
        # Never held while the server is asked.
        self._mutex = Mutex()
        self._queue_connections = self._make_queue_connections()
        self._local_queues: dict[str, LocalQueue] = {}
        self._entries: dict[str, QueueEntry] = {}
        self._busy: dict[str, float] = {}
        self._freed: dict[str, float] = {}
        self._closed_until = 0.0
        self._closed = False
        self._worker = Worker("distlock-queue", drained=False)
        self._looked_after = False

    def __contains__(self, owner: str) -> bool:
        return owner in self._entries

    def refused(self, key: str) -> None:
        """Note that a waiter of this process was refused, or queued behind others."""
        _note(self._busy, key, self._clock())

    def is_busy(self, key: str) -> bool:
        """Return whether a waiter of this process met others a moment ago.

        Then others are in the wait queue. A claim that asked for the row first would overtake them,
        and the first waiter would have to poll.
        """
        now = self._clock()
        since = self._busy.get(key)
        if since is not None:
            if now - since <= BUSY_FOR:
                return True
            self._busy.pop(key, None)
        return self._is_polite(key, now)

    def _is_polite(self, key: str, now: float) -> bool:
        """Return whether to ask if others wait, as no message could have told us.

        A process that takes a lock again right after its release always overtakes the one inside.
        """
        freed = self._freed.get(key)
        if freed is None or not 0 <= now - freed < TOO_SOON:
            return False
        self._freed[key] = now + POLITE_EVERY  # not before
        return True

    # -- waiting -----------------------------------------------------------------------------------

    def queue(self, claim: Claim, limit: float, left: float | None) -> bool:
        """Wait for up to ``limit`` seconds, less when trying again may help.

        False when there is nothing to wait for here: no connection is left, or the server takes
        none. The claim keeps its entry until `leave`. ``left`` is how long it may go on in all.
        """
        entry = self._join(claim, left)
        if entry is None:
            return False
        if (nap := self._nap(entry)) is not None:
            time.sleep(min(nap, limit))
        else:
            entry.called.wait(limit)
        return self._answer(entry)

    async def aqueue(self, claim: Claim, limit: float, left: float | None) -> bool:
        """Wait as `queue`, on no thread."""
        entry = self._join(claim, left)
        if entry is None:
            return False
        if (nap := self._nap(entry)) is not None:
            await asyncio.sleep(min(nap, limit))
            return True
        await entry.called.await_set(limit)
        return self._answer(entry)

    def _join(self, claim: Claim, left: float | None) -> QueueEntry | None:
        now = self._clock()
        with self._mutex:
            if self._closed or now < self._closed_until:
                return None
            entry = self._entries.get(claim.owner)
            if entry is None:
                queue = self._local_queues.get(claim.key)
                if queue is None:
                    queue = self._local_queues[claim.key] = LocalQueue(claim.key)
                entry = self._entries[claim.owner] = QueueEntry(claim, queue)
                queue.entries.append(entry)
            entry.end = None if left is None else now + left
            if entry.queue.entries[0] is entry:
                self._enter_soon(entry.queue)
            return entry

    def _nap(self, entry: QueueEntry) -> float | None:
        with self._mutex:
            return entry.next_nap() if entry.is_inside() else None

    def _answer(self, entry: QueueEntry) -> bool:
        with self._mutex:
            if not entry.called.is_set() or entry.is_inside():
                return True  # to look at the row, as its time is up or its turn has come
            entry.called.clear()
            return False

    def _enter_soon(self, queue: LocalQueue) -> None:
        """Have the local queue enter the server's, if it has not; forget it when it is empty."""
        if queue.queue_connection is not None:
            return
        if not queue.entries:
            self._local_queues.pop(queue.key, None)
            return
        connection = None if self._closed else self._queue_connections.take()
        if connection is None:
            queue.entries[0].called.set()
            return
        queue.queue_connection = connection
        now = self._clock()
        ends = [now + LONGEST if entry.end is None else entry.end for entry in queue.entries]
        limit = min(max(0.001, *(end - now for end in ends)), LONGEST)
        connection.worker.submit(partial(self._enter, queue, connection, limit))

    def _enter(self, queue: LocalQueue, connection: QueueConnection, limit: float) -> None:
        """Wait on the queue connection, on its thread."""
        inside = sound = False
        try:
            inside = connection.enter(queue.key, limit)
            sound = True
            if connection.waited:
                self.refused(queue.key)  # others go on to wait, though nobody was refused
        except Error as error:
            self._close_for_a_while(error)
        finally:
            with self._mutex:
                queue.inside = stays = inside and bool(queue.entries)
                if stays:
                    queue.entries[0].called.set()
            if not stays:  # its waiters have given up meanwhile
                self._step_back(queue, connection, inside=inside, sound=sound)

    def _close_for_a_while(self, error: Error) -> None:
        with self._mutex:
            if self._closed:
                return
            self._closed_until = self._clock() + CLOSED_FOR
        logger.warning(
            "No wait queue on the database, so waiters poll for %g s: %s", CLOSED_FOR, error
        )

    def _step_back(
        self,
        queue: LocalQueue,
        connection: QueueConnection,
        *,
        inside: bool,
        sound: bool,
    ) -> None:
        """Leave the server's queue and give its connection up; the next waiter enters again."""
        left = False
        try:
            left = sound and (not inside or connection.leave(queue.key))
        finally:
            if not left:
                connection.close()
            with self._mutex:
                queue.queue_connection = None
                self._queue_connections.give_back(connection)
                if queue.entries and not inside:
                    # To poll once, as entering again might fail at once.
                    queue.entries[0].called.set()
                else:
                    self._enter_soon(queue)
                self._look_after_later()

    def leave(self, claim: Claim, *, sound: bool = True) -> None:
        """Leave the wait queue, or the local queue before it; the next waiter's turn comes.

        With ``sound`` false the server does not answer, and is not asked.
        """
        with self._mutex:
            entry = self._entries.pop(claim.owner, None)
            if entry is None:
                now = self._clock()
                if self._freed.get(claim.key, now) <= now:
                    _note(self._freed, claim.key, now)
                return
            queue = entry.queue
            was_first = queue.entries[0] is entry
            queue.entries.remove(entry)
            if not was_first:
                return
            if queue.inside and queue.entries and entry.until is None:
                queue.entries[0].called.set()  # a waiter that gives up has taken no turn
                return
            connection, inside, queue.inside = (
                queue.queue_connection,
                queue.inside,
                False,
            )
            if not inside or connection is None:
                self._enter_soon(queue)
                return
        self._step_back(queue, connection, inside=True, sound=sound)

    # -- being inside ------------------------------------------------------------------------------

    def granted(self, claim: Claim) -> None:
        """Note that ``claim`` has its lock: inside, it stays there for as long."""
        entry = self._entries.get(claim.owner)
        if entry is None:
            return
        with self._mutex:
            if entry.is_inside():
                entry.until = self._clock() + claim.ttl
                self._look_after_later()
                return
        self.leave(claim)

    def renewed(self, claim: Claim) -> None:
        """Note that the lease of ``claim`` lasts longer."""
        entry = self._entries.get(claim.owner)
        if entry is not None and entry.until is not None:
            entry.until = self._clock() + claim.ttl

    def _look_after_later(self) -> None:
        with self._mutex:
            if not self._looked_after:
                self._looked_after = True
                self._worker.submit(self._look_after, LOOK)

    def _look_after(self) -> None:
        """Close idle connections, and leave wait queues whose leases were lost or forgotten."""
        now = self._clock()
        with self._mutex:
            self._looked_after = False
            entries = list(self._entries.values())
        for entry in entries:
            if entry.until is not None and entry.until <= now:
                self.leave(entry.claim)
        if self._queue_connections.close_unused(now - IDLE):
            self._look_after_later()

    # -- the end -----------------------------------------------------------------------------------

    def close_idle(self) -> None:
        """Close the connections that no waiter and no holder uses now."""
        self._queue_connections.close_unused(self._clock())

    def close(self) -> None:
        """Leave all wait queues and close the connections."""
        with self._mutex:
            self._closed = True
            entries = list(self._entries.values())
        self._worker.close()
        for entry in entries:
            self.leave(entry.claim)
        self._queue_connections.close()

    def forget_parent(self) -> list[BaseDatabaseWrapper]:
        """Forget, in a forked child, the parent's queues; return its connections, to be kept."""
        kept = self._queue_connections.forget_parent()
        self._reset()
        return kept


def _note(times: dict[str, float], key: str, now: float) -> None:
    if len(times) >= MOST_NAMES:
        times.clear()  # only a hint
    times[key] = now
