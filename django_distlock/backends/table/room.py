"""The wait queue: waiters for a lock queue in the database server.

Correctness rests on the lock's row; the room only tells when looking at it may help. A waiter
blocks on an advisory lock of the server (`pg_advisory_lock`, `GET_LOCK`), which hands it over first
come, first served. A waiter that came through the room stays inside until its release, so that
a release wakes exactly the next. The place of one that died ends with its connection.

The waiters of one process for one name stand in a line of their own, and only the line as a whole
stands at the server's door: so the connections are bounded by the names contended for, however
many wait. The line keeps its place there when the first of it gives up, for whoever comes next.
After each grant it has to stand at the end again: processes take turns.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import Error

from ...core.clock import Clock
from ...core.threads import Mutex
from ...core.values import Claim
from ...core.worker import Worker
from .doors import Door, Doors
from .line import Line, Visit

__all__ = ["Rooms"]

logger = logging.getLogger("django_distlock.table")

LONGEST = 30.0  # seconds at the door, for a connection that died unnoticed is found out then
LOOK = 1.0  # seconds between two looks at what is inside or idle
IDLE = 5.0  # seconds after which a connection that no waiter needs is closed
CLOSED_FOR = 5.0  # seconds without a room after the server refused one
BUSY_FOR = 5.0  # seconds after a refusal for which whoever comes goes to the room first
MOST_NAMES = 1000  # names remembered as busy or free
AT_ONCE = 0.01  # seconds after a release within which taking it again is a loop that lets nobody in
POLITE_EVERY = 0.1  # seconds between two times that such a loop goes to the room first


class Rooms:
    """The wait queues that this process has a foot in, by the key of the lock.

    ``make`` makes a door, ``most`` is the number of doors. With all of them in use, `queue` says
    False.
    """

    def __init__(self, make: Callable[[], Door], clock: Clock, most: int) -> None:
        self._make_doors = partial(Doors, make, most)
        self._clock = clock
        self._reset()

    def _reset(self) -> None:
        # Never held while the server is asked.
        self._mutex = Mutex()
        self._doors = self._make_doors()
        self._lines: dict[str, Line] = {}
        self._visits: dict[str, Visit] = {}
        self._busy: dict[str, float] = {}
        self._freed: dict[str, float] = {}
        self._closed_until = 0.0
        self._closed = False
        self._worker = Worker("distlock-rooms", drained=False)
        self._looked_after = False

    def __contains__(self, owner: str) -> bool:
        return owner in self._visits

    def refused(self, key: str) -> None:
        """Note that a waiter of this process was refused, or had to stand behind others."""
        _note(self._busy, key, self._clock())

    def is_busy(self, key: str) -> bool:
        """Return whether a waiter of this process met others a moment ago.

        Then others wait in the room. A claim that asked for the row first would overtake them, and
        the one whose turn it is would have to poll.
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
        if freed is None or not 0 <= now - freed < AT_ONCE:
            return False
        self._freed[key] = now + POLITE_EVERY  # not before
        return True

    # -- waiting -----------------------------------------------------------------------------------

    def queue(self, claim: Claim, limit: float, left: float | None) -> bool:
        """Wait for up to ``limit`` seconds, less when trying again may help.

        False when there is nothing to wait for here: no connection is left, or the server has no
        room. The claim keeps its place until `leave`. ``left`` is how long it may go on in all.
        """
        visit = self._join(claim, left)
        if visit is None:
            return False
        if (nap := self._nap(visit)) is not None:
            time.sleep(min(nap, limit))
        else:
            visit.called.wait(limit)
        return self._answer(visit)

    async def aqueue(self, claim: Claim, limit: float, left: float | None) -> bool:
        """Wait as `queue`, on no thread."""
        visit = self._join(claim, left)
        if visit is None:
            return False
        if (nap := self._nap(visit)) is not None:
            await asyncio.sleep(min(nap, limit))
            return True
        await visit.called.await_set(limit)
        return self._answer(visit)

    def _join(self, claim: Claim, left: float | None) -> Visit | None:
        now = self._clock()
        with self._mutex:
            if self._closed or now < self._closed_until:
                return None
            visit = self._visits.get(claim.owner)
            if visit is None:
                line = self._lines.get(claim.key)
                if line is None:
                    line = self._lines[claim.key] = Line(claim.key)
                visit = self._visits[claim.owner] = Visit(claim, line)
                line.visits.append(visit)
            visit.end = None if left is None else now + left
            if visit.line.visits[0] is visit:
                self._knock_soon(visit.line)
            return visit

    def _nap(self, visit: Visit) -> float | None:
        with self._mutex:
            return visit.next_nap() if visit.is_inside() else None

    def _answer(self, visit: Visit) -> bool:
        with self._mutex:
            if not visit.called.is_set() or visit.is_inside():
                return True  # to look at the row, as its time is up or its turn has come
            visit.called.clear()
            return False

    def _knock_soon(self, line: Line) -> None:
        """Have the line wait at the door, if it does not yet; forget it when it is empty."""
        if line.door is not None:
            return
        if not line.visits:
            self._lines.pop(line.key, None)
            return
        door = None if self._closed else self._doors.take()
        if door is None:
            line.visits[0].called.set()
            return
        line.door = door
        now = self._clock()
        ends = [now + LONGEST if visit.end is None else visit.end for visit in line.visits]
        limit = min(max(0.001, *(end - now for end in ends)), LONGEST)
        door.worker.submit(partial(self._knock, line, door, limit))

    def _knock(self, line: Line, door: Door, limit: float) -> None:
        """Wait at the door, on the door's thread."""
        inside = sound = False
        try:
            inside = door.enter(line.key, limit)
            sound = True
            if door.waited:
                self.refused(line.key)  # others go on to wait, though nobody was refused
        except Error as error:
            self._close_for_a_while(error)
        finally:
            with self._mutex:
                line.inside = stays = inside and bool(line.visits)
                if stays:
                    line.visits[0].called.set()
            if not stays:  # else those who stood here have given up meanwhile
                self._step_back(line, door, inside=inside, sound=sound)

    def _close_for_a_while(self, error: Error) -> None:
        with self._mutex:
            if self._closed:
                return
            self._closed_until = self._clock() + CLOSED_FOR
        logger.warning(
            "No wait queue on the database, so waiters poll for %g s: %s", CLOSED_FOR, error
        )

    def _step_back(self, line: Line, door: Door, *, inside: bool, sound: bool) -> None:
        """Give the room and the door up; the next one of the line knocks again."""
        left = False
        try:
            left = sound and (not inside or door.leave(line.key))
        finally:
            if not left:
                door.close()
            with self._mutex:
                line.door = None
                self._doors.give_back(door)
                if line.visits and not inside:
                    line.visits[
                        0
                    ].called.set()  # to poll once, as knocking again might fail at once
                else:
                    self._knock_soon(line)
                self._look_after_later()

    def leave(self, claim: Claim, *, sound: bool = True) -> None:
        """Leave the room, or the line before it; the next one's turn comes.

        With ``sound`` false the server does not answer, and is not asked.
        """
        with self._mutex:
            visit = self._visits.pop(claim.owner, None)
            if visit is None:
                now = self._clock()
                if self._freed.get(claim.key, now) <= now:
                    _note(self._freed, claim.key, now)
                return
            line = visit.line
            was_first = line.visits[0] is visit
            line.visits.remove(visit)
            if not was_first:
                return
            if line.inside and line.visits and visit.until is None:
                line.visits[0].called.set()  # who gives up has taken no turn
                return
            door, inside, line.inside = line.door, line.inside, False
            if not inside or door is None:
                self._knock_soon(line)
                return
        self._step_back(line, door, inside=True, sound=sound)

    # -- being inside ------------------------------------------------------------------------------

    def granted(self, claim: Claim) -> None:
        """Note that ``claim`` has its lock: inside, it stays there for as long."""
        visit = self._visits.get(claim.owner)
        if visit is None:
            return
        with self._mutex:
            if visit.is_inside():
                visit.until = self._clock() + claim.ttl
                self._look_after_later()
                return
        self.leave(claim)

    def renewed(self, claim: Claim) -> None:
        """Note that the lease of ``claim`` lasts longer."""
        visit = self._visits.get(claim.owner)
        if visit is not None and visit.until is not None:
            visit.until = self._clock() + claim.ttl

    def _look_after_later(self) -> None:
        with self._mutex:
            if not self._looked_after:
                self._looked_after = True
                self._worker.submit(self._look_after, LOOK)

    def _look_after(self) -> None:
        """Close idle connections, and leave rooms whose leases were lost or forgotten."""
        now = self._clock()
        with self._mutex:
            self._looked_after = False
            visits = list(self._visits.values())
        for visit in visits:
            if visit.until is not None and visit.until <= now:
                self.leave(visit.claim)
        if self._doors.close_unused(now - IDLE):
            self._look_after_later()

    # -- the end -----------------------------------------------------------------------------------

    def close_idle(self) -> None:
        """Close the connections that no waiter and no holder uses now."""
        self._doors.close_unused(self._clock())

    def close(self) -> None:
        """Leave all rooms and close the connections."""
        with self._mutex:
            self._closed = True
            visits = list(self._visits.values())
        self._worker.close()
        for visit in visits:
            self.leave(visit.claim)
        self._doors.close()

    def forget_parent(self) -> list[BaseDatabaseWrapper]:
        """Forget, in a forked child, the parent's rooms; return its connections, to be kept."""
        kept = self._doors.forget_parent()
        self._reset()
        return kept


def _note(times: dict[str, float], key: str, now: float) -> None:
    if len(times) >= MOST_NAMES:
        times.clear()  # only a hint
    times[key] = now
