"""Acquiring, renewing and releasing a lock in Consul, as steps for sync and async mode.

The free path is two requests: a transaction that locks the key if it does not exist and the queue
is empty, and one that deletes it if it is still the one that we wrote. The fencing token is the
key's ModifyIndex at the grant, from Consul's own count of all writes: no clean-up and no restart
sets it back.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.clock import Clock
from ...core.values import Claim, Grant, Refusal
from .api import MOST_OPS, Api, Op, Talk, Txn
from .holds import ConsulEntry, Hold, Plan, Ways, chunks
from .queue import Queue
from .records import ConsulRecord, KeyValue, Liveness, Paths, stands_for, state_of
from .sessions import ConsulSessions
from .shares import Shares

__all__ = ["ConsulAlgorithm"]

TRIES = 5
"""How often it is read again when others came between."""
OURS = 6
"""Operations of an attempt that do not depend on how many are ahead."""


class ConsulAlgorithm:
    """The leases of one backend."""

    def __init__(
        self,
        api: Api,
        start: str,
        ways: Ways,
        sessions: ConsulSessions,
        liveness: Liveness,
        clock: Clock,
    ) -> None:
        self.api = api
        self.start = start
        self.ways = ways
        self.sessions = sessions
        self.clock = clock
        self.shares = Shares(liveness, clock)
        self.queue = Queue(api, ways, sessions, self.shares, liveness, clock)
        self.holds: dict[str, Hold] = {}

    # -- acquire -----------------------------------------------------------------------------------

    def acquire(self, claim: Claim, join: bool) -> Talk[Grant | Refusal]:
        """Attempt once, and with ``join`` queue when refused."""
        if claim.owner in self.holds and (yield from self.renew(claim, late=True)):
            return self.holds[claim.owner].grant(claim.ttl)
        paths = Paths(self.start, claim.key)
        entry = self.queue.entries.get(claim.owner)
        if entry is not None and self.queue.is_waiting(entry):
            if (yield from self.sessions.keep(entry.session, claim.ttl)):
                return Refusal(queue=True)  # the waiter ahead of us is still there
            self.queue.drop(claim)
            entry = None
        unread = self._unread(claim, paths, entry, join)
        if unread is not None:
            answer = yield from self._lock(claim, paths, unread, entry)
            if isinstance(answer, Txn) and self.ways.keeps and answer.says("doesn't exist"):
                again = self._unread(claim, paths, entry, join, new=True)
                answer = yield from self._lock(claim, paths, again or unread, entry)
            if isinstance(answer, Grant):
                return answer
            if entry is not None:
                entry.ready = False
            if answer.lock_delay:
                return Refusal()  # nothing will change that could be watched
            if entry is not None:
                entry.ahead = entry.still_ahead(answer)
                if answer.says(entry.key):  # passed over, or its session ended
                    self.queue.drop(claim)
                    entry = None
                elif entry.ahead:
                    return Refusal(queue=True)
        for _ in range(TRIES):
            if entry is None and join:
                entry, state = yield from self.queue.join(claim, paths)
            else:
                state = yield from self.api.look(paths)
            plan = self.queue.plan(claim, paths, state, entry)
            if plan is None:  # ours: the answer was lost
                if (yield from self.renew(claim, late=True)):
                    return self.holds[claim.owner].grant(claim.ttl)
                continue
            if isinstance(plan, Refusal):
                return plan
            if len(plan.before) > MOST_OPS - OURS:  # what dead holders left
                yield from self.api.transact(plan.before[:MOST_OPS])
                continue
            answer = yield from self._lock(claim, paths, plan, entry)
            if isinstance(answer, Grant):
                return answer
            if answer.lock_delay:
                return Refusal()
            if entry is not None and answer.says(entry.key):
                self.queue.drop(claim)
                entry = None
        return Refusal(queue=entry is not None)

    def acquire_many(self, claims: Sequence[Claim]) -> Talk[list[Grant | None]]:
        """Attempt each once, as many as fit into one transaction, which is done for all or none.

        Where it is not done, those before the first that was refused are attempted again.
        """
        granted: dict[str, Grant] = {}
        size = len(self._attempt(claims[0])[2])
        for numbers in chunks([size + 1] * len(claims), MOST_OPS):
            some = [claims[number] for number in numbers]
            while some and (refused := (yield from self._lock_all(some, granted))) is not None:
                some = some[:refused]
            if len(some) < len(numbers):
                break
        return [granted.get(claim.owner) for claim in claims]

    def _attempt(self, claim: Claim) -> tuple[Paths, ConsulRecord, list[Op]]:
        """Return what an attempt is about that reads nothing, and what has to be so for it."""
        paths = Paths(self.start, claim.key)
        return paths, self.ways.first_record(claim, None), self.ways.attempt(paths, None, new=False)

    def _lock_all(self, claims: Sequence[Claim], granted: dict[str, Grant]) -> Talk[int | None]:
        """Lock all, or return the number of the first that cannot be."""
        asked = self.clock()
        ops: list[Op] = []
        made: list[tuple[Claim, Paths, ConsulRecord, str]] = []
        for claim in claims:
            session = yield from self.sessions.for_ttl(claim.ttl)
            paths, record, checks = self._attempt(claim)
            ops += self.ways.take(paths, session.id, record.dumps(), Plan(checks), paths.lock)
            made.append((claim, paths, record, session.id))
        doubts: list[Exception] = []
        txn = yield from self.api.transact(ops, doubts)
        if not txn.done:
            if doubts:
                raise doubts[0]  # it may be refused for what it has done itself, unanswered
            first = min(txn.failed or {0: ""})
            if not 0 <= first < len(ops):
                raise ValueError(f"operation {first} of {len(ops)} failed")
            return first * len(claims) // len(ops)
        pairs = {pair.key: pair for pair in txn.pairs}
        for claim, paths, record, id in made:
            granted[claim.owner] = self._granted(claim, paths, record, id, pairs[paths.lock], asked)
        return None

    def _unread(
        self,
        claim: Claim,
        paths: Paths,
        entry: ConsulEntry | None,
        join: bool,
        *,
        new: bool = False,
    ) -> Plan | None:
        """Return what may be tried without reading; None where that would be in vain."""
        if entry is None:
            if join and self.queue.is_contended(claim.key):
                return None
        elif not (claim.is_exclusive and entry.ready and len(entry.ahead) < MOST_OPS - OURS):
            return None
        if claim.is_exclusive:
            return Plan(self.ways.attempt(paths, entry, new=new))
        return self.shares.attempt(claim, paths, self.ways.is_free(paths, new=new))

    def _lock(
        self, claim: Claim, paths: Paths, plan: Plan, entry: ConsulEntry | None
    ) -> Talk[Grant | Txn]:
        """Lock the key if all is as planned; with a new session if ours died."""
        members = plan.members
        slot = None if members is None else members.grant(claim).slot
        share = "" if members is None else paths.share(claim.owner)
        record = self.ways.first_record(claim, slot)
        value = record.dumps()
        again = True
        while True:
            asked = self.clock()
            session = yield from self.sessions.for_ttl(claim.ttl)
            ops = self.ways.take(paths, session.id, value, plan, share or paths.lock)
            txn = yield from self.api.transact(ops)
            if txn.done:
                break
            if not (txn.dead_session and again):
                if txn.says(paths.guard):
                    self.shares.outrun(claim.key)
                return txn
            self.sessions.forget(session.id)
            again = False
        pair = txn.pairs[-1]
        own = "" if entry is None or share else entry.key
        grant = self._granted(claim, paths, record, session.id, pair, asked, own, share)
        self.queue.drop(claim)
        if members is not None:
            self.shares.granted(claim.key, pair.index, members)
            if entry is not None:
                self.queue.call_next(claim.key, entry.key)
        return grant

    def _granted(
        self,
        claim: Claim,
        paths: Paths,
        record: ConsulRecord,
        session: str,
        pair: KeyValue,
        asked: float,
        entry: str = "",
        share: str = "",
    ) -> Grant:
        """Note what a claim holds, by the pair that was written for it."""
        hold = self.holds[claim.owner] = Hold(
            paths=paths,
            session=session,
            index=pair.index,
            token=pair.index,
            lock_index=pair.lock_index,
            record=record,
            until=asked + claim.ttl,
            entry=entry,
            share=share,
        )
        return hold.grant(claim.ttl)

    # -- renew -------------------------------------------------------------------------------------

    def renew(self, claim: Claim, *, late: bool = False) -> Talk[bool]:
        """Start the ttl again if the owner holds the lock; with ``late`` also after its end."""
        hold = self.holds.get(claim.owner)
        if hold is None:
            hold = yield from self._find(claim)
        elif self.clock() >= hold.until and not late:
            return False
        for _ in range(TRIES):
            if hold is None:
                break
            asked = self.clock()
            kept = yield from self.sessions.keep(hold.session, claim.ttl)
            if kept is False:
                break
            session = hold.session
            if kept is None:  # another process's, or too short: the lock moves to one of ours
                session = (yield from self.sessions.for_ttl(claim.ttl)).id
            record = self.ways.next_record(claim, hold)
            if claim.shared and not hold.share:
                txn = yield from self.api.transact(self.ways.downgrade(hold, record, session))
                if txn.done:
                    hold.share, hold.entry = hold.paths.share(claim.owner), ""
                    self.shares.outrun(claim.key)
            else:
                txn = yield from self.api.transact(self.ways.renew(hold, record, session))
            if txn.done:
                self._renewed(claim, hold, txn, record, session, asked)
                return True
            if txn.dead_session:
                self.sessions.forget(session)
            hold = yield from self._find(claim)
        self.holds.pop(claim.owner, None)
        return False

    def renew_many(self, claims: Sequence[Claim]) -> Talk[list[bool]]:
        """Renew several, as many as fit into one transaction each."""
        ours: dict[str, bool] = {}
        batch: list[tuple[Claim, Hold, ConsulRecord, list[Op]]] = []
        for claim in claims:
            hold = self.holds.get(claim.owner)
            alive = None
            if hold is not None and self.clock() < hold.until:
                alive = yield from self.sessions.keep(hold.session, claim.ttl)
            if hold is None or not alive or (claim.shared and not hold.share):
                ours[claim.owner] = yield from self.renew(claim)
                continue
            record = self.ways.next_record(claim, hold)
            batch.append((claim, hold, record, self.ways.renew(hold, record, hold.session)))
        for numbers in chunks([len(each[3]) for each in batch], MOST_OPS):
            some = [batch[number] for number in numbers]
            asked = self.clock()
            txn = yield from self.api.transact([one for each in some for one in each[3]])
            for claim, hold, record, _ in some:
                if txn.done:
                    self._renewed(claim, hold, txn, record, hold.session, asked)
                    ours[claim.owner] = True
                else:  # one of them is lost: each tells for itself
                    ours[claim.owner] = yield from self.renew(claim)
        return [ours[claim.owner] for claim in claims]

    def _renewed(
        self, claim: Claim, hold: Hold, txn: Txn, record: ConsulRecord, session: str, asked: float
    ) -> None:
        pair = next(each for each in reversed(txn.pairs) if each.key == hold.lock)
        hold.index, hold.lock_index = pair.index, pair.lock_index
        hold.session, hold.record, hold.until = session, record, asked + claim.ttl
        self.holds[claim.owner] = hold

    def _find(self, claim: Claim) -> Talk[Hold | None]:
        """Look for a lock that the owner holds by what another process or request has written."""
        paths = Paths(self.start, claim.key)
        state = yield from self.api.look(paths, sure=True)
        held = state.of(claim.owner)
        if held is None or not held.pair.session:
            return None
        if held == state.alone:
            share, left = "", self.queue.left(claim.key, state)
        else:
            share, left = held.pair.key, self.shares.left(claim.key, held)
        if left is not None and left <= 0:
            return None
        mine = next((each for each in state.queue if stands_for(each.key, claim.owner)), None)
        return Hold(
            paths=paths,
            session=held.pair.session,
            index=held.pair.index,
            token=held.token,
            lock_index=held.pair.lock_index,
            record=held.record,
            until=self.clock() + claim.ttl,
            entry="" if mine is None or share else mine.key,
            share=share,
        )

    # -- release -----------------------------------------------------------------------------------

    def release(self, claim: Claim) -> Talk[bool]:
        """Free the lock if the owner holds it, and leave the queue."""
        hold = self.holds.get(claim.owner)
        if hold is None:
            return (yield from self._release_unknown(claim))
        doubts: list[Exception] = []
        try:
            freed = yield from self._free(claim.key, hold, doubts)
        finally:
            hold.doubtful |= bool(doubts)  # a release that failed may be tried once more
        in_time = self.clock() < hold.until
        if not freed:  # a renewal whose answer was lost may have written it again
            found = yield from self._find(claim)
            freed = found is not None and (yield from self._free(claim.key, found))
            # Freed by an earlier try, whose answer was lost.
            freed = freed or (found is None and hold.doubtful)
        self.holds.pop(claim.owner, None)
        return freed and in_time

    def release_many(self, claims: Sequence[Claim]) -> Talk[list[bool]]:
        """Free several, as many as fit into one transaction, and the others one by one."""
        freed: dict[str, bool] = {}
        known = [
            (claim, hold)
            for claim in claims
            if (hold := self.holds.get(claim.owner)) and not (hold.entry or hold.doubtful)
        ]
        size = len(self.ways.free(known[0][1])) if known else 0
        for numbers in chunks([size] * len(known), MOST_OPS):
            some = [known[number] for number in numbers]
            doubts: list[Exception] = []
            try:
                ops = [one for _, hold in some for one in self.ways.free(hold)]
                done = (yield from self.api.transact(ops, doubts)).done
            finally:
                for _, hold in some:
                    hold.doubtful |= bool(doubts)
            for claim, hold in some if done else ():
                freed[claim.owner] = self.clock() < hold.until
                self.holds.pop(claim.owner, None)
        for claim in claims:
            if claim.owner not in freed:
                freed[claim.owner] = yield from self.release(claim)
        return [freed[claim.owner] for claim in claims]

    def _release_unknown(self, claim: Claim) -> Talk[bool]:
        """Free what another process took, or what an answer that was lost told of."""
        self.queue.drop(claim)
        hold = yield from self._find(claim)
        freed = hold is not None and (yield from self._free(claim.key, hold))
        paths = Paths(self.start, claim.key)
        state = yield from self.api.look(paths)
        for each in state.queue:
            if stands_for(each.key, claim.owner):
                yield from self.queue.leave(paths, each.key)
        return freed

    def _free(self, key: str, hold: Hold, doubts: list[Exception] | None = None) -> Talk[bool]:
        if hold.entry:
            return (yield from self.queue.pass_on(key, hold, doubts))
        ops = self.ways.free(hold)
        if not hold.share:
            return (yield from self.api.transact(ops, doubts)).done
        paths = hold.paths
        txn = yield from self.api.transact([*ops, *self.shares.last_ops(hold)], doubts)
        if not txn.done and txn.says(paths.guard):  # another was granted a share
            self.shares.outrun(paths.key)
            txn = yield from self.api.transact([*ops, *self.shares.last_ops(hold)], doubts)
        if txn.done:
            self.shares.released(hold)
        state = state_of(paths, txn.pairs)
        if state.guard is not None and not state.shares:
            yield from self.api.delete(paths.guard, state.guard.index)
            self.shares.forget(paths.key)
        return txn.done

    def withdraw(self, claim: Claim) -> Talk[bool]:
        """Leave the queue with a claim that was refused."""
        entry = self.queue.drop(claim)
        if entry is not None:
            yield from self.queue.leave(Paths(self.start, claim.key), entry.key)
        return False

    def wait(self, claim: Claim, turn: float) -> Talk[bool]:
        """Wait in the queue for a turn."""
        return (yield from self.queue.wait(claim, Paths(self.start, claim.key), turn))

    def reap(self, session: str) -> Talk[None]:
        """Free what a session holds of leases whose time is over: no other will."""
        now = self.clock()
        for owner, hold in list(self.holds.items()):
            if hold.session == session and hold.until < now:
                yield from self._free("", hold)
                self.holds.pop(owner, None)

    def forget_all(self) -> None:
        """Drop what is the parent's, in a forked child."""
        self.holds = {}
        self.queue.forget_parent()
        self.shares.forget_parent()
        self.queue.liveness.forget_parent()
