"""What is done in etcd for a claim, as generators of questions: no sockets, no event loop.

The line of a lock is the keys below its digest, one a contender, in the order in which they were
made. Who has the first one holds the lock, and the revision at which it was made is the token.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ...core.clock import Clock
from ...core.values import Claim, Grant, Refusal
from . import messages
from .asking import Operation, Said
from .errors import EtcdError, NoSuchLeaseError
from .leases import Lent, Pool, lifetime
from .messages import Key, Keys, Record, contenders, holders, in_the_way, key_of
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
        """Take the lock, or join its line if we ``wait``; who stands there looks who is ahead."""
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
                return Grant(place.created, min(claim.ttl, left))
        raise EtcdError("the lease that the lock hangs on ends again and again")

    def _put(
        self, claim: Claim, place: Place | None, *, wait: bool
    ) -> Operation[tuple[Place, Refusal | None]]:
        """Put the claim's key; the place is granted, or there is a refusal, or look again."""
        if place is None:
            lease = yield from self._lend(claim.ttl)
            new = Place(Keys.of(self.root, claim), lease, claim.shared)
            place = self.places.add(claim.owner, new, self._clock())
        elif not self._has_whole(place.lease, claim.ttl):
            place.lease = yield from self._lend(claim.ttl)
        now = round(time.time() * 1e6)
        value = messages.base64(Record(now, claim.name, claim.note, claim.shared).dumps())
        joins = wait or claim.shared
        if joins:
            limit = 0 if claim.shared else 2
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
            before = in_the_way(line[1:], shared=claim.shared)
            if before:
                place.ahead = before[0].key
                # Only with one ahead it is the holder.
                alone = int(parts[1]["response_range"]["count"]) == 2
                refusal = Refusal(note=_note(before[0]) if alone else "", queue=wait)
                if not wait:
                    yield messages.release(place.keys.own, place.created)
                    yield from self._part(claim, place)
                return place, refusal
            if claim.shared or len(line) < 2:
                yield from self._assure(claim, place, said)
            return place, None
        own = key_of(parts[0]["response_range"])
        if own:  # made by a request that was not answered
            self._found(place, own[0])
            return place, None
        first = key_of(parts[1]["response_range"])
        yield from self._part(claim, place)
        return place, Refusal(note=_note(first[0]) if first else "")

    def _look(self, claim: Claim, place: Place) -> Operation[Refusal | None]:
        """Look whether it is the claim's turn."""
        # Asked again by the holder, or a while has passed in the line.
        old = place.granted or not self._has_whole(place.lease, claim.ttl)
        if old and not (yield from self._refresh([place.lease]))[0]:
            self._gone(place)
            return None
        said = yield from self._seen([place], first=True)
        own, ahead, first = (part["response_range"] for part in said["responses"])
        if not _is_there(own, place):
            self._gone(place)
            return None
        if line := in_the_way(key_of(ahead), shared=place.shared):
            place.ahead, place.granted = line[0].key, False
            return Refusal(note=_note(key_of(first)[0]), queue=True)
        yield from self._assure(claim, place, said)
        return None

    def _seen(self, places: Sequence[Place], *, first: bool = False) -> Operation[Said]:
        """Ask for our keys and the key before each; for all of them if that one has no lease.

        And for all of them where a claim is shared, as other shared ones do not block it.
        """
        asked = [(place.keys, place.created) for place in places]
        if any(place.shared for place in places):
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
        now = round(time.time() * 1e6)
        value = messages.base64(Record(now, claim.name, claim.note, shared=True).dumps())
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
                    lent, shared = Lent(own[0].lease, 0, 0.0, ours=False), claims[number].shared
                    place = Place(each, lent, shared, own[0].created)
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
        lease = yield from self._lend(claim.ttl)
        question = messages.move(place.keys.own, place.created, lease.id)
        unsure, place.unsure = place.unsure, True
        try:
            said = yield question
        except NoSuchLeaseError:
            lease = yield from self._grant(claim.ttl)
            question = messages.move(place.keys.own, place.created, lease.id)
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

        In this order: who still has the first key by then has it with a refreshed lease. And in one
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
                place.granted = not in_the_way(key_of(ahead), shared=place.shared)
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
            return (yield from _was_holder(said, keys, shared=claim.shared))
        if place.granted and not place.unsure:
            question = messages.release(place.keys.own, place.created)
            said = yield question
            held = bool(said.get("succeeded"))
            if not held and question.repeated and place.lease.until > self._clock():
                held = True  # the first request did it; its answer was lost
        else:
            question = messages.withdraw(place.keys)
            said = yield question
            held = yield from _was_holder(said, place.keys, shared=claim.shared)
            if not held and question.repeated and place.granted:
                held = place.lease.until > self._clock()
        yield from self._part(claim, place)
        return held


def _note(key: Key) -> str:
    return record.note if (record := key.record) else ""


def _is_there(own: dict[str, Any], place: Place) -> bool:
    found = key_of(own)
    return bool(found) and found[0].created == place.created


def _was_holder(said: Said, keys: Keys, *, shared: bool) -> Operation[bool]:
    """Tell by the answer to a withdrawal whether it took the lock away."""
    line, removed = said["responses"]
    first = key_of(line["response_range"])
    if not first or not int(removed["response_delete_range"].get("deleted", 0)):
        return False
    if first[0].key != keys.own and (shared or not first[0].asks):
        # Look at the line as it was before.
        before = int(said["header"]["revision"]) - 1
        whole = yield messages.page(keys.first, keys.end, 0, str(before))
        first = sorted(contenders(key_of(whole)), key=lambda key: key.created)
        first = list(holders(first))
    return any(key.key == keys.own and key.asks for key in first)
