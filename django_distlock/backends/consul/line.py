"""Waiting in line: places in the order in which they were taken, each watching the one before it.

A claim that finds the lock held writes a queue entry of its own, and a mark that there is a queue.
While the mark is there, no later claim takes the lock, even if it is free. An entry stays until its
lock is released, so a release wakes exactly the next waiter. Only fairness depends on this: the
lock's key alone decides the holder.
"""

from __future__ import annotations

from bisect import insort
from typing import Final

from ...core.clock import Clock
from ...core.threads import Mutex
from ...core.values import Claim, Refusal
from ...http import Request
from ..flows import Standby
from .calls import Api, ConsulError, Op, Talk, ask, entries_of, index_of, op
from .holds import Hold, Place, Ways, mark
from .records import Entry, Paths, Record, State, stands_for, state_of
from .sessions import Sessions
from .sights import Sights

__all__ = ["Line"]

STALLED: Final = 1.0
"""Seconds for which a free lock is left to the first in line: then that one counts as dead."""
CONTENDED: Final = 1.0  # seconds for which a process believes that there still is a line
SHORTEST: Final = 0.002  # seconds of a question that is still worth its while
SELDOM: Final = 30.0  # seconds after which every waiter reads the line again
SHARE: Final = 0.94  # of a blocking query's time: Consul adds up to a sixteenth of it


class Line:
    """The places in line of one backend."""

    def __init__(
        self, api: Api, ways: Ways, sessions: Sessions, sights: Sights, clock: Clock
    ) -> None:
        self.api = api
        self.ways = ways
        self.sessions = sessions
        self.sights = sights
        self.clock = clock
        self._contended: dict[str, float] = {}
        self.forget_parent()

    def forget_parent(self) -> None:
        """Begin without places, which in a forked child are the parent's."""
        self.places: dict[str, Place] = {}
        # Of each lock, the places of this process in the line's order, with their owners.
        self._standing: dict[str, list[tuple[int, str]]] = {}
        self._mutex = Mutex()

    def is_contended(self, key: str) -> bool:
        """Return whether there was a line a moment ago: then it is joined without trying first."""
        at = self._contended.get(key)
        if at is None:
            return False
        if self.clock() - at < CONTENDED:
            return True
        self._contended.pop(key, None)
        return False

    # -- the places of this process ----------------------------------------------------------------

    def stand(self, claim: Claim, place: Place) -> None:
        """Note a place of this process."""
        with self._mutex:
            self.places[claim.owner] = place
            insort(self._standing.setdefault(claim.key, []), (place.created, claim.owner))

    def drop(self, claim: Claim) -> Place | None:
        """Forget a place, and call the next one of this process; return it if there was one."""
        place = self.places.pop(claim.owner, None)
        if place is not None and (first := self._first(claim.key)) is not None:
            first.called.set()
        return place

    def _first(self, key: str) -> Place | None:
        """Return the first place of this process in the line of a lock."""
        with self._mutex:
            standing = self._standing.get(key, [])
            while standing:
                place = self.places.get(standing[0][1])
                if place is not None and place.created == standing[0][0]:
                    return place
                del standing[0]  # that one was dropped, or its owner has joined again
            self._standing.pop(key, None)
            return None

    def is_waiting(self, place: Place) -> bool:
        """Return whether there is nothing to read yet: others are before it, and none has gone."""
        return not place.ready and bool(place.ahead) and self.clock() < place.look

    # -- join and leave ----------------------------------------------------------------------------

    def join(self, claim: Claim, paths: Paths) -> Talk[tuple[Place, State]]:
        """Stand in line, and see all that there is."""
        again = True
        while True:
            session = yield from self.sessions.for_ttl(claim.ttl)
            key, ops = self.ways.join(paths, claim, session)
            txn = yield from self.api.transact(ops)
            if txn.done:
                own = next(each for each in txn.entries if each.key == key)
                place = Place(key, session.id, own.created, 1)
                self.stand(claim, place)
                state = state_of(paths, txn.entries[2:], own.index)
                self.see(place, state)
                return place, state
            if not (txn.dead_session and again):
                raise ConsulError(409, f"no place in line: {txn.failed}")
            self.sessions.forget(session.id)
            again = False

    def see(self, place: Place, state: State) -> None:
        """Note who is before a place."""
        keys = [each.key for each in state.line]
        place.ahead = keys[: keys.index(place.key)] if place.key in keys else keys
        place.index = max(place.index, state.index)
        place.ready = False
        # The one behind another that hangs acts after a second, the next one after two.
        place.look = self.clock() + min(max(STALLED, STALLED * len(place.ahead)), SELDOM)

    def leave(self, paths: Paths, key: str) -> Talk[None]:
        """Give up a place; the mark goes with the last one."""
        txn = yield from self.api.transact([op("delete", key)])
        if txn.done:
            yield from self._unmark(paths, key)

    def _unmark(self, paths: Paths, key: str) -> Talk[None]:
        ours = key.encode("ascii")
        if not any(each.value.startswith(ours) for each in (yield from self.api.get(paths.queue))):
            return  # another came after: the last one removes it
        state = yield from self.api.look(paths)
        if state.queue is None or not state.queue.value.startswith(ours):
            return
        index = state.queue.index
        if not state.line:
            yield from self.api.delete(paths.queue, index)
        else:
            last = state.line[-1].key
            ops = [op("cas", paths.queue, index=index, value=mark(last))]
            yield from self.api.transact(ops)

    def pass_on(self, key: str, hold: Hold, doubts: list[Exception] | None) -> Talk[bool]:
        """Free a lock that was got by a place in line, and give up that place."""
        paths = hold.paths
        ops = [*self.ways.free(hold), op("delete", hold.place)]
        # The mark shows whether anybody has come after: else the line is over.
        marked = [op("get", paths.queue)]
        txn = yield from self.api.transact(ops + marked, doubts)
        if not txn.done and txn.says(paths.queue):
            txn = yield from self.api.transact(ops, doubts)
        if not txn.done:
            return False
        following = self._first(key)
        if following is not None and following.ahead[-1:] == [hold.place]:
            following.ahead.pop()  # it is of this process, and need not be told
            following.ready = True
        last = txn.entries[-1] if txn.entries else None
        if last is not None and last.key == paths.queue:
            if last.value.startswith(hold.place.encode("ascii")):
                yield from self.api.delete(paths.queue, last.index)
                self._contended.pop(key, None)
            else:
                if len(self._contended) > 1000:
                    self._contended.clear()
                self._contended[key] = self.clock()
        return True

    # -- whose turn it is --------------------------------------------------------------------------

    def left(self, key: str, state: State) -> float | None:
        """Return the seconds that a holder has left by what was seen of it; None: unknown."""
        record, lock = state.record, state.lock
        if record is None or lock is None:
            return None
        return record.ttl - self.sights.age(key[:40], (record.owner, record.beat, record.since))

    def plan(
        self, claim: Claim, paths: Paths, state: State, place: Place | None
    ) -> list[Op] | Refusal | None:
        """Return what takes the lock as it was seen; a refusal; None when it is ours already."""
        lock, record = state.lock, state.record
        queued = place is not None
        if state.held and record is not None and record.owner == claim.owner:
            return None
        if state.held:
            left = self.left(claim.key, state)
            if left is None or left > 0:
                if place is not None:
                    self.see(place, state)
                note = record.note if record is not None else ""
                return Refusal(remaining=left, note=note, queue=queued)
        ahead = state.line
        if place is not None:
            own = [number for number, each in enumerate(ahead) if each.key == place.key]
            ahead = ahead[: own[0]] if own else ahead
        dead = [each for each in ahead if self._is_dead(each, state, record)]
        waiting = [each for each in ahead if each not in dead]
        if waiting:
            looks = (waiting[0].key, 0 if lock is None else lock.index)
            # A moment for each of them, so that the one behind a dead one is the next.
            age = self.sights.age(f"{claim.key}/line", looks)
            if age < STALLED * len(waiting):
                if place is not None:
                    self.see(place, state)
                wait = STALLED * len(waiting) - age
                return Refusal(remaining=min(wait, STALLED), queue=queued)
        ops = [self._free_as(paths, lock)]
        if state.held and lock is not None:
            ops.append(op("unlock", paths.lock, session=lock.session))
        ops += [op("delete", each.key) for each in [*dead, *waiting][:50]]
        if place is not None:
            return [*ops, op("check-session", place.key, session=place.session)]
        if state.queue is None:
            return [*ops, op("check-not-exists", paths.queue)]
        # Nobody is in line any more.
        return [*ops, op("delete-cas", paths.queue, index=state.queue.index)]

    def _is_dead(self, each: Entry, state: State, record: Record | None) -> bool:
        """Return whether a place has no session, or is that of a holder whose time is over."""
        expired = state.held and record is not None and stands_for(each.key, record.owner)
        return not each.session or expired

    def _free_as(self, paths: Paths, lock: Entry | None) -> Op:
        if lock is None:
            return op("check-not-exists", paths.lock)
        return op("check-index", paths.lock, index=lock.index)

    # -- waiting -----------------------------------------------------------------------------------

    def wait(self, claim: Claim, paths: Paths, turn: float) -> Talk[bool]:
        """Wait until the place before ours, or the lock if we are first, is given up."""
        place = self.places.get(claim.owner)
        if place is None:
            return False
        end = self.clock() + turn
        while not place.ready:
            left = end - self.clock()
            if left <= SHORTEST:
                break
            place.called.clear()
            if self._first(claim.key) is not place:
                # One of this process's watches; the others are told when it has gone.
                yield Standby(place.called, left)
                continue
            watched = place.ahead[-1] if place.ahead else paths.lock
            words = (f"index={place.index}", f"wait={max(1, int(left * SHARE * 1000))}ms")
            request = Request("GET", self.api.key(watched, *words), wait=left)
            answer = yield from ask(request)
            entries = entries_of(answer)
            index = index_of(answer)
            place.index = index if index >= place.index else 1
            if not entries or not entries[0].session:
                if place.ahead:
                    place.ahead.pop()
                place.ready = True
            elif not place.ahead:
                state = state_of(paths, entries)
                over = self.left(claim.key, state)
                if over is not None and over <= 0:
                    break
                if over is not None:
                    end = min(end, self.clock() + over + SHORTEST + 0.001)
        return True
