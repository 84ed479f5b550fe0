"""Who holds a lock that several may hold at once: one value, which a store changes in one step.

A store that can compare and set has shared locks and limits by this alone: it reads the value,
has it changed here, and writes it if it is still as it was read.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from .durations import in_microseconds
from .values import Claim, Grant, Refusal

__all__ = ["Member", "Members"]

WANTED = 1_000_000
"""Microseconds for which an exclusive claim that waits keeps out who would share the lock."""


class Member(NamedTuple):
    """One of the holders; times are in microseconds by the store's clock."""

    owner: str
    token: int
    acquired: int
    expires: int
    slot: int | None
    note: str


class Members(NamedTuple):
    """The holders of one name, the first of them first.

    ``limit`` is how many there may be, 0 for a shared lock, which may have any number. Until
    ``wanted`` no other may share it, as an exclusive claim waits.
    """

    limit: int = 0
    wanted: int = 0
    all: tuple[Member, ...] = ()

    @classmethod
    def loads(cls, text: str) -> Members | None:
        """Read what `dumps` wrote; None if it is anything else."""
        try:
            limit, wanted, members = json.loads(text)
            found = cls(int(limit), int(wanted), tuple(_member(*each) for each in members))
        except (ValueError, TypeError, OverflowError, RecursionError):
            return None
        return found

    def dumps(self) -> str:
        """Return the value as ASCII JSON: an array, where holder info is an object."""
        return json.dumps([self.limit, self.wanted, self.all], separators=(",", ":"))

    @staticmethod
    def are_in(text: str) -> bool:
        """Return whether a text was written by `dumps`, and is not holder info."""
        return text.startswith("[")

    def living(self, now: int) -> Members:
        """Return those whose lease lasts."""
        alive = tuple([each for each in self.all if each.expires > now])
        return self if len(alive) == len(self.all) else self._replace(all=alive)

    def ends(self) -> int:
        """When the last lease ends; 0 without any."""
        return max((each.expires for each in self.all), default=0)

    @classmethod
    def of_one(cls, claim: Claim, token: int, since: int, until: int) -> Members:
        """Return a claim's owner, who held the lock alone, as one that shares it."""
        return cls(all=(Member(claim.owner, token, since, until, None, claim.note),))

    def grant(self, claim: Claim) -> Grant:
        """Return what a claim is told that is one of them."""
        mine = next(each for each in self.all if each.owner == claim.owner)
        return Grant(mine.token, claim.ttl, slot=mine.slot)

    def of(self, owner: str) -> Member | None:
        """Return an owner's."""
        for each in self.all:
            if each.owner == owner:
                return each
        return None

    def aged(self, by: int) -> Members:
        """Return them as if they were older."""
        older = [m._replace(acquired=m.acquired - by, expires=m.expires - by) for m in self.all]
        return self._replace(wanted=self.wanted - by, all=tuple(older))

    # -- what changes them; each time all of them are alive ----------------------------------------

    def joined(self, claim: Claim, now: int, token: int) -> Members | Refusal:
        """Return them with the claim's owner as the last one, under ``token``; or why not.

        Asked again by one of them, its ttl begins again.
        """
        if self.of(claim.owner) is not None:
            return self.renewed(claim, now)
        if (refusal := self.refusal(claim, now)) is not None:
            return refusal
        slot = None
        if claim.limit:
            taken = {each.slot for each in self.all}
            slot = next(number for number in range(claim.limit) if number not in taken)
        ends = now + in_microseconds(claim.ttl)
        new = Member(claim.owner, token, now, ends, slot, claim.note)
        return Members(claim.limit, self.wanted, (*self.all, new))

    def refusal(self, claim: Claim, now: int) -> Refusal | None:
        """Return why the claim has to stay out, if it has to."""
        if not self.all:
            kept_out = claim.shared and self.wanted > now
            return Refusal((self.wanted - now) / 1e6) if kept_out else None
        note = self.all[0].note
        if self.limit != claim.limit:
            return Refusal((self.ends() - now) / 1e6, note, other_limit=self.limit)
        if claim.shared:
            return Refusal((self.ends() - now) / 1e6, note) if self.wanted > now else None
        if not claim.limit:
            return Refusal((self.ends() - now) / 1e6, note)
        if len(self.all) < claim.limit:
            return None
        return Refusal((min(each.expires for each in self.all) - now) / 1e6, note)

    def renewed(self, claim: Claim, now: int) -> Members:
        """Return them with the ttl of the claim's owner begun again."""
        ends = now + in_microseconds(claim.ttl)
        return self._replace(
            all=tuple(
                each._replace(expires=ends, note=claim.note) if each.owner == claim.owner else each
                for each in self.all
            )
        )

    def without(self, owner: str) -> Members:
        """Return them without one."""
        return self._replace(all=tuple(each for each in self.all if each.owner != owner))

    def awaited(self, claim: Claim, now: int) -> Members | None:
        """Return them wanted by an exclusive claim that waits; None where that is known."""
        if self.limit or not (claim.is_exclusive and claim.waits):
            return None
        return self._replace(wanted=now + WANTED) if self.wanted - now < WANTED / 2 else None


def _member(
    owner: object, token: int, acquired: int, expires: int, slot: int | None, note: object
) -> Member:
    number = None if slot is None else int(slot)
    return Member(str(owner), int(token), int(acquired), int(expires), number, str(note))
