"""What is done in etcd for a claim, as generators of questions: no sockets, no event loop.

The line of a lock is the keys below its digest, one a contender, in the order in which they were
made. The first key holds the lock, and the revision at which it was made is the token.

Under a limit so many of the first hold it, each in a slot, which is written under its key. No two
have the same, as it is written only if nothing was put into the line since it was looked at. The
revision of that is the token, so that the tokens of a slot rise. A claim that joins writes the slot
that it hopes for at once, and has it if that is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...core.clock import Clock
from ...core.values import Claim, Grant, Refusal
from . import messages
from .asking import Operation, Said
from .errors import EtcdError, NoSuchLeaseError
from .leases import Lent, Pool, lifetime
from .messages import Key, Keys, Record, contenders, holders, in_line, in_the_way, key_of
from .places import Place, Places

__all__ = ["BATCH", "Steps"]

BATCH = 60
"""Claims that are renewed together: etcd takes 128 questions in one transaction."""


class Steps:
    """The steps of one alias, and what this process knows of its places."""

    def __init__(self, root: str, clock: Clock) -> None:
        self.root = root
        self._clock = clock
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget the leases and places: those of the parent, in a forked child."""
        self.pool = Pool()
        self.places = Places()

    def _known_here(self, claim: Claim) -> Place | None:
        return self.places.get(claim.owner)

    # -- acquire -----------------------------------------------------------------------------------

    def acquire(self, claim: Claim, *, wait: bool) -> Operation[Grant | Refusal]:
        """Take the lock, or join its line if we ``wait``; a claim that has joined looks ahead."""
        began = self._clock()
        place = self._known_here(claim)
        for _ in range(3):
            if place is not None and place.created:
                refusal = yield from self._look(claim, place)
            else:
                place, refusal = yield from self._put(claim, place, wait=wait)
            if refusal is not None:
                return refusal
            if place.granted:
                left = place.lease.until - began
                return Grant(place.token or place.created, min(claim.ttl, left), slot=place.slot)
        raise EtcdError("the lease that the lock hangs on ends again and again")

    def _put(
        self, claim: Claim, place: Place | None, *, wait: bool
    ) -> Operation[tuple[Place, Refusal | None]]:
        """Put the claim's key; the place is granted, or there is a refusal, or look again."""
        if place is None:
            lease = yield from self._lend(claim.ttl)
            new = Place(Keys.of(self.root, claim), lease, claim.shared, claim.limit)
            place = self.places.add(claim.owner, new, self._clock())
        elif not self._has_whole(place.lease, claim.ttl):
            place.lease = yield from self._lend(claim.ttl)
        hoped = 0 if claim.limit else None
        value = messages.base64(Record.of(claim, hoped).dumps())
        joins = wait or not claim.is_exclusive
        if joins:
            limit = 2 if claim.is_exclusive else 0
            question = messages.join(place.keys, value, place.lease.id, limit=limit)
        else:
            question = messages.take(place.keys, value, place.lease.id)
        unsure, place.unsure = place.unsure, True
        try:
            said = yield question
        except NoSuchLeaseError:
            place.unsure = unsure
            place.lease = yield from self._grant(claim.ttl)
            return place, None
        place.unsure = unsure or question.repeated
        parts = said["responses"]
        if said.get("succeeded"):
            place.created = int(said["header"]["revision"])
            line = key_of(parts[1]["response_range"]) if joins else []
            ahead = contenders(line[1:])
            other = ahead[-1].limit if ahead and ahead[-1].limit != claim.limit else None
            before = in_the_way(ahead, shared=claim.shared, limit=claim.limit)
            if before or other is not None:
                # Only with one ahead it is the holder.
                alone = int(parts[1]["response_range"]["count"]) == 2
                note = _note(ahead[-1]) if alone or claim.limit else ""
                queues = wait and other is None
                if queues:
                    place.wait_for(before)
                else:
                    yield messages.release(place.keys.own, place.created)
                    yield from self._part(claim, place)
                return place, Refusal(note=note, queue=queues, other_limit=other)
            if claim.limit and hoped in {key.slot for key in ahead}:
                return place, None  # it looks which other slot is free
            if not claim.is_exclusive or len(line) < 2:
                place.slot, place.token = hoped, place.created
                yield from self._assure(claim, place, said)
            return place, None
        own = key_of(parts[0]["response_range"])
        if own:  # made by a request that was not answered
            self._found(place, own[0])
            return place, None
        first = key_of(parts[1]["response_range"])
        yield from self._part(claim, place)
        other = first[0].limit if first and first[0].limit else None
        return place, Refusal(note=_note(first[0]) if first else "", other_limit=other)

    def _look(self, claim: Claim, place: Place) -> Operation[Refusal | None]:
        """Look whether it is the claim's turn."""
        # Asked again by the holder, or a while has passed in the line.
        old = place.granted or not self._has_whole(place.lease, claim.ttl)
        if old and not (yield from self._refresh([place.lease]))[0]:
            self._gone(place)
            return None
        if claim.limit:
            return (yield from self._look_for_slot(claim, place))
        said = yield from self._seen([place], first=True)
        own, ahead, first = (part["response_range"] for part in said["responses"])
        if not _is_there(own, place):
            self._gone(place)
            return None
        if line := in_the_way(key_of(ahead), shared=place.shared):
            place.granted = False
            place.wait_for(line)
            return Refusal(note=_note(key_of(first)[0]), queue=True)
        yield from self._assure(claim, place, said)
        return None

    def _look_for_slot(self, claim: Claim, place: Place) -> Operation[Refusal | None]:
        """Look whether fewer than the limit are ahead, and take a slot that is free."""
        while True:
            said = yield messages.page(place.keys.first, place.keys.end, 0)
            line = in_line(said)
            rank = next((n for n, key in enumerate(line) if _is(key, place)), None)
            if rank is None:
                self._gone(place)
                return None
            if before := in_the_way(line[:rank], shared=False, limit=claim.limit):
                place.wait_for(before[::-1])
                return Refusal(note=_note(line[0]), queue=True)
            own = line[rank]
            if own.modified > own.created:  # by us, though perhaps the answer was lost
                place.slot, place.token = own.slot, own.token
            if place.slot is not None:
                yield from self._assure(claim, place, said)
                return None
            taken = {key.slot for key in holders(line) if key is not own}
            slot = next(slot for slot in range(claim.limit) if slot not in taken)
            value = messages.base64(Record.of(claim, slot).dumps())
            revision = int(said["header"]["revision"])
            said = yield messages.settle(place.keys, place.created, value, revision)
            if said.get("succeeded"):
                place.slot, place.token = slot, int(said["header"]["revision"])
                yield from self._assure(claim, place, said)
                return None

    def _seen(self, places: Sequence[Place], *, first: bool = False) -> Operation[Said]:
        """Ask for our keys and the key before each; for all of them if that one has no lease.

        And for all of them where several may hold the lock, as those do not block each other.
        """
        asked = [(place.keys, place.created) for place in places]
        if any(place.shared or place.limit for place in places):
            return (yield messages.look(asked, first=first, limit=0, values=True))
        said = yield messages.look(asked, first=first)
        ahead = said["responses"][1 :: 3 if first else 2]
        if any(not key.asks for part in ahead for key in key_of(part["response_range"])):
            said = yield messages.look(asked, first=first, limit=0)
        return said

    def _assure(self, claim: Claim, place: Place, said: Said) -> Operation[None]:
        """See that a key that is the first of its line has a whole ttl before it; it is granted.

        A lease that a leader refreshed who was none any more ends when the new one has it in mind.
        What has been agreed on in a term shows that who led in that term did so before.
        """
        term = said["header"]["raft_term"]
        lease = place.lease
        sure = self._has_whole(lease, claim.ttl) and lease.term in (None, term)
        if not sure and not (yield from self._renewed([place]))[0]:
            self._gone(place)
            return
        place.granted = True
        place.ahead = ""
        place.stop_watching()

    def _gone(self, place: Place) -> None:
        """Note that a key of ours is not there any more."""
        place.created, place.granted, place.ahead = 0, False, ""
        place.slot, place.token = None, 0
        place.stop_watching()

    def _found(self, place: Place, own: Key) -> None:
        """Note a key of the claim's that is there, we do not know since when."""
        place.created = own.created
        if own.lease != place.lease.id:
            place.lease = Lent(own.lease, 0, 0.0, ours=False)

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
        said = yield messages.grant(asked)
        given = int(said["TTL"])
        self.pool.granted(asked, given)
        lease = Lent(said["ID"], asked, 0.0)
        lease.refreshed(sent, given, None)
        return lease

    def _refresh(self, leases: Sequence[Lent]) -> Operation[list[bool]]:
        """Begin the ttl of leases again; tell which of them are there still."""
        sent = self._clock()
        said = yield messages.keepalive(lease.id for lease in leases)
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

    def _part(self, claim: Claim, place: Place) -> Operation[None]:
        """Forget a place whose key is not there any more, and part with its lease."""
        if place.unsure:
            # A request of ours may be on its way still: without the lease it does nothing.
            with suppress(NoSuchLeaseError):
                yield messages.revoke(place.lease.id)
        if self.places.drop(claim.owner, place) and not place.unsure:
            self.pool.give_back(place.lease, self._clock())

    # -- renew -------------------------------------------------------------------------------------

    def renew(self, claims: Sequence[Claim]) -> Operation[list[bool]]:
        """Begin the ttl of claims again; tell which of them hold their lock still."""
        places = yield from self._known(claims)
        for claim, place in zip(claims, places, strict=True):
            if place is None:
                continue
            if not (yield from self._fit(claim, place)):
                self._gone(place)
            elif claim.shared and not place.shared:
                yield from self._share(claim, place)
        held = [place for place in places if place is not None and place.created]
        ours = set()
        if held:
            answers = yield from self._renewed(held)
            ours = {id(place) for place, yes in zip(held, answers, strict=True) if yes}
        for claim, place in zip(claims, places, strict=True):
            if place is not None and not place.created:
                self.places.drop(claim.owner, place)
        return [id(place) in ours for place in places]

    def _share(self, claim: Claim, place: Place) -> Operation[None]:
        """Have a lock that was held alone be shared; those who wait to share it look soon."""
        value = messages.base64(Record.of(claim).dumps())
        said = yield messages.share(place.keys.own, place.created, value)
        if said.get("succeeded"):
            place.shared = True
        else:
            self._gone(place)

    def _known(self, claims: Sequence[Claim]) -> Operation[list[Place | None]]:
        """Return the place of each claim; those made by other processes are looked for."""
        places = [self._known_here(claim) for claim in claims]
        unknown = [number for number, place in enumerate(places) if place is None]
        if unknown:
            keys = [Keys.of(self.root, claims[number]) for number in unknown]
            said = yield messages.exists([each.own for each in keys])
            for number, each, part in zip(unknown, keys, said["responses"], strict=True):
                if own := key_of(part["response_range"]):
                    lent, claim = Lent(own[0].lease, 0, 0.0, ours=False), claims[number]
                    place = Place(each, lent, claim.shared, claim.limit, own[0].created)
                    places[number] = place
                    self.places.add(claims[number].owner, place, self._clock())
        return places

    def _fit(self, claim: Claim, place: Place) -> Operation[bool]:
        """Hang the key on a lease of the claim's ttl if it hangs on another one."""
        if not place.created:
            return False
        old, asked = place.lease, lifetime(claim.ttl)
        if not old.asked and not (yield from self._refresh([old]))[0]:
            return False
        if old.asked in (asked, max(asked, self.pool.least)):
            return True
        value = ""
        if claim.limit:  # whose token would follow from the revision else
            said = yield messages.exists([place.keys.own], values=True)
            own = key_of(said["responses"][0]["response_range"])
            record = own[0].record if own else None
            if record is None:
                return False
            value = messages.base64(replace(record, token=own[0].token).dumps())
        lease = yield from self._lend(claim.ttl)
        question = messages.move(place.keys.own, place.created, lease.id, value)
        unsure, place.unsure = place.unsure, True
        try:
            said = yield question
        except NoSuchLeaseError:
            lease = yield from self._grant(claim.ttl)
            question = messages.move(place.keys.own, place.created, lease.id, value)
            said = yield question
        if not said.get("succeeded"):
            return False
        place.lease = lease
        if unsure or question.repeated:
            return True  # the old one is left to its end, as something may hang on it
        place.unsure = False
        self.pool.give_back(old, self._clock())
        return True

    def _renewed(self, places: Sequence[Place]) -> Operation[list[bool]]:
        """Refresh the leases, then see that the keys are there, and that no other is ahead.

        In this order: the key that is still the first by then has a refreshed lease. And in one
        term, else a leader that was paused may have refreshed what another one counts.
        """
        for _ in range(4):
            living = yield from self._refresh([place.lease for place in places])
            said = yield from self._seen(places)
            term = said["header"]["raft_term"]
            parts = [part["response_range"] for part in said["responses"]]
            moved = [self._has_moved(*each) for each in zip(places, parts[::2], strict=True)]
            stale = [
                lives and place.lease.term != term
                for place, lives in zip(places, living, strict=True)
            ]
            if not any(moved) and not any(stale):
                break
        else:
            raise EtcdError("the leader, or what the locks hang on, changes all the time")
        answers = []
        for number, (place, lives) in enumerate(zip(places, living, strict=True)):
            own, ahead = parts[2 * number : 2 * number + 2]
            if lives and _is_there(own, place):
                line = in_the_way(key_of(ahead), shared=place.shared, limit=place.limit)
                place.granted = not line
            else:
                self._gone(place)
            answers.append(place.granted)
        return answers

    def _has_moved(self, place: Place, own: dict[str, Any]) -> bool:
        """Return whether another process has hung the key on a lease of its own; follow it."""
        if not _is_there(own, place) or key_of(own)[0].lease == place.lease.id:
            return False
        place.lease = Lent(key_of(own)[0].lease, 0, 0.0, ours=False)
        return True

    # -- release -----------------------------------------------------------------------------------

    def release(self, claim: Claim) -> Operation[bool]:
        """Remove the claim's key; return whether it was the first of its line."""
        place = self._known_here(claim)
        if place is None:
            keys = Keys.of(self.root, claim)
            said = yield messages.withdraw(keys)
            return (yield from _was_holder(said, keys, several=not claim.is_exclusive))
        if place.granted and not place.unsure:
            question = messages.release(place.keys.own, place.created)
            said = yield question
            held = bool(said.get("succeeded"))
            if not held and question.repeated and place.lease.until > self._clock():
                held = True  # the first request did it; its answer was lost
        else:
            question = messages.withdraw(place.keys)
            said = yield question
            several = not claim.is_exclusive
            held = yield from _was_holder(said, place.keys, several=several)
            if not held and question.repeated and place.granted:
                held = place.lease.until > self._clock()
        yield from self._part(claim, place)
        return held


def _note(key: Key) -> str:
    return record.note if (record := key.record) else ""


def _is_there(own: dict[str, Any], place: Place) -> bool:
    found = key_of(own)
    return bool(found) and found[0].created == place.created


def _is(key: Key, place: Place) -> bool:
    return key.created == place.created and key.key == place.keys.own


def _was_holder(said: Said, keys: Keys, *, several: bool) -> Operation[bool]:
    """Tell by the answer to a withdrawal whether it took the lock away."""
    line, removed = said["responses"]
    first = key_of(line["response_range"])
    if not first or not int(removed["response_delete_range"].get("deleted", 0)):
        return False
    if first[0].key != keys.own and (several or not first[0].asks):
        # Look at the line as it was before.
        before = int(said["header"]["revision"]) - 1
        whole = yield messages.page(keys.first, keys.end, 0, str(before))
        first = list(holders(in_line(whole)))
    return any(key.key == keys.own and key.asks for key in first)
