"""The wait queue: entries in the order of their making, each watching the one before it.

A claim that finds the lock held writes a queue entry of its own, and a mark that there is a queue.
While the mark is there, no later claim takes the lock, even if it is free. An entry stays until its
lock is released, so a release wakes exactly the next waiter. Only fairness depends on this: the
lock's key alone decides the holder.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import replace
from typing import Final

from ...core.clock import Clock
from ...core.threads import Mutex
from ...core.values import Claim, Refusal
from ...http import Request
from ..flows import Standby
from .api import Api, ConsulError, Op, Talk, ask, index_of, op, pairs_of
from .holds import ConsulEntry, Hold, Plan, Ways, mark
from .records import ConsulRecord, KeyValue, Liveness, Paths, State, stands_for, state_of
from .sessions import ConsulSessions
from .shares import Shares

__all__ = ["Queue"]

STALLED: Final = 1.0
"""Seconds for which a free lock is left to the first in the queue: then that one counts as dead."""
CONTENDED: Final = 1.0  # seconds for which a process believes that there still is a queue
SHORTEST: Final = 0.002  # seconds of a question that is still worth its while
SELDOM: Final = 30.0  # seconds after which every waiter reads the queue again
PORTION: Final = 0.94  # of a blocking query's time: Consul adds up to a sixteenth of it


class Queue:
    """The queue entries of one backend."""

    def __init__(
        self,
        api: Api,
        ways: Ways,
        sessions: ConsulSessions,
        shares: Shares,
        liveness: Liveness,
        clock: Clock,
    ) -> None:
        self.api = api
        self.ways = ways
        self.sessions = sessions
        self.shares = shares
        self.liveness = liveness
        self.clock = clock
        self._contended: dict[str, float] = {}
        self.forget_parent()

    def forget_parent(self) -> None:
        """Begin without entries, which in a forked child are the parent's."""
        self.entries: dict[str, ConsulEntry] = {}
        # Of each lock, the entries of this process in the queue's order, with their owners.
        self._standing: dict[str, list[tuple[int, str]]] = {}
        self._mutex = Mutex()

    def is_contended(self, key: str) -> bool:
        """Return whether there was a queue a moment ago: then it is joined without trying first."""
        at = self._contended.get(key)
        if at is None:
            return False
        if self.clock() - at < CONTENDED:
            return True
        self._contended.pop(key, None)
        return False

    # -- the entries of this process ---------------------------------------------------------------

    def stand(self, claim: Claim, entry: ConsulEntry) -> None:
        """Note an entry of this process."""
        with self._mutex:
            self.entries[claim.owner] = entry
            insort(self._standing.setdefault(claim.key, []), (entry.created, claim.owner))

    def drop(self, claim: Claim) -> ConsulEntry | None:
        """Forget an entry, and call the next one of this process; return it if there was one."""
        entry = self.entries.pop(claim.owner, None)
        if entry is not None and (first := self._first(claim.key)) is not None:
            first.called.set()
        return entry

    def _first(self, key: str) -> ConsulEntry | None:
        """Return the first entry of this process in the queue of a lock."""
        with self._mutex:
            standing = self._standing.get(key, [])
            while standing:
                entry = self.entries.get(standing[0][1])
                if entry is not None and entry.created == standing[0][0]:
                    return entry
                del standing[0]  # that one was dropped, or its owner has joined again
            self._standing.pop(key, None)
            return None

    def is_waiting(self, entry: ConsulEntry) -> bool:
        """Return whether there is nothing to read yet: others are before it, and none has gone."""
        return not entry.ready and bool(entry.ahead) and self.clock() < entry.look

    # -- join and leave ----------------------------------------------------------------------------

    def join(self, claim: Claim, paths: Paths) -> Talk[tuple[ConsulEntry, State]]:
        """Join the queue, and see all that there is."""
        again = True
        while True:
            session = yield from self.sessions.for_ttl(claim.ttl)
            key, ops = self.ways.join(paths, claim, session)
            txn = yield from self.api.transact(ops)
            if txn.done:
                own = next(each for each in txn.pairs if each.key == key)
                entry = ConsulEntry(key, session.id, own.created, 1)
                self.stand(claim, entry)
                state = state_of(paths, txn.pairs[2:], own.index)
                self.see(entry, state)
                return entry, state
            if not (txn.dead_session and again):
                raise ConsulError(409, f"no queue entry: {txn.failed}")
            self.sessions.forget(session.id)
            again = False

    def see(self, entry: ConsulEntry, state: State) -> None:
        """Note which entries are ahead of an entry."""
        keys = [each.key for each in state.queue]
        entry.ahead = keys[: keys.index(entry.key)] if entry.key in keys else keys
        entry.index = max(entry.index, state.index)
        entry.ready = False
        entry.shared = not state.held
        # The one behind another that hangs acts after a second, the next one after two.
        entry.look = self.clock() + min(max(STALLED, STALLED * len(entry.ahead)), SELDOM)

    def leave(self, paths: Paths, key: str) -> Talk[None]:
        """Give up an entry; the mark goes with the last one."""
        txn = yield from self.api.transact([op("delete", key)])
        if txn.done:
            yield from self._unmark(paths, key)

    def _unmark(self, paths: Paths, key: str) -> Talk[None]:
        ours = key.encode("ascii")
        if not any(each.value.startswith(ours) for each in (yield from self.api.get(paths.mark))):
            return  # another came after: the last one removes it
        state = yield from self.api.look(paths)
        if state.mark is None or not state.mark.value.startswith(ours):
            return
        index = state.mark.index
        if not state.queue:
            yield from self.api.delete(paths.mark, index)
        else:
            last = state.queue[-1].key
            ops = [op("cas", paths.mark, index=index, value=mark(last))]
            yield from self.api.transact(ops)

    def pass_on(self, key: str, hold: Hold, doubts: list[Exception] | None) -> Talk[bool]:
        """Free a lock that was got by a queue entry, and give up that entry."""
        paths = hold.paths
        ops = [*self.ways.free(hold), op("delete", hold.entry)]
        # The mark shows whether anybody has come after: else the queue is over.
        marked = [op("get", paths.mark)]
        txn = yield from self.api.transact(ops + marked, doubts)
        if not txn.done and txn.says(paths.mark):
            txn = yield from self.api.transact(ops, doubts)
        if not txn.done:
            return False
        self.call_next(key, hold.entry)
        last = txn.pairs[-1] if txn.pairs else None
        if last is not None and last.key == paths.mark:
            if last.value.startswith(hold.entry.encode("ascii")):
                yield from self.api.delete(paths.mark, last.index)
                self._contended.pop(key, None)
            else:
                if len(self._contended) > 1000:
                    self._contended.clear()
                self._contended[key] = self.clock()
        return True

    def call_next(self, key: str, gone: str) -> None:
        """Note that an entry has gone, if the next one is of this process: it need not be told."""
        following = self._first(key)
        if following is not None and following.ahead[-1:] == [gone]:
            following.ahead.pop()
            following.ready = True

    # -- whose turn it is --------------------------------------------------------------------------

    def left(self, key: str, state: State) -> float | None:
        """Return the seconds that a holder has left by what was seen of it; None: unknown."""
        record, lock = state.record, state.lock
        if record is None or lock is None:
            return None
        return record.ttl - self.liveness.age(key[:40], (record.owner, record.beat, record.since))

    def plan(
        self, claim: Claim, paths: Paths, state: State, entry: ConsulEntry | None
    ) -> Plan | Refusal | None:
        """Return what takes the lock as it was seen; a refusal; None when it is ours already."""
        lock, record = state.lock, state.record
        queued = entry is not None
        if state.of(claim.owner) is not None:
            return None
        if state.held:
            left = self.left(claim.key, state)
            if left is None or left > 0:
                if entry is not None:
                    self.see(entry, state)
                note = record.note if record is not None else ""
                other = 0 if claim.limit else None
                return Refusal(remaining=left, note=note, queue=queued, other_limit=other)
        taken = self.shares.plan(claim, paths, state)
        if isinstance(taken, Refusal):
            if entry is not None:
                self.see(entry, state)
            return replace(taken, queue=queued)
        ahead = state.queue
        if entry is not None:
            own = [number for number, each in enumerate(ahead) if each.key == entry.key]
            ahead = ahead[: own[0]] if own else ahead
        dead = [each for each in ahead if self._is_dead(each, state, record)]
        waiting = [each for each in ahead if each not in dead]
        if waiting:
            looks = (waiting[0].key, 0 if lock is None else lock.index)
            # A moment for each of them, so that the one behind a dead one is the next.
            age = self.liveness.age(f"{claim.key}/line", looks)
            if age < STALLED * len(waiting):
                if entry is not None:
                    self.see(entry, state)
                wait = STALLED * len(waiting) - age
                return Refusal(remaining=min(wait, STALLED), queue=queued)
        ops = [self._free_as(paths, lock)]
        if state.held and lock is not None:
            ops.append(op("unlock", paths.lock, session=lock.session))
        ops += taken.before
        ops += [op("delete", each.key) for each in [*dead, *waiting][:50]]
        if entry is not None:
            ops.append(op("check-session", entry.key, session=entry.session))
            if taken.members is not None:  # the next one is to wait for all who hold it
                ops.append(op("delete", entry.key))
                if state.queue and state.queue[-1].key == entry.key and state.mark is not None:
                    ops.append(op("delete-cas", paths.mark, index=state.mark.index))
        elif state.mark is None:
            ops.append(op("check-not-exists", paths.mark))
        else:  # the queue is empty
            ops.append(op("delete-cas", paths.mark, index=state.mark.index))
        return taken._replace(before=ops)

    def _is_dead(self, each: KeyValue, state: State, record: ConsulRecord | None) -> bool:
        """Return whether an entry has no session, or is that of a holder whose time is over."""
        expired = state.held and record is not None and stands_for(each.key, record.owner)
        return not each.session or expired

    def _free_as(self, paths: Paths, lock: KeyValue | None) -> Op:
        if lock is None:
            return op("check-not-exists", paths.lock)
        return op("check-index", paths.lock, index=lock.index)

    # -- waiting -----------------------------------------------------------------------------------

    def wait(self, claim: Claim, paths: Paths, turn: float) -> Talk[bool]:
        """Wait until the entry before ours, or the lock if we are first, is given up."""
        entry = self.entries.get(claim.owner)
        if entry is None:
            return False
        end = self.clock() + turn
        while not entry.ready:
            left = end - self.clock()
            if left <= SHORTEST:
                break
            entry.called.clear()
            if self._first(claim.key) is not entry:
                # One of this process's watches; the others are told when it has gone.
                yield Standby(entry.called, left)
                continue
            words = [f"index={entry.index}", f"wait={max(1, int(left * PORTION * 1000))}ms"]
            if entry.ahead:
                watched = entry.ahead[-1]
            elif entry.shared:
                watched, words = paths.shares, ["recurse", *words]
            else:
                watched = paths.lock
            request = Request("GET", self.api.key(watched, *words), wait=left)
            answer = yield from ask(request)
            pairs = pairs_of(answer)
            index = index_of(answer)
            entry.index = index if index >= entry.index else 1
            if entry.shared and not entry.ahead:
                members, _ = self.shares.living(claim.key, state_of(paths, pairs))
                if len(members.all) < (claim.limit or 1):
                    entry.ready = True
                    break
                ends = [each.expires / 1e6 for each in members.all]
                end = min(end, (min if claim.limit else max)(ends) + SHORTEST + 0.001)
            elif not pairs or not pairs[0].session:
                if entry.ahead:
                    entry.ahead.pop()
                entry.ready = True
            elif not entry.ahead:
                state = state_of(paths, pairs)
                over = self.left(claim.key, state)
                if over is not None and over <= 0:
                    break
                if over is not None:
                    end = min(end, self.clock() + over + SHORTEST + 0.001)
        return True
