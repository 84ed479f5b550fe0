"""What is done in etcd for a claim, as generators of questions: no sockets, no event loop.

The queue of a lock is the keys below its digest, one a contender, in the order in which they were
made. The first key holds the lock, and the revision at which it was made is the token.

Under a limit so many of the first hold it, each in a slot, which is written under its key. No two
have the same, as it is written only if nothing was put into the queue since it was read. The
revision of that is the token, so that the tokens of a slot rise. A claim that joins writes the slot
that it hopes for at once, and has it if that is free. A holder that leaves while others wait writes
its own under the key of the first of them, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...core.clock import Clock
from ...core.values import Claim, Grant, Refusal
from . import protocol
from .client import Operation, Said
from .entries import EtcdEntries, EtcdEntry
from .errors import EtcdError, NoSuchLeaseError
from .leases import LeasePool, Lent, lifetime
from .protocol import EtcdKeys, EtcdRecord, Key, contenders, holders, in_queue, in_the_way, key_of
from .waiting import Handed

__all__ = ["BATCH", "EtcdAlgorithm"]

BATCH = 60
"""Claims that are renewed together: etcd takes 128 questions in one transaction."""


class EtcdAlgorithm:
    """The steps of one alias, and what this process knows of its entries."""

    def __init__(self, root: str, clock: Clock) -> None:
        self.root = root
        self._clock = clock
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget the leases and entries: those of the parent, in a forked child."""
        self.pool = LeasePool()
        self.entries = EtcdEntries()

    def _known_here(self, claim: Claim) -> EtcdEntry | None:
        return self.entries.get(claim.owner)

    # -- acquire -----------------------------------------------------------------------------------

    def acquire(self, claim: Claim, *, wait: bool) -> Operation[Grant | Refusal]:
        """Take the lock, or join the queue if we ``wait``; in the queue, read what is ahead."""
        began = self._clock()
        entry = self._known_here(claim)
        for _ in range(3):
            if entry is not None and entry.created:
                refusal = yield from self._look(claim, entry)
            else:
                entry, refusal = yield from self._put(claim, entry, wait=wait)
            if refusal is not None:
                return refusal
            if entry.granted:
                return _grant_of(claim, entry, began)
        raise EtcdError("the lease that the lock hangs on ends again and again")

    def _put(
        self, claim: Claim, entry: EtcdEntry | None, *, wait: bool
    ) -> Operation[tuple[EtcdEntry, Refusal | None]]:
        """Put the claim's key; the entry is granted, or refused, or has to read again."""
        if entry is None:
            lease = yield from self._lend(claim.ttl)
            new = EtcdEntry(EtcdKeys.of(self.root, claim), lease, claim.shared, claim.limit)
            entry = self.entries.add(claim.owner, new, self._clock())
        elif not self._has_whole(entry.lease, claim.ttl):
            entry.lease = yield from self._lend(claim.ttl)
        hoped = 0 if claim.limit else None
        value = protocol.base64(EtcdRecord.of(claim, hoped).dumps())
        joins = wait or not claim.is_exclusive
        if joins:
            limit = 2 if claim.is_exclusive else 0
            question = protocol.join(entry.keys, value, entry.lease.id, limit=limit)
        else:
            question = protocol.take(entry.keys, value, entry.lease.id)
        unsure, entry.unsure = entry.unsure, True
        try:
            said = yield question
        except NoSuchLeaseError:
            entry.unsure = unsure
            entry.lease = yield from self._grant(claim.ttl)
            return entry, None
        entry.unsure = unsure or question.repeated
        parts = said["responses"]
        if said.get("succeeded"):
            entry.created = int(said["header"]["revision"])
            queue = key_of(parts[1]["response_range"]) if joins else []
            ahead = contenders(queue[1:])
            other = ahead[-1].limit if ahead and ahead[-1].limit != claim.limit else None
            before = in_the_way(ahead, shared=claim.shared, limit=claim.limit)
            if before or other is not None:
                # Only with one ahead it is the holder.
                alone = int(parts[1]["response_range"]["count"]) == 2
                note = _note(ahead[-1]) if alone or claim.limit else ""
                queues = wait and other is None
                if queues:
                    entry.wait_for(before)
                else:
                    yield protocol.release(entry.keys.own, entry.created)
                    yield from self._part(claim, entry)
                return entry, Refusal(note=note, queue=queues, other_limit=other)
            if claim.limit and hoped in {key.slot for key in ahead}:
                return entry, None  # it reads which other slot is free
            if not claim.is_exclusive or len(queue) < 2:
                entry.slot, entry.token = hoped, entry.created
                yield from self._assure(claim, entry, said)
            return entry, None
        own = key_of(parts[0]["response_range"])
        if own:  # made by a request that was not answered
            self._found(entry, own[0])
            return entry, None
        first = key_of(parts[1]["response_range"])
        yield from self._part(claim, entry)
        other = first[0].limit if first and first[0].limit else None
        return entry, Refusal(note=_note(first[0]) if first else "", other_limit=other)

    def _look(self, claim: Claim, entry: EtcdEntry) -> Operation[Refusal | None]:
        """Look whether it is the claim's turn."""
        # Asked again by the holder, or a while has passed in the queue.
        old = entry.granted or not self._has_whole(entry.lease, claim.ttl)
        if old and not (yield from self._refresh([entry.lease]))[0]:
            self._gone(entry)
            return None
        if claim.limit:
            return (yield from self._look_for_slot(claim, entry))
        said = yield from self._seen([entry], first=True)
        own, ahead, first = (part["response_range"] for part in said["responses"])
        if not _is_there(own, entry):
            self._gone(entry)
            return None
        if queue := in_the_way(key_of(ahead), shared=entry.shared):
            entry.granted = False
            entry.wait_for(queue)
            return Refusal(note=_note(key_of(first)[0]), queue=True)
        yield from self._assure(claim, entry, said)
        return None

    def _look_for_slot(self, claim: Claim, entry: EtcdEntry) -> Operation[Refusal | None]:
        """Look whether fewer than the limit are ahead, and take a slot that is free."""
        while True:
            said = yield protocol.page(entry.keys.first, entry.keys.end, 0)
            queue = in_queue(said)
            rank = next((n for n, key in enumerate(queue) if _is(key, entry)), None)
            if rank is None:
                self._gone(entry)
                return None
            if before := in_the_way(queue[:rank], shared=False, limit=claim.limit):
                entry.wait_for(before[::-1])
                return Refusal(note=_note(queue[0]), queue=True)
            own = queue[rank]
            # By us, though perhaps the answer was lost, or by the holder that left us its slot.
            if own.modified > own.created:
                entry.slot, entry.token = own.slot, own.token
            entry.wanted = len(queue) > claim.limit
            if entry.slot is not None:
                yield from self._assure(claim, entry, said)
                return None
            taken = {key.slot for key in holders(queue) if key is not own}
            slot = next(slot for slot in range(claim.limit) if slot not in taken)
            value = protocol.base64(EtcdRecord.of(claim, slot).dumps())
            revision = int(said["header"]["revision"])
            said = yield protocol.settle(entry.keys, entry.created, value, revision)
            if said.get("succeeded"):
                entry.slot, entry.token = slot, int(said["header"]["revision"])
                yield from self._assure(claim, entry, said)
                return None

    def handed(self, claim: Claim, entry: EtcdEntry, told: Handed) -> Operation[Grant | None]:
        """Take the slot that was written under the entry's key; None: look what has come of it."""
        began = self._clock()
        key = told.key
        if key.created != entry.created or key.slot is None or key.modified == key.created:
            return None
        entry.slot, entry.token, entry.wanted = key.slot, key.token, True
        yield from self._assure(claim, entry, {"header": told.header})
        return _grant_of(claim, entry, began)._replace(asked=began) if entry.granted else None

    def _seen(self, entries: Sequence[EtcdEntry], *, first: bool = False) -> Operation[Said]:
        """Ask for our keys and the key before each; for all of them if that one has no lease.

        And for all of them where several may hold the lock, as those do not block each other.
        """
        asked = [(entry.keys, entry.created) for entry in entries]
        if any(entry.shared or entry.limit for entry in entries):
            return (yield protocol.look(asked, first=first, limit=0, values=True))
        said = yield protocol.look(asked, first=first)
        ahead = said["responses"][1 :: 3 if first else 2]
        if any(not key.asks for part in ahead for key in key_of(part["response_range"])):
            said = yield protocol.look(asked, first=first, limit=0)
        return said

    def _assure(self, claim: Claim, entry: EtcdEntry, said: Said) -> Operation[None]:
        """See that a key that is the first of its queue has a whole ttl before it; it is granted.

        A lease that a leader refreshed who was none any more ends when the new one has it in mind.
        What has been agreed on in a term shows that who led in that term did so before.
        """
        term = said["header"]["raft_term"]
        lease = entry.lease
        sure = self._has_whole(lease, claim.ttl) and lease.term in (None, term)
        if not sure and not (yield from self._renewed([entry]))[0]:
            self._gone(entry)
            return
        entry.granted = True
        entry.ahead = ""
        entry.stop_watching()

    def _gone(self, entry: EtcdEntry) -> None:
        """Note that a key of ours is not there any more."""
        entry.created, entry.granted, entry.ahead = 0, False, ""
        entry.slot, entry.token = None, 0
        entry.stop_watching()

    def _found(self, entry: EtcdEntry, own: Key) -> None:
        """Note a key of the claim's that is there, we do not know since when."""
        entry.created = own.created
        if own.lease != entry.lease.id:
            entry.lease = Lent(own.lease, 0, 0.0, ours=False)

    # -- leases ------------------------------------------------------------------------------------

    def _has_whole(self, lease: Lent, ttl: float) -> bool:
        return lease.until - self._clock() >= ttl

    def _lend(self, ttl: float) -> Operation[Lent]:
        """Return a lease that no other uses, with a whole ``ttl`` before it."""
        lease = self.pool.lend(lifetime(ttl), self._clock())
        if lease is None:
            return (yield from self._grant(ttl))
        if self._has_whole(lease, ttl) or (yield from self._refresh([lease]))[0]:
            return lease
        return (yield from self._grant(ttl))

    def _grant(self, ttl: float) -> Operation[Lent]:
        asked, sent = lifetime(ttl), self._clock()
        said = yield protocol.grant(asked)
        given = int(said["TTL"])
        self.pool.granted(asked, given)
        lease = Lent(str(int(said["ID"])), asked, 0.0)
        lease.refreshed(sent, given, None)
        return lease

    def _refresh(self, leases: Sequence[Lent]) -> Operation[list[bool]]:
        """Begin the ttl of leases again; tell which of them are there still."""
        sent = self._clock()
        said = yield protocol.keepalive(lease.id for lease in leases)
        lines = [line["result"] for line in said.get("lines", ())]
        if len(lines) != len(leases):
            raise EtcdError(f"of {len(leases)} leases {len(lines)} were answered for: {said}")
        living = []
        for lease, line in zip(leases, lines, strict=True):
            given = int(line.get("TTL", 0))
            if given > 0:
                lease.refreshed(sent, given, line["header"]["raft_term"])
                lease.asked = lease.asked or given
            else:
                lease.until = 0.0
            living.append(given > 0)
        return living

    def _part(self, claim: Claim, entry: EtcdEntry) -> Operation[None]:
        """Forget an entry whose key is not there any more, and part with its lease."""
        if entry.unsure:
            # A request of ours may be on its way still: without the lease it does nothing.
            with suppress(NoSuchLeaseError):
                yield protocol.revoke(entry.lease.id)
        if self.entries.drop(claim.owner, entry) and not entry.unsure:
            self.pool.give_back(entry.lease, self._clock())

    # -- renew -------------------------------------------------------------------------------------

    def renew(self, claims: Sequence[Claim]) -> Operation[list[bool]]:
        """Begin the ttl of claims again; tell which of them hold their lock still."""
        entries = yield from self._known(claims)
        for claim, entry in zip(claims, entries, strict=True):
            if entry is None:
                continue
            if not (yield from self._fit(claim, entry)):
                self._gone(entry)
            elif claim.shared and not entry.shared:
                yield from self._share(claim, entry)
        held = [entry for entry in entries if entry is not None and entry.created]
        ours = set()
        if held:
            answers = yield from self._renewed(held)
            ours = {id(entry) for entry, yes in zip(held, answers, strict=True) if yes}
        for claim, entry in zip(claims, entries, strict=True):
            if entry is not None and not entry.created:
                self.entries.drop(claim.owner, entry)
        return [id(entry) in ours for entry in entries]

    def _share(self, claim: Claim, entry: EtcdEntry) -> Operation[None]:
        """Have a lock that was held alone be shared; the waiters that share it try soon."""
        value = protocol.base64(EtcdRecord.of(claim).dumps())
        said = yield protocol.share(entry.keys.own, entry.created, value)
        if said.get("succeeded"):
            entry.shared = True
        else:
            self._gone(entry)

    def _known(self, claims: Sequence[Claim]) -> Operation[list[EtcdEntry | None]]:
        """Return the entry of each claim; those made by other processes are looked for."""
        entries = [self._known_here(claim) for claim in claims]
        unknown = [number for number, entry in enumerate(entries) if entry is None]
        if unknown:
            keys = [EtcdKeys.of(self.root, claims[number]) for number in unknown]
            said = yield protocol.exists([each.own for each in keys])
            for number, each, part in zip(unknown, keys, said["responses"], strict=True):
                if own := key_of(part["response_range"]):
                    lent, claim = Lent(own[0].lease, 0, 0.0, ours=False), claims[number]
                    entry = EtcdEntry(each, lent, claim.shared, claim.limit, own[0].created)
                    entries[number] = entry
                    self.entries.add(claims[number].owner, entry, self._clock())
        return entries

    def _fit(self, claim: Claim, entry: EtcdEntry) -> Operation[bool]:
        """Hang the key on a lease of the claim's ttl if it hangs on another one."""
        if not entry.created:
            return False
        old, asked = entry.lease, lifetime(claim.ttl)
        if not old.asked and not (yield from self._refresh([old]))[0]:
            return False
        if old.asked in (asked, max(asked, self.pool.least)):
            return True
        value = ""
        if claim.limit:  # whose token would follow from the revision else
            said = yield protocol.exists([entry.keys.own], values=True)
            own = key_of(said["responses"][0]["response_range"])
            record = own[0].record if own else None
            if record is None:
                return False
            value = protocol.base64(replace(record, token=own[0].token).dumps())
        lease = yield from self._lend(claim.ttl)
        question = protocol.move(entry.keys.own, entry.created, lease.id, value)
        unsure, entry.unsure = entry.unsure, True
        try:
            said = yield question
        except NoSuchLeaseError:
            lease = yield from self._grant(claim.ttl)
            question = protocol.move(entry.keys.own, entry.created, lease.id, value)
            said = yield question
        if not said.get("succeeded"):
            return False
        entry.lease = lease
        if unsure or question.repeated:
            return True  # the old one is left to its end, as something may hang on it
        entry.unsure = False
        self.pool.give_back(old, self._clock())
        return True

    def _renewed(self, entries: Sequence[EtcdEntry]) -> Operation[list[bool]]:
        """Refresh the leases, then see that the keys are there, and that no other is ahead.

        In this order: the key that is still the first by then has a refreshed lease. And in one
        term, else a leader that was paused may have refreshed what another one counts.
        """
        for _ in range(4):
            living = yield from self._refresh([entry.lease for entry in entries])
            said = yield from self._seen(entries)
            term = said["header"]["raft_term"]
            parts = [part["response_range"] for part in said["responses"]]
            moved = [self._has_moved(*each) for each in zip(entries, parts[::2], strict=True)]
            stale = [
                lives and entry.lease.term != term
                for entry, lives in zip(entries, living, strict=True)
            ]
            if not any(moved) and not any(stale):
                break
        else:
            raise EtcdError("the leader, or what the locks hang on, changes all the time")
        answers = []
        for number, (entry, lives) in enumerate(zip(entries, living, strict=True)):
            own, ahead = parts[2 * number : 2 * number + 2]
            if lives and _is_there(own, entry):
                queue = in_the_way(key_of(ahead), shared=entry.shared, limit=entry.limit)
                entry.granted = not queue
            else:
                self._gone(entry)
            answers.append(entry.granted)
        return answers

    def _has_moved(self, entry: EtcdEntry, own: dict[str, Any]) -> bool:
        """Return whether another process has hung the key on a lease of its own; follow it."""
        if not _is_there(own, entry) or key_of(own)[0].lease == entry.lease.id:
            return False
        entry.lease = Lent(key_of(own)[0].lease, 0, 0.0, ours=False)
        return True

    # -- release -----------------------------------------------------------------------------------

    def release(self, claim: Claim) -> Operation[bool]:
        """Remove the claim's key; return whether it was the first of its queue."""
        entry = self._known_here(claim)
        if entry is None:
            keys = EtcdKeys.of(self.root, claim)
            said = yield protocol.withdraw(keys)
            return (yield from _was_holder(said, keys, several=not claim.is_exclusive))
        if entry.granted and not entry.unsure:
            held, repeated = False, False
            if entry.wanted:
                held, repeated = yield from self._hand_over(entry)
            if not held:
                question = protocol.release(entry.keys.own, entry.created)
                said = yield question
                held = bool(said.get("succeeded"))
                repeated = repeated or question.repeated
            if not held and repeated and entry.lease.until > self._clock():
                held = True  # a request before it did it; its answer was lost
        else:
            question = protocol.withdraw(entry.keys)
            said = yield question
            several = not claim.is_exclusive
            held = yield from _was_holder(said, entry.keys, several=several)
            if not held and question.repeated and entry.granted:
                held = entry.lease.until > self._clock()
        yield from self._part(claim, entry)
        return held

    def _hand_over(self, entry: EtcdEntry) -> Operation[tuple[bool, bool]]:
        """Remove an entry, and write its slot under the key of the first waiter.

        Return whether that was done, and whether a request was sent twice. Nothing was changed if
        the waiter has left meanwhile, or has been given another slot.
        """
        repeated = False
        for _ in range(3):
            queue = in_queue((yield protocol.page(entry.keys.first, entry.keys.end, 0)))
            waiter = queue[entry.limit] if len(queue) > entry.limit else None
            record = None if waiter is None else waiter.record
            if waiter is None or record is None or waiter.modified > waiter.created:
                break
            value = protocol.base64(replace(record, slot=entry.slot).dumps())
            question = protocol.hand_over(entry.keys.own, entry.created, waiter, value)
            said = yield question
            repeated = repeated or question.repeated
            if said.get("succeeded"):
                return True, repeated
        return False, repeated


def _grant_of(claim: Claim, entry: EtcdEntry, began: float) -> Grant:
    """Return the grant of an entry, which counts from when it ``began`` to ask."""
    left = entry.lease.until - began
    return Grant(entry.token or entry.created, min(claim.ttl, left), slot=entry.slot)


def _note(key: Key) -> str:
    return record.note if (record := key.record) else ""


def _is_there(own: dict[str, Any], entry: EtcdEntry) -> bool:
    found = key_of(own)
    return bool(found) and found[0].created == entry.created


def _is(key: Key, entry: EtcdEntry) -> bool:
    return key.created == entry.created and key.key == entry.keys.own


def _was_holder(said: Said, keys: EtcdKeys, *, several: bool) -> Operation[bool]:
    """Tell by the answer to a withdrawal whether it took the lock away."""
    queue, removed = said["responses"]
    first = key_of(queue["response_range"])
    if not first or not int(removed["response_delete_range"].get("deleted", 0)):
        return False
    if first[0].key != keys.own and (several or not first[0].asks):
        # Look at the queue as it was before.
        before = int(said["header"]["revision"]) - 1
        whole = yield protocol.page(keys.first, keys.end, 0, str(before))
        first = list(holders(in_queue(whole)))
    return any(key.key == keys.own and key.asks for key in first)
